//! How our connections to the application's database are opened.
//!
//! Nothing here changes the file, except the switch to WAL, and that only when asked: it is the application's file.

use std::{path::PathBuf, time::Duration};

use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use rusqlite::{Connection, OpenFlags, config::DbConfig};

use crate::outcome;

#[derive(Clone, Debug)]
pub struct Options {
    pub path: PathBuf,
    /// Name of the source, for messages and names of threads.
    pub source: Name,
    /// Make the file if it is not there. Else a missing file is an error: a mistyped path must not become a database.
    pub create: bool,
    /// Switch the file to write-ahead logging. It is remembered in the file, so it needs the owner's consent.
    pub set_wal: bool,
    /// `synchronous = NORMAL`: a power cut may undo the last acknowledgements. For the demo only.
    pub relaxed: bool,
    /// How long a writer waits for the application's transaction to end.
    pub busy_timeout: Duration,
    /// Requests waiting for one of our threads; more of them wait at the caller.
    pub queue_max: usize,
    /// While only acknowledgements of a few rows come, transactions begin this far apart: they can wait, the
    /// application's own commits should not.
    pub acknowledge_every: Duration,
}

impl Options {
    pub fn new(path: impl Into<PathBuf>, source: impl Into<Name>) -> Options {
        Options {
            path: path.into(),
            source: source.into(),
            create: false,
            set_wal: false,
            relaxed: false,
            busy_timeout: BUSY_TIMEOUT,
            queue_max: 1024,
            acknowledge_every: Duration::from_millis(50),
        }
    }
}

const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const TRY_EVERY: Duration = Duration::from_micros(500);

/// SQLite's own handler sleeps up to 100 ms between tries. An application that writes without a pause leaves the lock free
/// for microseconds only, and would keep our acknowledgements, and with them the keys, waiting for seconds.
fn try_again(tries: i32) -> bool {
    std::thread::sleep(TRY_EVERY);
    u128::from(tries.unsigned_abs()) * TRY_EVERY.as_micros() < BUSY_TIMEOUT.as_micros()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Writer,
    Reader,
}

pub(crate) fn open(options: &Options, role: Role) -> Result<Connection, Failure> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if options.create && role == Role::Writer {
        flags |= OpenFlags::SQLITE_OPEN_CREATE;
    }
    let place = options.path.display();
    let mut connection = Connection::open_with_flags(&options.path, flags)
        .map_err(|error| outcome::failure(&error, format_args!("open {place}")))?;
    configure(&mut connection, options, role)
        .map_err(|error| outcome::failure(&error, format_args!("open {place}")))?;
    Ok(connection)
}

fn configure(connection: &mut Connection, options: &Options, role: Role) -> rusqlite::Result<()> {
    connection.busy_timeout(options.busy_timeout)?;
    if role == Role::Writer && options.busy_timeout == BUSY_TIMEOUT {
        connection.busy_handler(Some(try_again))?;
    }
    connection.set_prepared_statement_cache_capacity(128);
    // Else every other value bound to a statement has it planned anew: ten times in each poll.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "synchronous", if options.relaxed { "NORMAL" } else { "FULL" })?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    match role {
        Role::Writer if options.set_wal => {
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        }
        Role::Writer => {}
        Role::Reader => connection.pragma_update(None, "query_only", true)?,
    }
    // The first read: a file that is no database, or that we may not read, is found here and not by the first poll.
    connection.query_row("select count(*) from sqlite_master", [], |_| Ok(()))
}

//! Opens connections to the application's database.
//!
//! It does not change the file, except for the switch to WAL, and only if configured: it is the application's file.

use std::{path::PathBuf, time::Duration};

use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use rusqlite::{Connection, OpenFlags, config::DbConfig};

use crate::outcome;

#[derive(Clone, Debug)]
pub struct Options {
    pub path: PathBuf,
    /// The name of the source, for messages and names of threads.
    pub source: Name,
    /// Create the file if it does not exist. Otherwise a missing file is an error: a mistyped path must not become a
    /// database.
    pub create: bool,
    /// Switch the file to write-ahead logging. The file stores this setting, so it needs the owner's consent.
    pub set_wal: bool,
    /// Use `synchronous = NORMAL`: a power cut may undo the last acknowledgements. For the demo only.
    pub relaxed: bool,
    /// How long the writer waits for the application's transaction to end.
    pub busy_timeout: Duration,
    /// The maximum number of requests that wait in the queue of one thread; further callers wait for room.
    pub queue_max: usize,
    /// The minimum time between two transactions that only acknowledge a few rows: acknowledgements can wait, the
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

/// Busy handler that retries every 0.5 ms. SQLite's own handler sleeps up to 100 ms between tries; an application that
/// writes without a pause leaves the lock free for microseconds only, so our acknowledgements, and with them the keys,
/// would wait for seconds.
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
    // Without this, each different bound value makes SQLite plan the statement again: ten times in each poll.
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
    // The first read finds a file that is not a database or not readable, before the first poll does.
    connection.query_row("select count(*) from sqlite_master", [], |_| Ok(()))
}

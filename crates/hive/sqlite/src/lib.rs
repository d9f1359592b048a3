//! The hive in the application's SQLite file: leases live with the data they protect.
//!
//! Nodes on one file are processes of one machine, so a kernel lock says who is alive ([`lock`]); the row only names
//! the holder. Everything is asked on one connection of its own, on a thread of its own, so that neither polls nor
//! loads can delay a beat. Opening makes nothing; the first join makes the tables.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method of one session's lifetime is not general enough"
)]

mod answer;
mod lease;
mod limit;
mod lock;
mod node;
mod outcome;
mod patience;
mod remove;
mod row;
mod schema;
mod session;
mod view;

use std::{
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread,
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use honeyflow_hive::{Capabilities, HiveStore, Reply, Request, contract::HIVE};
use honeyflow_runtime::Failure;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::oneshot;

use answer::Hive;

pub use remove::{living, living_nodes, refuse_if_lived_in, tables, uninstall};

/// Requests waiting for the connection. A node sends one beat at a time; more than this is a storm.
const QUEUE_MAX: usize = 256;

#[derive(Clone, Debug)]
pub struct Options {
    pub path: PathBuf,
    /// Several hives may share a file.
    pub hive: String,
    /// Refuses to join while another node lives.
    pub alone: bool,
    /// How long a request waits for the application's transaction to end. Nothing said: a sixth of the shortest
    /// time to live that has joined, at most 700 ms.
    pub busy_timeout: Option<Duration>,
}

impl Options {
    pub fn new(path: impl Into<PathBuf>) -> Options {
        Options { path: path.into(), hive: HIVE.to_owned(), alone: false, busy_timeout: None }
    }
}

/// Its thread ends, and its kernel lock is free, once it is dropped.
pub struct SqliteHive {
    queue: SyncSender<Asked>,
}

struct Asked {
    request: Request,
    answer: oneshot::Sender<Result<Reply, Failure>>,
}

/// Opens a hive of the database at `path`, which must exist.
///
/// # Errors
/// If the file cannot be opened.
pub fn open(path: &Path, hive: &str) -> Result<SqliteHive, Failure> {
    SqliteHive::open(&Options { hive: hive.to_owned(), ..Options::new(path) })
}

/// Opens a hive in a file of its own, which is made if it is missing: for services that have no database.
///
/// # Errors
/// If the file can neither be opened nor made.
pub fn make(path: &Path, hive: &str) -> Result<SqliteHive, Failure> {
    let failed = |error: rusqlite::Error| outcome::failure(&error, format_args!("make the hive in {}", path.display()));
    let connection = Connection::open(path).map_err(failed)?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(failed)?;
    // Readers then never wait for whoever draws.
    connection.pragma_update(None, "journal_mode", "wal").map_err(failed)?;
    drop(connection);
    open(path, hive)
}

impl SqliteHive {
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(options: &Options) -> Result<SqliteHive, Failure> {
        let failed = |error: rusqlite::Error| {
            outcome::failure(&error, format_args!("open the hive in {}", options.path.display()))
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&options.path, flags).map_err(failed)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        let hive = Hive::new(connection, options)?;
        let (queue, asked) = sync_channel(QUEUE_MAX);
        thread::Builder::new()
            .name("hive".to_owned())
            .spawn(move || serve(hive, &asked))
            .map_err(|error| Failure::retry("no-thread", format!("start a thread for the hive: {error}")))?;
        Ok(SqliteHive { queue })
    }
}

fn serve(mut hive: Hive, asked: &Receiver<Asked>) {
    for Asked { request, answer } in asked {
        // Asked for by someone who has gone: a beat or a take that nobody hears of must not happen late. A leave must.
        if !answer.is_closed() || matches!(request, Request::Leave { .. }) {
            let _ = answer.send(hive.answer(request));
        }
    }
}

impl HiveStore for SqliteHive {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        let (answer, answered) = oneshot::channel();
        let refused = self.queue.try_send(Asked { request, answer }).err().map(|error| match error {
            TrySendError::Full(_) => Failure::retry("hive-busy", "too many requests wait for the hive's connection"),
            TrySendError::Disconnected(_) => stopped(),
        });
        async move {
            match refused {
                Some(failure) => Err(failure),
                None => answered.await.map_err(|_| stopped())?,
            }
        }
        .boxed()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { many_hosts: false, durable: true, doorbell: false }
    }
}

fn stopped() -> Failure {
    Failure::retry("hive-stopped", "the hive's thread has ended; the node is stopping, or restarts the hive")
}

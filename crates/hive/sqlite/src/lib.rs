//! The hive in the application's SQLite file: leases live with the data they protect.
//!
//! Nodes that share a file are processes of one machine, so a kernel lock shows which node is alive ([`lock`]); the row
//! only names the holder. The hive has its own connection on its own thread, so that neither polls nor loads can delay
//! a heartbeat. Opening creates nothing; the first join creates the tables.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method of one session's lifetime is not general enough"
)]

mod answer;
pub mod codes;
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

pub use remove::{refuse_if_in_use, running_node, running_nodes, tables, uninstall};

/// How many requests may wait for the connection. A node sends one heartbeat at a time; more requests than this are a
/// storm.
const QUEUE_MAX: usize = 256;

#[derive(Clone, Debug)]
pub struct Options {
    pub path: PathBuf,
    /// Several hives may share a file.
    pub hive: String,
    /// Refuses a join while another node is alive.
    pub alone: bool,
    /// How long a request waits for the application's transaction to end. The default is a sixth of the shortest time
    /// to live among the nodes that have joined, at most 700 ms.
    pub busy_timeout: Option<Duration>,
}

impl Options {
    pub fn new(path: impl Into<PathBuf>) -> Options {
        Options { path: path.into(), hive: HIVE.to_owned(), alone: false, busy_timeout: None }
    }
}

/// The hive of one SQLite file. When it is dropped, its thread ends and the kernel releases its locks.
pub struct SqliteHive {
    queue: SyncSender<PendingRequest>,
}

struct PendingRequest {
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

/// Opens a hive in its own file, for services that have no database. Creates the file if it is missing.
///
/// # Errors
/// If the file can neither be opened nor created.
pub fn make(path: &Path, hive: &str) -> Result<SqliteHive, Failure> {
    let failed = |error: rusqlite::Error| outcome::failure(&error, format_args!("make the hive in {}", path.display()));
    let connection = Connection::open(path).map_err(failed)?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(failed)?;
    // With a write-ahead log, readers never wait for a node that takes permits.
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
            .map_err(|error| Failure::retry(codes::NO_THREAD, format!("start a thread for the hive: {error}")))?;
        Ok(SqliteHive { queue })
    }
}

fn serve(mut hive: Hive, asked: &Receiver<PendingRequest>) {
    for PendingRequest { request, answer } in asked {
        // If the caller no longer waits, a heartbeat or a take must not happen late, as no node would learn of it. A
        // leave must happen anyway.
        if !answer.is_closed() || matches!(request, Request::Leave { .. }) {
            let _ = answer.send(hive.answer(request));
        }
    }
}

impl HiveStore for SqliteHive {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        let (answer, answered) = oneshot::channel();
        let refused = self.queue.try_send(PendingRequest { request, answer }).err().map(|error| match error {
            TrySendError::Full(_) => {
                Failure::retry(codes::HIVE_BUSY, "too many requests wait for the hive's connection")
            }
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
    Failure::retry(codes::HIVE_STOPPED, "the hive's thread has ended; the node is stopping, or restarts the hive")
}

//! The hive on PostgreSQL 13 and newer, beside the application's tables or in a separate database.
//!
//! Every request is one message that contains a whole transaction ([`script`]). So nothing depends on a session, no
//! lock is held during a network round trip, and a pooler in transaction mode may stand in between. Heartbeats have
//! their own connection, and the hive has its own thread: neither polls, nor limits, nor a busy runtime can delay a
//! heartbeat.
//!
//! Opening creates nothing and contacts no server; the first join creates the tables. If the server is down, requests
//! fail with `Retry` until it is back.

mod answer;
pub mod codes;
mod config;
mod driver;
pub mod grants;
mod hive;
mod lane;
mod lease;
mod limit;
mod literal;
mod node;
mod outcome;
mod row;
pub mod schema;
mod script;
mod server;
mod session;
mod status;
mod view;

use std::{sync::Arc, thread};

use futures_util::{FutureExt, future::BoxFuture};
use honeyflow_hive::{Capabilities, HiveStore, Reply, Request};
use honeyflow_runtime::Failure;
use tokio::sync::{mpsc, oneshot};

pub use config::Options;

use hive::Hive;
use lane::{Job, LaneContext};

/// How many requests may wait for a connection; more than this is a storm.
const QUEUE_MAX: usize = 1024;
/// Connections for changes. A transfer of a lease waits for transactions under that lease; with several connections,
/// other changes need not wait behind it.
const CHANGES: usize = 3;
const LIMITS: usize = 4;

/// The hive of one PostgreSQL database. Its thread and its connections end when it is dropped.
pub struct PostgresHive {
    beats: mpsc::Sender<Job>,
    changes: mpsc::Sender<Job>,
    limits: mpsc::Sender<Job>,
}

/// Opens the hive of the default name in the database at `url`.
///
/// # Errors
/// If `url` is not the address of a PostgreSQL server. A server that is down is no error: requests fail until it is up.
#[expect(clippy::unused_async, reason = "a hive is opened in the same way on every backend, and some have to ask")]
pub async fn open(url: &str) -> Result<Arc<dyn HiveStore>, Failure> {
    Ok(Arc::new(PostgresHive::open(&Options::new(url))?))
}

impl PostgresHive {
    /// # Errors
    /// If the address cannot be parsed, or no thread can be started.
    pub fn open(options: &Options) -> Result<PostgresHive, Failure> {
        let place = Arc::new(LaneContext {
            hive: Hive::new(&options.hive),
            address: options.address()?,
            timeout: options.timeout,
        });
        let (beats, beating) = mpsc::channel(QUEUE_MAX);
        let (changes, changing) = mpsc::channel(QUEUE_MAX);
        let (limits, limiting) = mpsc::channel(QUEUE_MAX);
        let no_thread =
            |error: std::io::Error| Failure::retry(codes::NO_THREAD, format!("start a thread for the hive: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let serve = move || {
            runtime.block_on(async {
                tokio::join!(
                    lane::serve(Arc::clone(&place), beating, 1),
                    lane::serve(Arc::clone(&place), changing, CHANGES),
                    lane::serve(Arc::clone(&place), limiting, LIMITS),
                )
            });
        };
        thread::Builder::new().name("hive-postgres".to_owned()).spawn(serve).map_err(no_thread)?;
        Ok(PostgresHive { beats, changes, limits })
    }
}

impl HiveStore for PostgresHive {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        let lane = match &request {
            Request::Join { .. } | Request::Beat { .. } | Request::Leave { .. } => &self.beats,
            Request::Limit(_) => &self.limits,
            _ => &self.changes,
        };
        let (answer, answered) = oneshot::channel();
        let refused = lane.try_send(Job { request, answer }).err().map(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                Failure::retry(codes::HIVE_BUSY, "too many requests wait for the hive's connections")
            }
            mpsc::error::TrySendError::Closed(_) => stopped(),
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
        Capabilities { many_hosts: true, durable: true, doorbell: false }
    }
}

fn stopped() -> Failure {
    Failure::retry(codes::HIVE_STOPPED, "the hive's thread has ended; the node is stopping, or restarts the hive")
}

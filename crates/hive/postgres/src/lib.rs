//! The hive on PostgreSQL 13 and newer: beside the application's tables, or in a database of its own.
//!
//! Every request is one message with a whole transaction in it ([`script`]), so that nothing depends on a session and no
//! lock is held while anything travels; a pooler in transaction mode may stand in between. Beats have a connection of
//! their own, and all of it a thread of its own: neither polls, nor limits, nor a busy runtime can delay them.
//!
//! Opening makes nothing and asks nobody; the first join makes the tables. A server that is down is waited for.

mod answer;
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
use lane::{Job, Place};

/// Requests waiting for a connection; more than this is a storm.
const QUEUE_MAX: usize = 1024;
/// Changes of hands wait for those who act under a lease; the others need not wait for them.
const CHANGES: usize = 3;
const LIMITS: usize = 4;

/// Its thread and its connections end once it is dropped.
pub struct PostgresHive {
    beats: mpsc::Sender<Job>,
    changes: mpsc::Sender<Job>,
    limits: mpsc::Sender<Job>,
}

/// The hive of the default name in the database at `url`.
///
/// # Errors
/// If `url` is no address of a PostgreSQL server. One that is down is no error: requests fail until it is there.
#[expect(clippy::unused_async, reason = "a hive is opened in the same way on every backend, and some have to ask")]
pub async fn open(url: &str) -> Result<Arc<dyn HiveStore>, Failure> {
    Ok(Arc::new(PostgresHive::open(&Options::new(url))?))
}

impl PostgresHive {
    /// # Errors
    /// If the address cannot be read, or no thread can be had.
    pub fn open(options: &Options) -> Result<PostgresHive, Failure> {
        let place =
            Arc::new(Place { hive: Hive::new(&options.hive), address: options.address()?, timeout: options.timeout });
        let (beats, beating) = mpsc::channel(QUEUE_MAX);
        let (changes, changing) = mpsc::channel(QUEUE_MAX);
        let (limits, limiting) = mpsc::channel(QUEUE_MAX);
        let no_thread =
            |error: std::io::Error| Failure::retry("no-thread", format!("start a thread for the hive: {error}"));
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
                Failure::retry("hive-busy", "too many requests wait for the hive's connections")
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
    Failure::retry("hive-stopped", "the hive's thread has ended; the node is stopping, or restarts the hive")
}

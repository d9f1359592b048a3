//! The hive on MySQL 8 and MariaDB: leases live with the data they protect.
//!
//! The hive has its own connections and its own thread, so that neither the application's pool nor its runtime can
//! delay a heartbeat. Opening contacts no server: if the server is down, the node joins when it is up. The first join
//! creates the tables; if the account may not do that, [`schema::ddl`] and [`grants::for_honeyflow`] give the
//! statements that an administrator has to run.

mod answer;
pub mod codes;
mod collision;
mod config;
mod definition;
mod driver;
pub mod grants;
mod lane;
mod lease;
mod limit;
mod literal;
mod message;
mod node;
mod outcome;
mod request;
mod row;
pub mod schema;
mod server;
mod session;
mod slots;
mod view;

use std::{sync::Arc, thread};

use futures_util::{FutureExt, future::BoxFuture};
use honeyflow_hive::{Capabilities, HiveStore, Reply, Request};
use honeyflow_runtime::Failure;
use tokio::sync::{
    Semaphore,
    mpsc::{self, error::TrySendError},
    oneshot,
};

pub use config::Options;
pub use server::Flavour;

use answer::Hive;

/// The largest number of requests in progress, and of requests that wait. A node sends few at a time; more is a storm.
const QUEUE_MAX: usize = 256;

/// The hive of one MySQL or MariaDB database. When it is dropped, its thread ends and its connections are closed.
pub struct MysqlHive {
    queue: mpsc::Sender<PendingRequest>,
}

struct PendingRequest {
    request: Request,
    answer: oneshot::Sender<Result<Reply, Failure>>,
}

/// Opens the hive of the default name in the database that `url` names: `mysql://user:password@host:3306/database`.
///
/// # Errors
/// If the address is invalid. A server that is down is no error: requests fail until it is up.
pub async fn open(url: &str) -> Result<Arc<dyn HiveStore>, Failure> {
    Ok(Arc::new(MysqlHive::open(&Options::new(url))?))
}

impl MysqlHive {
    /// # Errors
    /// If the address is invalid. A server that is down is no error: requests fail until it is up.
    pub fn open(options: &Options) -> Result<MysqlHive, Failure> {
        let hive = Arc::new(Hive::new(options)?);
        let no_thread = |error| Failure::retry(codes::NO_THREAD, format!("start a thread for the hive: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let (queue, asked) = mpsc::channel(QUEUE_MAX);
        thread::Builder::new()
            .name("hive-mysql".to_owned())
            .spawn(move || runtime.block_on(serve(hive, asked)))
            .map_err(no_thread)?;
        Ok(MysqlHive { queue })
    }
}

async fn serve(hive: Arc<Hive>, mut asked: mpsc::Receiver<PendingRequest>) {
    let under_way = Arc::new(Semaphore::new(QUEUE_MAX));
    while let Ok(place) = Arc::clone(&under_way).acquire_owned().await {
        let Some(PendingRequest { request, mut answer }) = asked.recv().await else { return };
        let hive = Arc::clone(&hive);
        tokio::spawn(async move {
            let _place = place;
            // If the caller stops waiting, the connection is closed and the server rolls back its transaction. A
            // connection that is still being opened is kept for the next request.
            let result = tokio::select! {
                biased;
                () = answer.closed() => return,
                result = hive.answer(request) => result,
            };
            let _ = answer.send(result);
        });
    }
}

impl HiveStore for MysqlHive {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        let (answer, answered) = oneshot::channel();
        let refused = self.queue.try_send(PendingRequest { request, answer }).err().map(|error| match error {
            TrySendError::Full(_) => Failure::retry(codes::HIVE_BUSY, "too many requests wait for the hive's thread"),
            TrySendError::Closed(_) => stopped(),
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

//! The hive on MySQL 8 and MariaDB: leases live with the data they protect.
//!
//! Everything is asked on connections of its own, on a thread of its own, so that neither the application's pool nor its
//! runtime can delay a beat. Opening asks nothing: a server that is down is joined once it is there. The first join
//! makes the tables; where the account may not, [`schema::ddl`] and [`grants::for_honeyflow`] say what an administrator
//! has to run.

mod answer;
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

/// Requests under way, and as many that wait. A node sends few at a time; more than this is a storm.
const QUEUE_MAX: usize = 256;

/// Its thread ends, and its connections are closed, once it is dropped.
pub struct MysqlHive {
    queue: mpsc::Sender<Asked>,
}

struct Asked {
    request: Request,
    answer: oneshot::Sender<Result<Reply, Failure>>,
}

/// The hive of the usual name in the database that `url` names: `mysql://user:password@host:3306/database`.
///
/// # Errors
/// If the address cannot be right. Whether the server is there is found out by those who ask.
pub async fn open(url: &str) -> Result<Arc<dyn HiveStore>, Failure> {
    Ok(Arc::new(MysqlHive::open(&Options::new(url))?))
}

impl MysqlHive {
    /// # Errors
    /// If the address cannot be right. Whether the server is there is found out by those who ask.
    pub fn open(options: &Options) -> Result<MysqlHive, Failure> {
        let hive = Arc::new(Hive::new(options)?);
        let no_thread = |error| Failure::retry("no-thread", format!("start a thread for the hive: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let (queue, asked) = mpsc::channel(QUEUE_MAX);
        thread::Builder::new()
            .name("hive-mysql".to_owned())
            .spawn(move || runtime.block_on(serve(hive, asked)))
            .map_err(no_thread)?;
        Ok(MysqlHive { queue })
    }
}

async fn serve(hive: Arc<Hive>, mut asked: mpsc::Receiver<Asked>) {
    let under_way = Arc::new(Semaphore::new(QUEUE_MAX));
    while let Ok(place) = Arc::clone(&under_way).acquire_owned().await {
        let Some(Asked { request, mut answer }) = asked.recv().await else { return };
        let hive = Arc::clone(&hive);
        tokio::spawn(async move {
            let _place = place;
            // Asked for by someone who has gone: its connection is closed, and what it has begun is undone. One that is still
            // being made is there for the next.
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
        let refused = self.queue.try_send(Asked { request, answer }).err().map(|error| match error {
            TrySendError::Full(_) => Failure::retry("hive-busy", "too many requests wait for the hive's thread"),
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
    Failure::retry("hive-stopped", "the hive's thread has ended; the node is stopping, or restarts the hive")
}

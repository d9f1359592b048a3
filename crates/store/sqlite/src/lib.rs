//! The store in the application's own SQLite file.
//!
//! SQLite allows one writer, so the store has one: it combines waiting requests into one transaction (`writer`). Polls
//! and loads each have their own connection and thread and never wait for each other. Opening creates nothing:
//! [`SqliteStore::migrate`] creates the tables when a source is installed.
//!
//! This crate knows no leases: it compares a request's fence with the hive's row, in the same transaction.

mod admin;
mod append;
pub mod capture;
pub mod catalogue;
pub mod codes;
mod connection;
mod definition;
mod lane;
mod load;
mod outcome;
mod park_row;
mod poll;
mod recover;
mod rewrite;
mod row;
pub mod schema;
mod signal;
mod tidy;
mod value;
mod write;
mod writer;

use std::sync::{Arc, mpsc::Receiver};

use futures_util::{FutureExt, future::BoxFuture};
use honeyflow_runtime::Failure;
use honeyflow_store::{Load, Op, Reply, Request, Statement, Store, Write, admin::Admin, statement::Expand};
use rusqlite::{Connection, InterruptHandle};
use tokio::sync::oneshot;

pub use connection::Options;
// Planted bugs. PB-2: the journal is written even under an invalid fence; PB-20: parking does not delete the rows;
// PB-30: old parked entries are removed together with old history.
pub use honeyflow_runtime::planted;
pub use load::PreparedStatement;
pub use schema::Installation;

use connection::Role;
use lane::{Lane, QueuedJob, Task};
use load::Loader;
use poll::Poller;
use writer::{Job, Writer};

/// The time limit for expanding an edge, for one page of a fan-out.
const FAN_OUT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
/// The time limit for a request of an operator.
const ADMIN_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

/// A handle of the store. It is cheap to clone; the store's threads end when the last handle is dropped.
#[derive(Clone)]
pub struct SqliteStore {
    lanes: Arc<Lanes>,
}

struct Lanes {
    writer: Lane<Job>,
    poller: Lane<Task<Poller>>,
    loader: Lane<Task<Loader>>,
    /// Interrupts the running load when the store is dropped: no caller waits for it any more.
    load_interrupt: InterruptHandle,
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.load_interrupt.interrupt();
    }
}

impl SqliteStore {
    /// Opens the connections and starts their threads; creates no tables.
    ///
    /// # Errors
    /// If the file cannot be opened, is not a database, or has tables that are newer than this binary.
    pub fn open(options: &Options) -> Result<SqliteStore, Failure> {
        let source = &options.source;
        let write = connection::open(options, Role::Writer)?;
        schema::installed(&write)?;
        let poller = Poller::new(connection::open(options, Role::Reader)?);
        let mut loader = Loader::new(connection::open(options, Role::Reader)?)?;
        let load_interrupt = loader.connection().get_interrupt_handle();
        let acknowledge_every = options.acknowledge_every;
        let lanes = Lanes {
            writer: Lane::start(format!("write {source}"), options.queue_max, move |queue| {
                Writer::new(write, queue, acknowledge_every).run();
            })?,
            poller: read_lane(format!("poll {source}"), options.queue_max, poller)?,
            loader: read_lane(format!("load {source}"), options.queue_max, loader)?,
            load_interrupt,
        };
        Ok(SqliteStore { lanes: Arc::new(lanes) })
    }

    /// Returns the content of `honeyflow_meta`; none if nothing is installed.
    pub async fn installed(&self) -> Result<Option<Installation>, Failure> {
        self.read_with(|connection| schema::installed(connection)).await
    }

    pub async fn is_installed(&self) -> Result<bool, Failure> {
        Ok(self.installed().await?.is_some())
    }

    /// Creates Honeyflow's tables, or migrates them to the newest version.
    pub async fn migrate(&self) -> Result<Installation, Failure> {
        self.write_with(schema::migrate).await
    }

    /// Checks a statement of the configuration without executing it.
    pub async fn prepare(&self, statement: Arc<Statement>) -> Result<PreparedStatement, Failure> {
        self.lanes.loader.ask(move |loader| loader.prepare(&statement)).await
    }

    /// Returns SQLite's query plan for a statement, one line per step: `check` warns about table scans.
    pub async fn explain(&self, statement: Arc<Statement>) -> Result<Vec<String>, Failure> {
        self.lanes.loader.ask(move |loader| loader.explain(&statement)).await
    }

    /// Runs `work` on the writer's connection, outside any group: for triggers and migrations. `work` begins and ends
    /// its own transactions.
    pub async fn write_with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (answer, answered) = oneshot::channel();
        let alone = Box::new(move |connection: &mut Connection| {
            let result = work(connection);
            if !connection.is_autocommit() {
                let _ = connection.execute_batch("rollback");
            }
            let _ = answer.send(result);
        });
        self.lanes.writer.send(Job::Alone(alone)).await?;
        answered.await.map_err(|_| lane::stopped())?
    }

    /// Runs `work` on the load connection, which cannot write: for the catalogue and similar reads.
    pub async fn read_with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.lanes.loader.ask(move |loader| work(loader.connection())).await
    }
}

impl Store for SqliteStore {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        let lanes = Arc::clone(&self.lanes);
        async move {
            match request {
                Request::Poll(poll) => {
                    let gathered = lanes.poller.ask(move |poller| poller.poll(&poll)).await?;
                    if !gathered.repeats.is_empty() {
                        lanes.writer.offer(Job::Forget(gathered.repeats));
                    }
                    Ok(Reply::Polled(gathered.polled))
                }
                Request::Load(load) => lanes.loader.ask(move |loader| loader.load(&load)).await,
                Request::Write(write) => lanes.write(write).await,
                Request::Append { events, idempotency } => {
                    lanes.ask_writer(|answer| Job::Append { events, idempotency, answer }).await
                }
                Request::Recover { shard } => {
                    let recovered =
                        lanes.poller.ask(move |poller| recover::recover(poller.connection(), shard)).await?;
                    Ok(Reply::Recovered(recovered))
                }
                Request::Signals(wanted) => {
                    let found = lanes.poller.ask(move |poller| signal::find(poller.connection(), &wanted)).await?;
                    Ok(Reply::Signals(found))
                }
                Request::Admin(admin) => lanes.admin(admin).await,
            }
        }
        .boxed()
    }
}

impl Lanes {
    async fn ask_writer(&self, job: impl FnOnce(writer::Answer) -> Job) -> Result<Reply, Failure> {
        let (answer, answered) = oneshot::channel();
        self.writer.send(job(answer)).await?;
        answered.await.map_err(|_| lane::stopped())?
    }

    /// Looks up the containers of a fan-out before the write begins, so that the write lock is not held during a query
    /// over the application's tables. A row that is linked in between creates its own event.
    async fn write(&self, write: Write) -> Result<Reply, Failure> {
        let mut pages = Vec::new();
        for op in &write.ops {
            let Op::FanOut(fan_out) = op else { continue };
            let load = Load {
                statement: Arc::clone(&fan_out.statement),
                keys: fan_out.causes.clone(),
                expand: Some(Expand { after: fan_out.after.clone(), limit: fan_out.page }),
                timeout: FAN_OUT_TIMEOUT,
            };
            match self.loader.ask(move |loader| loader.load(&load)).await? {
                Reply::Keys(keys) => pages.push(keys),
                other => return Err(honeyflow_store::mismatched_reply(&other)),
            }
        }
        self.ask_writer(|answer| Job::Write { write: Box::new(write), pages, answer }).await
    }

    async fn admin(&self, admin: Admin) -> Result<Reply, Failure> {
        if admin.is_read() {
            let work = move |loader: &mut Loader| loader.answer(&admin, ADMIN_TIMEOUT);
            return self.loader.ask(work).await.map(Reply::Admin);
        }
        self.ask_writer(|answer| Job::Admin { admin, answer }).await
    }
}

fn read_lane<S: Send + 'static>(name: String, queue_max: usize, mut state: S) -> Result<Lane<Task<S>>, Failure> {
    Lane::start(name, queue_max, move |queue: Receiver<QueuedJob<Task<S>>>| {
        for queued in queue {
            (queued.job)(&mut state);
        }
    })
}

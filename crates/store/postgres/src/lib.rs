//! The store on PostgreSQL: outbox, journal and parked events in the application's own database.
//!
//! The engine sends one request per shard; this store combines the waiting requests: one message answers many polls,
//! and one transaction executes many writes, each under its own fence. Nothing depends on a session, so the store works
//! through a pooler in transaction mode: statements that contain only numbers and names of the configuration are sent
//! as simple queries; statements with users' data bind it inside a transaction.

mod admin;
mod append;
mod capture;
mod catalogue;
pub mod codes;
mod collision;
mod config;
mod definition;
mod driver;
pub mod grants;
mod key_text;
mod lane;
mod literal;
mod load;
mod outcome;
mod poll;
mod readers;
mod recover;
mod rewrite;
mod row;
pub mod schema;
mod server;
mod session;
mod signal;
mod table;
mod tidy;
mod unfenced_writer;
mod uninstall;
mod value;
mod write;
mod writer;

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use honeyflow_event::Key;
use honeyflow_runtime::Failure;
use honeyflow_store::{
    Catalogue, Load, Op, Reply, Request, SignalQuery, Statement, Store, Write, admin::Admin, statement::Expand,
};
use tokio::sync::{mpsc, oneshot};

pub use config::{Options, SHARDS_DEFAULT};
pub use load::PreparedStatement;
pub use schema::Installation;

use poll::Poller;
use readers::Readers;
use session::{Session, with_timeout};
use unfenced_writer::UnfencedWriter;
use writer::Writer;

use crate::driver::Error;

/// The time limit for expanding an edge, for one page of a fan-out.
const FAN_OUT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for a request of an operator.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(30);

/// A handle of the store. It is cheap to clone; the store's tasks end when the last handle is dropped.
#[derive(Clone)]
pub struct PostgresStore {
    lanes: Arc<Lanes>,
}

struct Lanes {
    options: Arc<Options>,
    writer: mpsc::Sender<writer::Job>,
    poller: mpsc::Sender<poll::PendingPoll>,
    unfenced: mpsc::Sender<unfenced_writer::Job>,
    readers: Readers,
    shapes: load::Shapes,
}

impl PostgresStore {
    /// Checks the server and starts the tasks; creates no tables.
    ///
    /// # Errors
    /// If the server cannot be reached, if it may lose committed data, or if its tables are newer than this binary.
    pub async fn open(options: Options) -> Result<PostgresStore, Failure> {
        let options = Arc::new(options.checked()?);
        let place = "open the database";
        let mut session = Session::new(&options);
        let mut connection = session.take().await.map_err(|error| outcome::failure(&error, place))?;
        let inspected = with_timeout(options.timeout, async {
            Ok((server::inspect(&mut connection).await?, schema::read(&mut connection).await?))
        });
        let (server, installed) = inspected.await.map_err(|error| outcome::failure(&error, place))?;
        server.judge()?;
        let version = schema::refuse_newer(installed)?.map_or_else(schema::version, |installed| installed.version);
        let (writer, writes) = mpsc::channel(options.queue_max);
        let (poller, polls) = mpsc::channel(options.queue_max);
        let (unfenced, jobs) = mpsc::channel(options.queue_max);
        tokio::spawn(Writer::new(&options).run(writes));
        tokio::spawn(Poller::new(&options, version, unfenced.clone()).run(polls));
        tokio::spawn(UnfencedWriter::new(&options).run(jobs));
        let readers = Readers::new(&options);
        let shapes = load::Shapes::default();
        Ok(PostgresStore { lanes: Arc::new(Lanes { options, writer, poller, unfenced, readers, shapes }) })
    }

    /// Returns the content of `honeyflow_meta`; none if nothing is installed.
    pub async fn installed(&self) -> Result<Option<Installation>, Failure> {
        let failed = |error: Error| outcome::failure(&error, "read honeyflow_meta");
        let mut reader = self.lanes.readers.take().await?.map_err(failed)?;
        let result = with_timeout(self.lanes.options.timeout, schema::read(&mut reader.connection)).await;
        self.lanes.readers.give_back(reader, &result).await;
        schema::refuse_newer(result.map_err(failed)?)
    }

    pub async fn is_installed(&self) -> Result<bool, Failure> {
        Ok(self.installed().await?.is_some())
    }

    /// Creates Honeyflow's tables, or migrates them to the newest version.
    pub async fn migrate(&self) -> Result<Installation, Failure> {
        let mut tries = collision::tries();
        loop {
            let installed = self.installed().await?;
            match installed {
                Some(installed) if installed.version == schema::version() => return Ok(installed),
                installed => {
                    let from = installed.map_or(0, |installed| installed.version);
                    let place = format!("migrate the tables to version {}", from + 1);
                    let failed = |error: &Error| outcome::failure(error, &place);
                    let mut reader = self.lanes.readers.take().await?.map_err(|error| failed(&error))?;
                    let shards = self.lanes.options.shards;
                    let applied =
                        with_timeout(ADMIN_TIMEOUT, schema::apply(&mut reader.connection, from, shards)).await;
                    self.lanes.readers.give_back(reader, &applied).await;
                    if let Err(error) = applied
                        && !(outcome::is_collision(&error) && tries.wait().await)
                    {
                        return Err(failed(&error));
                    }
                }
            }
        }
    }

    /// Returns the tables that the search path finds without a schema name, except Honeyflow's own tables.
    pub async fn catalogue(&self) -> Result<Catalogue, Failure> {
        let failed = |error: Error| outcome::failure(&error, "read the catalogue");
        let mut reader = self.lanes.readers.take().await?.map_err(failed)?;
        let result = with_timeout(self.lanes.options.timeout, catalogue::read(&mut reader.connection)).await;
        self.lanes.readers.give_back(reader, &result).await;
        result.map_err(failed)
    }

    /// Counts the events of one priority that wait for one workflow alone.
    pub async fn count_waiting(&self, priority: u8, entity: &str, workflow: &str) -> Result<u64, Failure> {
        let failed = |error: Error| outcome::failure(&error, "count events");
        let statement = format!(
            "select count(*) from honeyflow_outbox where priority = {priority} and ready_at is null and entity = {}
               and workflow = {}",
            literal::text(entity),
            literal::text(workflow)
        );
        let mut reader = self.lanes.readers.take().await?.map_err(failed)?;
        let result = with_timeout(self.lanes.options.timeout, session::run(&mut reader.connection, statement)).await;
        self.lanes.readers.give_back(reader, &result).await;
        let answers = result.map_err(failed)?;
        let counted = answers.first().and_then(|rows| rows.first()).map(|row| row::number(row, 0));
        counted.unwrap_or(Ok(0)).map_err(failed)
    }

    /// Returns the statements that remove everything that Honeyflow created.
    pub async fn uninstall_plan(&self) -> Result<String, Failure> {
        let failed = |error: Error| outcome::failure(&error, "read the catalogue");
        let mut reader = self.lanes.readers.take().await?.map_err(failed)?;
        let result = with_timeout(self.lanes.options.timeout, uninstall::plan(&mut reader.connection)).await;
        self.lanes.readers.give_back(reader, &result).await;
        result.map_err(failed)
    }

    /// Removes everything that Honeyflow created. Refuses while a node is running, and, without `force`, while events
    /// are left.
    pub async fn uninstall(&self, force: bool) -> Result<(), Failure> {
        let failed = |error: Error| outcome::failure(&error, "uninstall the source");
        let mut reader = self.lanes.readers.take().await?.map_err(failed)?;
        let result = with_timeout(ADMIN_TIMEOUT, uninstall::uninstall(&mut reader.connection, force)).await;
        self.lanes.readers.give_back(reader, &result).await;
        result.map_err(failed)?.map_or(Ok(()), |refusal| Err(refusal.into()))
    }

    /// Removes expired rows now. The store also does this by itself every minute.
    pub async fn tidy(&self) -> Result<(), Failure> {
        send_job(&self.lanes.unfenced, |answer| unfenced_writer::Job::Tidy { answer }).await.map(drop)
    }

    /// Checks a statement of the configuration without executing it for any key.
    pub async fn prepare(&self, statement: Arc<Statement>) -> Result<PreparedStatement, Failure> {
        let timeout = self.lanes.options.timeout;
        let failed = |error: &Error| load::failure(error, &statement, timeout);
        self.lanes.shapes.forget();
        let mut reader = self.lanes.readers.take().await?.map_err(|error| failed(&error))?;
        let result = with_timeout(2 * timeout, load::prepare(&mut reader.connection, &statement, timeout)).await;
        self.lanes.readers.give_back(reader, &result).await;
        result.map_err(|error| failed(&error))?
    }
}

impl Store for PostgresStore {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        let lanes = Arc::clone(&self.lanes);
        async move {
            match request {
                Request::Poll(poll) => send_job(&lanes.poller, |answer| poll::PendingPoll { poll, answer }).await,
                Request::Load(load) => lanes.load(load).await,
                Request::Write(write) => lanes.write(write).await,
                Request::Append { events, idempotency } => {
                    send_job(&lanes.unfenced, |answer| unfenced_writer::Job::Append { events, idempotency, answer })
                        .await
                }
                Request::Recover { shard } => lanes.recover(shard).await,
                Request::Signals(wanted) => lanes.signals(&wanted).await,
                Request::Admin(admin) => lanes.admin(admin).await,
            }
        }
        .boxed()
    }
}

async fn send_job<J>(lane: &mpsc::Sender<J>, job: impl FnOnce(writer::Answer) -> J) -> Result<Reply, Failure> {
    let (answer, answered) = oneshot::channel();
    lane.send(job(answer)).await.map_err(|_| unfenced_writer::stopped())?;
    answered.await.map_err(|_| unfenced_writer::stopped())?
}

impl Lanes {
    async fn load(&self, load: Load) -> Result<Reply, Failure> {
        let failed = |error: &Error| load::failure(error, &load.statement, load.timeout);
        let mut reader = self.readers.take().await?.map_err(|error| failed(&error))?;
        // The server enforces the load's own timeout; this longer one is for a server that does not answer.
        let timeout = load.timeout + self.options.timeout;
        let result = with_timeout(timeout, load::load(&mut reader.connection, &load, &self.shapes)).await;
        self.readers.give_back(reader, &result).await;
        if result.as_ref().is_err_and(|error| outcome::state(error).is_some_and(|state| state.starts_with("42"))) {
            // The tables may have changed: the next load reads the statement's columns again.
            self.shapes.forget();
        }
        result.map_err(|error| failed(&error))?
    }

    /// Looks up the containers of a fan-out before the write begins, so that no lease stays locked during a query over
    /// the application's tables. A row that is linked in between creates its own event.
    async fn write(&self, write: Write) -> Result<Reply, Failure> {
        let mut pages: Vec<Vec<Key>> = Vec::new();
        for op in &write.ops {
            let Op::FanOut(fan_out) = op else { continue };
            let load = Load {
                statement: Arc::clone(&fan_out.statement),
                keys: fan_out.causes.clone(),
                expand: Some(Expand { after: fan_out.after.clone(), limit: fan_out.page }),
                timeout: FAN_OUT_TIMEOUT,
            };
            match self.load(load).await? {
                Reply::Keys(keys) => pages.push(keys),
                other => return Err(honeyflow_store::mismatched_reply(&other)),
            }
        }
        send_job(&self.writer, |answer| writer::Job { write, pages, answer }).await
    }

    async fn recover(&self, shard: u16) -> Result<Reply, Failure> {
        let failed = |error: &Error| outcome::failure(error, "recover");
        let mut reader = self.readers.take().await?.map_err(|error| failed(&error))?;
        let result = with_timeout(ADMIN_TIMEOUT, recover::recover(&mut reader.connection, shard)).await;
        self.readers.give_back(reader, &result).await;
        result.map(Reply::Recovered).map_err(|error| failed(&error))
    }

    async fn signals(&self, wanted: &[SignalQuery]) -> Result<Reply, Failure> {
        let failed = |error: &Error| outcome::failure(error, "look for signals");
        let mut reader = self.readers.take().await?.map_err(|error| failed(&error))?;
        let result = with_timeout(self.options.timeout, signal::find(&mut reader.connection, wanted)).await;
        self.readers.give_back(reader, &result).await;
        result.map(Reply::Signals).map_err(|error| failed(&error))
    }

    async fn admin(&self, admin: Admin) -> Result<Reply, Failure> {
        if !admin.is_read() {
            return send_job(&self.unfenced, |answer| unfenced_writer::Job::Admin { admin, answer }).await;
        }
        let failed = |error: &Error| outcome::failure(error, "read");
        let mut reader = self.readers.take().await?.map_err(|error| failed(&error))?;
        let work = async {
            let connection = &mut reader.connection;
            session::run(connection, load::begin(ADMIN_TIMEOUT)).await?;
            let reply = admin::read(connection, &admin).await?;
            session::run(connection, "commit".to_owned()).await?;
            Ok(reply)
        };
        let result = with_timeout(ADMIN_TIMEOUT + self.options.timeout, work).await;
        self.readers.give_back(reader, &result).await;
        result.map(Reply::Admin).map_err(|error| failed(&error))
    }
}

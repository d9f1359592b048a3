//! The store on PostgreSQL: outbox, journal and parked events in the application's own database.
//!
//! The engine asks shard by shard; here all that waits goes together: one message answers many polls, one transaction
//! carries many writes, each under its own fence. Nothing depends on a session, so a pooler in transaction mode may
//! stand in between: statements whose values are numbers and names of the configuration are sent as simple ones, what
//! carries users' data is bound inside a transaction.

mod admin;
mod append;
mod catalogue;
mod collision;
mod config;
mod definition;
mod door;
mod driver;
pub mod grants;
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
mod value;
mod write;
mod writer;

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use honeyflow_event::Key;
use honeyflow_runtime::Failure;
use honeyflow_store::{
    Catalogue, Load, Op, Reply, Request, Statement, Store, Wanted, Write, admin::Admin, statement::Expand,
};
use tokio::sync::{mpsc, oneshot};

pub use config::{Options, SHARDS_DEFAULT};
pub use load::Prepared;
pub use schema::Installed;

use door::Door;
use poll::Poller;
use readers::Readers;
use session::{Session, within};
use writer::Writer;

use crate::driver::Error;

/// Expanding an edge for a page of a fan-out.
const FAN_OUT_TIMEOUT: Duration = Duration::from_secs(10);
/// Questions of people.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Cheap to clone; its tasks end with the last handle.
#[derive(Clone)]
pub struct PostgresStore {
    lanes: Arc<Lanes>,
}

struct Lanes {
    options: Arc<Options>,
    writer: mpsc::Sender<writer::Job>,
    poller: mpsc::Sender<poll::Asked>,
    door: mpsc::Sender<door::Job>,
    readers: Readers,
    shapes: load::Shapes,
}

impl PostgresStore {
    /// Looks at the server and starts the tasks; makes no tables.
    ///
    /// # Errors
    /// If the server cannot be reached, may lose what it has committed, or its tables are newer than this binary.
    pub async fn open(options: Options) -> Result<PostgresStore, Failure> {
        let options = Arc::new(options.checked()?);
        let place = "open the database";
        let mut session = Session::new(&options);
        let mut connection = session.take().await.map_err(|error| outcome::failure(&error, place))?;
        let looked = within(options.timeout, async {
            Ok((server::look(&mut connection).await?, schema::read(&mut connection).await?))
        });
        let (server, installed) = looked.await.map_err(|error| outcome::failure(&error, place))?;
        server.judge()?;
        let version = schema::known(installed)?.map_or_else(schema::version, |installed| installed.version);
        let (writer, writes) = mpsc::channel(options.queue_max);
        let (poller, polls) = mpsc::channel(options.queue_max);
        let (door, jobs) = mpsc::channel(options.queue_max);
        tokio::spawn(Writer::new(&options).run(writes));
        tokio::spawn(Poller::new(&options, version, door.clone()).run(polls));
        tokio::spawn(Door::new(&options).run(jobs));
        let readers = Readers::new(&options);
        let shapes = load::Shapes::default();
        Ok(PostgresStore { lanes: Arc::new(Lanes { options, writer, poller, door, readers, shapes }) })
    }

    /// What `honeyflow_meta` says; none if nothing is installed.
    pub async fn installed(&self) -> Result<Option<Installed>, Failure> {
        let failed = |error: Error| outcome::failure(&error, "read honeyflow_meta");
        let mut reader = self.lanes.readers.take().await?.map_err(failed)?;
        let result = within(self.lanes.options.timeout, schema::read(&mut reader.connection)).await;
        self.lanes.readers.give_back(reader, &result).await;
        schema::known(result.map_err(failed)?)
    }

    pub async fn is_installed(&self) -> Result<bool, Failure> {
        Ok(self.installed().await?.is_some())
    }

    /// Makes our tables, or brings them to the newest version.
    pub async fn migrate(&self) -> Result<Installed, Failure> {
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
                    let applied = within(ADMIN_TIMEOUT, schema::apply(&mut reader.connection, from, shards)).await;
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

    /// Tables of the database that are found without naming a schema; ours are not among them.
    pub async fn catalogue(&self) -> Result<Catalogue, Failure> {
        let failed = |error: Error| outcome::failure(&error, "read the catalogue");
        let mut reader = self.lanes.readers.take().await?.map_err(failed)?;
        let result = within(self.lanes.options.timeout, catalogue::read(&mut reader.connection)).await;
        self.lanes.readers.give_back(reader, &result).await;
        result.map_err(failed)
    }

    /// Events of one priority that wait for a workflow alone.
    pub async fn waiting_of(&self, priority: u8, entity: &str, workflow: &str) -> Result<u64, Failure> {
        let failed = |error: Error| outcome::failure(&error, "count events");
        let asked = format!(
            "select count(*) from honeyflow_outbox where priority = {priority} and ready_at is null and entity = {}
               and workflow = {}",
            literal::text(entity),
            literal::text(workflow)
        );
        let mut reader = self.lanes.readers.take().await?.map_err(failed)?;
        let result = within(self.lanes.options.timeout, session::run(&mut reader.connection, asked)).await;
        self.lanes.readers.give_back(reader, &result).await;
        let answers = result.map_err(failed)?;
        let counted = answers.first().and_then(|rows| rows.first()).map(|row| row::number(row, 0));
        counted.unwrap_or(Ok(0)).map_err(failed)
    }

    /// The statements that take away what is there of ours.
    pub async fn uninstall_plan(&self) -> Result<String, Failure> {
        const OURS: &str = "select format('DROP TABLE %I;', c.relname) from pg_class c
             where c.relkind in ('r', 'p') and pg_table_is_visible(c.oid)
               and (c.relname like 'honeyflow\\_%' or c.relname like 'hive\\_%') order by 1";
        let failed = |error: Error| outcome::failure(&error, "read the catalogue");
        let mut reader = self.lanes.readers.take().await?.map_err(failed)?;
        let result = within(self.lanes.options.timeout, session::run(&mut reader.connection, OURS.to_owned())).await;
        self.lanes.readers.give_back(reader, &result).await;
        let mut lines = String::new();
        for row in result.map_err(failed)?.iter().flatten() {
            lines.push_str(row::text(row, 0).map_err(failed)?.unwrap_or_default());
            lines.push('\n');
        }
        Ok(lines)
    }

    /// Removes what has run out, as happens every minute by itself.
    pub async fn tidy(&self) -> Result<(), Failure> {
        ask(&self.lanes.door, |answer| door::Job::Tidy { answer }).await.map(drop)
    }

    /// Checks a statement of the configuration without running it over any key.
    pub async fn prepare(&self, statement: Arc<Statement>) -> Result<Prepared, Failure> {
        let timeout = self.lanes.options.timeout;
        let failed = |error: &Error| load::failure(error, &statement, timeout);
        self.lanes.shapes.forget();
        let mut reader = self.lanes.readers.take().await?.map_err(|error| failed(&error))?;
        let result = within(2 * timeout, load::prepare(&mut reader.connection, &statement, timeout)).await;
        self.lanes.readers.give_back(reader, &result).await;
        result.map_err(|error| failed(&error))?
    }
}

impl Store for PostgresStore {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        let lanes = Arc::clone(&self.lanes);
        async move {
            match request {
                Request::Poll(poll) => ask(&lanes.poller, |answer| poll::Asked { poll, answer }).await,
                Request::Load(load) => lanes.load(load).await,
                Request::Write(write) => lanes.write(write).await,
                Request::Append { events, idempotency } => {
                    ask(&lanes.door, |answer| door::Job::Append { events, idempotency, answer }).await
                }
                Request::Recover { shard } => lanes.recover(shard).await,
                Request::Signals(wanted) => lanes.signals(&wanted).await,
                Request::Admin(admin) => lanes.admin(admin).await,
            }
        }
        .boxed()
    }
}

async fn ask<J>(lane: &mpsc::Sender<J>, job: impl FnOnce(writer::Answer) -> J) -> Result<Reply, Failure> {
    let (answer, answered) = oneshot::channel();
    lane.send(job(answer)).await.map_err(|_| door::stopped())?;
    answered.await.map_err(|_| door::stopped())?
}

impl Lanes {
    async fn load(&self, load: Load) -> Result<Reply, Failure> {
        let failed = |error: &Error| load::failure(error, &load.statement, load.timeout);
        let mut reader = self.readers.take().await?.map_err(|error| failed(&error))?;
        // The server ends it in time; this is for a server that says nothing.
        let timeout = load.timeout + self.options.timeout;
        let result = within(timeout, load::load(&mut reader.connection, &load, &self.shapes)).await;
        self.readers.give_back(reader, &result).await;
        if result.as_ref().is_err_and(|error| outcome::state(error).is_some_and(|state| state.starts_with("42"))) {
            // Tables may have changed under the statement: what it gives is looked at anew.
            self.shapes.forget();
        }
        result.map_err(|error| failed(&error))?
    }

    /// Containers of a fan-out are looked up before the write begins, so that no lease is locked for a query over the
    /// application's tables. What is linked in between has an event of its own.
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
                other => return Err(honeyflow_store::misplaced(&other)),
            }
        }
        ask(&self.writer, |answer| writer::Job { write, pages, answer }).await
    }

    async fn recover(&self, shard: u16) -> Result<Reply, Failure> {
        let failed = |error: &Error| outcome::failure(error, "recover");
        let mut reader = self.readers.take().await?.map_err(|error| failed(&error))?;
        let result = within(ADMIN_TIMEOUT, recover::recover(&mut reader.connection, shard)).await;
        self.readers.give_back(reader, &result).await;
        result.map(Reply::Recovered).map_err(|error| failed(&error))
    }

    async fn signals(&self, wanted: &[Wanted]) -> Result<Reply, Failure> {
        let failed = |error: &Error| outcome::failure(error, "look for signals");
        let mut reader = self.readers.take().await?.map_err(|error| failed(&error))?;
        let result = within(self.options.timeout, signal::find(&mut reader.connection, wanted)).await;
        self.readers.give_back(reader, &result).await;
        result.map(Reply::Signals).map_err(|error| failed(&error))
    }

    async fn admin(&self, admin: Admin) -> Result<Reply, Failure> {
        if !admin.is_read() {
            return ask(&self.door, |answer| door::Job::Admin { admin, answer }).await;
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
        let result = within(ADMIN_TIMEOUT + self.options.timeout, work).await;
        self.readers.give_back(reader, &result).await;
        result.map(Reply::Admin).map_err(|error| failed(&error))
    }
}

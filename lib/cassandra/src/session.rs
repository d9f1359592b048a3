//! A cluster to work with: every request goes to a server that holds its data, is healthy and has room, within one
//! deadline, and again elsewhere where that is safe.

mod cache;
mod pages;
mod standing;

use std::sync::Arc;
use std::time::Duration;

use honeyflow_pool::{Loan, Pool, Provider, Server, ServerId, SettingsError, Want};
use tokio::time::Instant;

use crate::batch::Batch;
use crate::cluster::Cluster;
use crate::connection::{Connection, Settings};
use crate::options::Options;
use crate::statement::{Execution, Statement, token};
use crate::value::{BindAll, bind_all};
use crate::wire::{Answer, Bound, Prepared, Response, Version};
pub(crate) use cache::Cache;
pub use pages::Pages;
use standing::Standing;

/// What became of a request that did not succeed: where, after how long, whether it may have been executed.
pub type Error = honeyflow_pool::Error<Cluster>;

/// ```no_run
/// use std::time::Duration;
/// use honeyflow_cassandra::{Consistency, Options, Session, connection};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let servers = honeyflow_pool::Settings { servers: vec!["127.0.0.1".into()], ..Default::default() };
/// let session = Session::open(connection::Settings::default(), servers)?;
/// let put = session.prepare("INSERT INTO shop.book (id, title) VALUES (?, ?)").await?;
/// let how = Options::within(Duration::from_secs(2)).consistency(Consistency::LocalQuorum).timestamp(17).idempotent();
/// session.execute(&put, (1_i32, "Bees"), &how).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Session {
    pool: Pool<Cluster>,
    standing: Arc<Standing>,
    token_aware: bool,
}

const AGREEMENT_TIME: Duration = Duration::from_secs(10);
const AGREEMENT_LOOK: Duration = Duration::from_millis(100);

impl Session {
    /// Starts the pool; connections are opened in the background.
    ///
    /// # Errors
    /// All that is wrong with the settings of the pool.
    pub fn open(settings: Settings, servers: impl Provider) -> Result<Self, SettingsError> {
        Ok(Self::of(Pool::start(Cluster::new(settings), servers)?))
    }

    /// On a pool that is there already: one with a clock of its own, or over other streams than sockets.
    pub fn of(pool: Pool<Cluster>) -> Self {
        Self { standing: Arc::new(Standing::new(&pool)), pool, token_aware: true }
    }

    /// The same with everything from one place: keys of connections stand in the table `cql` below the pool's.
    ///
    /// ```no_run
    /// use honeyflow_cassandra::Session;
    /// use honeyflow_pool::Section;
    ///
    /// # fn example() -> Result<(), honeyflow_pool::SettingsError> {
    /// let text = r#"
    /// [cassandra]
    /// servers = ["10.0.0.1", "10.0.0.2"]
    /// [cassandra.cql]
    /// user = "bee"
    /// password = "env:CASSANDRA_PASSWORD"
    /// "#;
    /// let session = Session::configured(Section::from_toml(text, "cassandra")?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn configured(settings: impl Provider) -> Result<Self, SettingsError> {
        Self::open(Settings::default(), settings)
    }

    /// Whether requests go to those who hold the data; on unless said otherwise.
    #[must_use]
    pub fn token_aware(self, token_aware: bool) -> Self {
        Self { token_aware, ..self }
    }

    pub fn pool(&self) -> &Pool<Cluster> {
        &self.pool
    }

    /// A statement without values.
    pub async fn query(&self, text: &str, how: &Options) -> Result<Response, Error> {
        let by = Instant::now() + how.within;
        let conditional = crate::conditional::is_conditional(text);
        let want = self.among(want(how, conditional), None, version_for(how.keyspace.as_deref()), false);
        let response = self.pool.with(want, |mut loan: Loan<Cluster>| async move {
            let answer = Connection::in_with(&mut loan).query_by(text, how, by).await;
            answer.map(|response| (response, loan.server().clone()))
        });
        let (response, server) = response.await?;
        if matches!(response.answer, Answer::Schema(_)) {
            self.await_agreement(&server).await;
        }
        Ok(response)
    }

    /// The statement, prepared at one server at least. The same text gives the same statement.
    pub async fn prepare(&self, text: &str) -> Result<Statement, Error> {
        self.prepare_statement(None, text).await
    }

    /// The same, where names without a keyspace mean this one. Servers that speak version 4 only cannot be told: where there
    /// are no others, it is an error, unless connections are in that keyspace already.
    pub async fn prepare_in(&self, keyspace: &str, text: &str) -> Result<Statement, Error> {
        self.prepare_statement(Some(keyspace), text).await
    }

    async fn prepare_statement(&self, keyspace: Option<&str>, text: &str) -> Result<Statement, Error> {
        let now = Instant::now();
        let statement = self.pool.connector().statements().get(keyspace, text, now);
        if statement.anywhere().is_none() {
            let how = Options::default().idempotent();
            let by = now + how.within;
            let statement = &statement;
            let want = self.among(want(&how, false), None, version_for(keyspace), false);
            let prepared = self.pool.with(want, |mut loan: Loan<Cluster>| async move {
                Connection::in_with(&mut loan).prepare(statement, by).await
            });
            prepared.await?;
        }
        Ok(statement)
    }

    pub async fn execute(
        &self,
        statement: &Statement,
        values: impl BindAll + Send + Sync,
        how: &Options,
    ) -> Result<Response, Error> {
        self.execute_dyn(statement, &values, how).await
    }

    pub(crate) async fn execute_dyn(
        &self,
        statement: &Statement,
        values: &(dyn BindAll + Send + Sync),
        how: &Options,
    ) -> Result<Response, Error> {
        let now = Instant::now();
        let by = now + how.within;
        statement.usage().count(now);
        let laid = self.lay(statement, values);
        let replicas = laid.as_ref().and_then(|(prepared, bound)| self.replicas(prepared, bound));
        let conditional = statement.is_conditional();
        let version = how.version.or_else(|| version_for(statement.keyspace()));
        let want = self.among(want(how, conditional), replicas, version, conditional);
        let laid = laid.map(|(prepared, bound)| (Arc::clone(&prepared.parameters), bound));
        let what = &Execution { statement, values, laid };
        let response = self.pool.with(want, |mut loan: Loan<Cluster>| async move {
            Connection::in_with(&mut loan).execute_by(what, how, by).await
        });
        response.await
    }

    pub async fn batch(&self, batch: &Batch, how: &Options) -> Result<Response, Error> {
        let by = Instant::now() + how.within;
        let conditional = batch.is_conditional();
        // Where its first statement goes.
        let replicas = batch.parts().next().and_then(|part| {
            let (prepared, bound) = self.lay(part.statement.as_ref()?, &*part.values)?;
            self.replicas(&prepared, &bound)
        });
        let named = batch.parts().filter_map(|part| part.statement.as_ref()?.keyspace());
        let version = version_for(how.keyspace.as_deref().or(named.last()));
        let want = self.among(want(how, conditional), replicas, version, conditional);
        let response = self.pool.with(want, |mut loan: Loan<Cluster>| async move {
            Connection::in_with(&mut loan).batch_by(batch, how, by).await
        });
        response.await
    }

    /// All rows, page by page, one page ahead.
    pub fn pages(&self, statement: &Statement, values: impl BindAll + Send + Sync + 'static, how: &Options) -> Pages {
        Pages::new(self.clone(), statement.clone(), Arc::new(values), how.clone())
    }

    /// Those that hold the row that these values name, the first replica first: where an execution would go. `None` if
    /// that cannot be told.
    pub fn holders(&self, statement: &Statement, values: impl BindAll + Send + Sync) -> Option<Arc<[ServerId]>> {
        let (prepared, bound) = self.lay(statement, &values)?;
        self.replicas(&prepared, &bound)
    }

    /// Of a conditional statement one replica alone, and the same for everybody: two that try for a row at two servers
    /// hinder each other. The next in order while that one is not up.
    fn in_turn(&self, replicas: Arc<[ServerId]>, conditional: bool) -> Arc<[ServerId]> {
        let first = if conditional { self.standing.first(&self.pool, &replicas) } else { None };
        first.cloned().map_or(replicas, |first| [first].into())
    }

    /// Those that hold the data, as far as they speak the version, if there is one that they must speak.
    fn among(
        &self,
        want: Want,
        replicas: Option<Arc<[ServerId]>>,
        version: Option<Version>,
        conditional: bool,
    ) -> Want {
        let mut near = replicas.unwrap_or_default();
        if let Some(speakers) = version.and_then(|version| self.pool.connector().speakers(version)) {
            let both: Vec<ServerId> = near.iter().filter(|replica| speakers.contains(replica)).cloned().collect();
            near = if both.is_empty() { speakers } else { both }.into();
        }
        // Last, so that the one is of those that can.
        near = self.in_turn(near, conditional);
        if near.is_empty() { want } else { want.near(near) }
    }

    /// The values, bound for whoever knows the statement: where they belong is in them.
    fn lay(&self, statement: &Statement, values: &(dyn BindAll + Send + Sync)) -> Option<(Arc<Prepared>, Bound)> {
        let prepared = statement.anywhere().filter(|prepared| self.token_aware && !prepared.key.is_empty())?;
        let bound = bind_all(values, &prepared.parameters).ok()?;
        Some((prepared, bound))
    }

    fn replicas(&self, prepared: &Prepared, bound: &Bound) -> Option<Arc<[ServerId]>> {
        let keyspace = &prepared.parameters.first()?.keyspace;
        let token = token(prepared, bound)?;
        self.pool.connector().map().replicas(keyspace, token)
    }

    /// After a change of our own: until all servers have the same schema, or long enough. Asked is the one that made the
    /// change: another may not have heard of it, and find everybody of one mind.
    async fn await_agreement(&self, changed: &Server) {
        let by = Instant::now() + AGREEMENT_TIME;
        let how = Options::default().idempotent();
        while Instant::now() < by {
            let agreed = self.pool.with(want(&how, false).on(changed), |mut loan: Loan<Cluster>| async move {
                let (on, dialled) = (Connection::in_with(&mut loan), loan.server().address);
                crate::topology::Topology::ask(&on, dialled, by).await.map(|topology| topology.schemas.len() <= 1)
            });
            if matches!(agreed.await, Ok(true)) {
                return;
            }
            tokio::time::sleep(AGREEMENT_LOOK).await;
        }
        tracing::warn!("the servers did not agree on the schema within {AGREEMENT_TIME:?}");
    }
}

/// Only version 5 can name a keyspace.
fn version_for(keyspace: Option<&str>) -> Option<Version> {
    keyspace.map(|_| Version::V5)
}

/// Conditional statements are never idempotent, whatever was said: they may not run twice, nor at two servers.
fn want(how: &Options, conditional: bool) -> Want {
    let want = Want::within(how.within);
    if how.idempotent && !conditional { want.idempotent() } else { want }
}

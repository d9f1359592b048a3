//! A session with a cluster: every request goes to a server that holds its data, is healthy and has room, within one
//! deadline. It is retried at another server if that is safe.

mod cache;
mod pages;
mod up_servers;

use std::sync::Arc;
use std::time::Duration;

use honeyflow_pool::{Loan, Pool, Provider, RequestOptions, Server, ServerId, SettingsError};
use tokio::time::Instant;

use crate::batch::Batch;
use crate::cluster::Cluster;
use crate::connection::{Connection, Settings};
use crate::options::Options;
use crate::statement::{Execution, Statement, token};
use crate::value::{BindAll, bind_all};
use crate::wire::{Answer, BoundValues, PreparedStatement, Response, Version};
pub(crate) use cache::Cache;
pub use pages::Pages;
use up_servers::UpServers;

/// The error of a request: at which server, after how long, and whether it may have been executed.
pub type Error = honeyflow_pool::Error<Cluster>;

/// A session with a cluster.
///
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
    up_servers: Arc<UpServers>,
    token_aware: bool,
}

const AGREEMENT_TIME: Duration = Duration::from_secs(10);
const AGREEMENT_INTERVAL: Duration = Duration::from_millis(100);

impl Session {
    /// Starts the pool; connections are opened in the background.
    ///
    /// # Errors
    /// Returns all wrong settings of the pool.
    pub fn open(settings: Settings, servers: impl Provider) -> Result<Self, SettingsError> {
        Ok(Self::from_pool(Pool::start(Cluster::new(settings), servers)?))
    }

    #[deprecated(since = "0.1.0", note = "renamed to from_pool")]
    pub fn of(pool: Pool<Cluster>) -> Self {
        Self::from_pool(pool)
    }

    /// Creates a session on an existing pool, such as one with another clock or over other streams than sockets.
    pub fn from_pool(pool: Pool<Cluster>) -> Self {
        Self { up_servers: Arc::new(UpServers::new(&pool)), pool, token_aware: true }
    }

    /// Starts the pool with all settings from one place: the keys of connections are in the table `cql` of the pool's.
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
    /// Returns all wrong settings.
    pub fn configured(settings: impl Provider) -> Result<Self, SettingsError> {
        Self::open(Settings::default(), settings)
    }

    /// Sets whether requests go to servers that hold their data; the default is true.
    #[must_use]
    pub fn token_aware(self, token_aware: bool) -> Self {
        Self { token_aware, ..self }
    }

    pub fn pool(&self) -> &Pool<Cluster> {
        &self.pool
    }

    /// Sends a statement without values.
    pub async fn query(&self, text: &str, how: &Options) -> Result<Response, Error> {
        let by = Instant::now() + how.within;
        let conditional = crate::conditional::is_conditional(text);
        let want = self.routed(want(how, conditional), None, version_for(how.keyspace.as_deref()), false);
        let response = self.pool.with(want, |mut loan: Loan<Cluster>| async move {
            let answer = Connection::of_timed_loan(&mut loan).query_by(text, how, by).await;
            answer.map(|response| (response, loan.server().clone()))
        });
        let (response, server) = response.await?;
        if matches!(response.answer, Answer::Schema(_)) {
            self.await_agreement(&server).await;
        }
        Ok(response)
    }

    /// Prepares a statement at one server at least. The same text gives the same statement.
    pub async fn prepare(&self, text: &str) -> Result<Statement, Error> {
        self.prepare_statement(None, text).await
    }

    /// Prepares a statement whose names without a keyspace refer to this one. Version 4 of the protocol cannot carry
    /// it: if all servers speak version 4 only, it is an error, unless their connections are in that keyspace already.
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
            let want = self.routed(want(&how, false), None, version_for(keyspace), false);
            let prepared = self.pool.with(want, |mut loan: Loan<Cluster>| async move {
                Connection::of_timed_loan(&mut loan).prepare(statement, by).await
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
        let laid = self.bind_for_routing(statement, values);
        let replicas = laid.as_ref().and_then(|(prepared, bound)| self.replicas(prepared, bound));
        let conditional = statement.is_conditional();
        let version = how.version.or_else(|| version_for(statement.keyspace()));
        let want = self.routed(want(how, conditional), replicas, version, conditional);
        let laid = laid.map(|(prepared, bound)| (Arc::clone(&prepared.parameters), bound));
        let what = &Execution { statement, values, bound_before: laid };
        let response = self.pool.with(want, |mut loan: Loan<Cluster>| async move {
            Connection::of_timed_loan(&mut loan).execute_by(what, how, by).await
        });
        response.await
    }

    pub async fn batch(&self, batch: &Batch, how: &Options) -> Result<Response, Error> {
        let by = Instant::now() + how.within;
        let conditional = batch.is_conditional();
        // The batch goes where its first statement belongs.
        let replicas = batch.parts().next().and_then(|part| {
            let (prepared, bound) = self.bind_for_routing(part.statement.as_ref()?, &*part.values)?;
            self.replicas(&prepared, &bound)
        });
        let named = batch.parts().filter_map(|part| part.statement.as_ref()?.keyspace());
        let version = version_for(how.keyspace.as_deref().or(named.last()));
        let want = self.routed(want(how, conditional), replicas, version, conditional);
        let response = self.pool.with(want, |mut loan: Loan<Cluster>| async move {
            Connection::of_timed_loan(&mut loan).batch_by(batch, how, by).await
        });
        response.await
    }

    /// Returns all rows, page by page; the next page is fetched ahead.
    pub fn pages(&self, statement: &Statement, values: impl BindAll + Send + Sync + 'static, how: &Options) -> Pages {
        Pages::new(self.clone(), statement.clone(), Arc::new(values), how.clone())
    }

    /// Returns the servers that hold the row of these values, the first replica first: an execution would go there.
    /// `None` if that is not known.
    pub fn holders(&self, statement: &Statement, values: impl BindAll + Send + Sync) -> Option<Arc<[ServerId]>> {
        let (prepared, bound) = self.bind_for_routing(statement, &values)?;
        self.replicas(&prepared, &bound)
    }

    /// For a conditional statement, returns one replica alone, the first one that is up. All clients choose the same
    /// one: conditional statements for one row at two servers hinder each other.
    fn first_up_if_conditional(&self, replicas: Arc<[ServerId]>, conditional: bool) -> Arc<[ServerId]> {
        let first = if conditional { self.up_servers.first(&self.pool, &replicas) } else { None };
        first.cloned().map_or(replicas, |first| [first].into())
    }

    /// Adds the preferred servers to `want`: the replicas, restricted to servers that speak `version` if there is one.
    fn routed(
        &self,
        want: RequestOptions,
        replicas: Option<Arc<[ServerId]>>,
        version: Option<Version>,
        conditional: bool,
    ) -> RequestOptions {
        let mut near = replicas.unwrap_or_default();
        if let Some(speakers) = version.and_then(|version| self.pool.connector().speakers(version)) {
            let both: Vec<ServerId> = near.iter().filter(|replica| speakers.contains(replica)).cloned().collect();
            near = if both.is_empty() { speakers } else { both }.into();
        }
        // This comes last, so that the chosen replica speaks the version.
        near = self.first_up_if_conditional(near, conditional);
        if near.is_empty() { want } else { want.near(near) }
    }

    /// Binds the values with the parameters of any server that has prepared the statement, to find the replicas.
    fn bind_for_routing(
        &self,
        statement: &Statement,
        values: &(dyn BindAll + Send + Sync),
    ) -> Option<(Arc<PreparedStatement>, BoundValues)> {
        let prepared = statement.anywhere().filter(|prepared| self.token_aware && !prepared.key.is_empty())?;
        let bound = bind_all(values, &prepared.parameters).ok()?;
        Some((prepared, bound))
    }

    fn replicas(&self, prepared: &PreparedStatement, bound: &BoundValues) -> Option<Arc<[ServerId]>> {
        let keyspace = &prepared.parameters.first()?.keyspace;
        let token = token(prepared, bound)?;
        self.pool.connector().map().replicas(keyspace, token)
    }

    /// Waits after a schema change until all servers have the same schema, or until a time limit. It asks the server
    /// that made the change: another one may not know of it yet, and would see the servers agree.
    async fn await_agreement(&self, changed: &Server) {
        let by = Instant::now() + AGREEMENT_TIME;
        let how = Options::default().idempotent();
        while Instant::now() < by {
            let agreed = self.pool.with(want(&how, false).on(changed), |mut loan: Loan<Cluster>| async move {
                let (on, dialled) = (Connection::of_timed_loan(&mut loan), loan.server().address);
                crate::topology::Topology::ask(&on, dialled, by).await.map(|topology| topology.schemas.len() <= 1)
            });
            if matches!(agreed.await, Ok(true)) {
                return;
            }
            tokio::time::sleep(AGREEMENT_INTERVAL).await;
        }
        tracing::warn!("the servers did not agree on the schema within {AGREEMENT_TIME:?}");
    }
}

/// The version that a request with a keyspace needs: only version 5 can carry one.
fn version_for(keyspace: Option<&str>) -> Option<Version> {
    keyspace.map(|_| Version::V5)
}

/// Conditional statements are never idempotent, even if the caller says so: they must not run twice or at two servers.
fn want(how: &Options, conditional: bool) -> RequestOptions {
    let want = RequestOptions::within(how.within);
    if how.idempotent && !conditional { want.idempotent() } else { want }
}

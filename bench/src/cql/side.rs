//! Both drivers as the bench uses them: write a number under a key, and read it again.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use honeyflow_cassandra::{
    Consistency, Options, Session, Statement,
    connection::{Password, Secret, Settings, Versions},
    wire::Version,
};
use honeyflow_pool::settings::Translate;
use scylla::{
    client::{execution_profile::ExecutionProfile, session::Session as Peer, session_builder::SessionBuilder},
    policies::load_balancing::{DefaultPolicy, LatencyAwarenessBuilder},
    statement::{Consistency as PeerConsistency, prepared::PreparedStatement},
};

use crate::Result;

pub const PUT: &str = "INSERT INTO chaos.t (id, n) VALUES (?, ?) USING TIMESTAMP ?";
pub const GET: &str = "SELECT n FROM chaos.t WHERE id = ?";
pub const WITHIN: Duration = Duration::from_secs(10);

/// How to reach the servers of a cluster.
#[derive(Clone, Default)]
pub struct ClusterAccess {
    pub servers: Vec<SocketAddr>,
    pub login: Option<(String, String)>,
    /// Maps the addresses that the servers report to the addresses where clients reach them.
    pub translations: Vec<(SocketAddr, SocketAddr)>,
    /// The servers have no schema: do not fetch it.
    pub bare: bool,
}

/// One driver under test.
pub trait Side: Send + Sync + 'static {
    fn put(&self, id: i32, n: i64) -> impl Future<Output = Result<()>> + Send;
    fn get(&self, id: i32) -> impl Future<Output = Result<()>> + Send;
}

pub struct Ours {
    pub session: Session,
    put: Statement,
    get: Statement,
    options: Options,
}

impl Ours {
    /// The only version that the peer supports.
    pub const VERSIONS: Versions = Versions { lowest: Version::V4, highest: Version::V4 };

    pub fn session(access: &ClusterAccess) -> Result<Session> {
        Self::session_with(access, |_| {})
    }

    fn session_with(access: &ClusterAccess, change: impl FnOnce(&mut honeyflow_pool::Settings)) -> Result<Session> {
        let login = access.login.clone().map(|(user, password)| -> Arc<dyn honeyflow_cassandra::connection::Login> {
            Arc::new(Password { user, password: Secret::Plain(password) })
        });
        let settings = Settings { versions: Self::VERSIONS, login, ..Settings::default() };
        let mut servers = honeyflow_pool::Settings {
            servers: access.servers.iter().map(ToString::to_string).collect(),
            translate: Translate { table: access.translations.iter().copied().collect(), hook: None },
            ..honeyflow_pool::Settings::default()
        };
        change(&mut servers);
        Ok(Session::open(settings, servers)?)
    }

    pub async fn open(access: &ClusterAccess) -> Result<Ours> {
        Self::open_with(access, |_| {}).await
    }

    pub async fn open_with(access: &ClusterAccess, change: impl FnOnce(&mut honeyflow_pool::Settings)) -> Result<Ours> {
        let session = Self::session_with(access, change)?;
        let (put, get) = (session.prepare(PUT).await?, session.prepare(GET).await?);
        let options = Options::within(WITHIN).consistency(Consistency::LocalQuorum).idempotent();
        Ok(Ours { session, put, get, options })
    }
}

impl Side for Ours {
    async fn put(&self, id: i32, n: i64) -> Result<()> {
        self.session.execute(&self.put, (id, n, n), &self.options).await?;
        Ok(())
    }

    async fn get(&self, id: i32) -> Result<()> {
        let rows = self.session.execute(&self.get, (id,), &self.options).await?.into_rows();
        std::hint::black_box(rows.first::<(i64,)>()?);
        Ok(())
    }
}

pub struct Theirs {
    pub session: Peer,
    put: PreparedStatement,
    get: PreparedStatement,
}

impl Theirs {
    /// Opens a token-aware session; with `aware`, it also prefers servers with a low latency.
    pub async fn session(access: &ClusterAccess, aware: bool) -> Result<Peer> {
        let policy = DefaultPolicy::builder().token_aware(true);
        let policy = if aware { policy.latency_awareness(LatencyAwarenessBuilder::new()) } else { policy };
        let profile = ExecutionProfile::builder()
            .load_balancing_policy(policy.build())
            .consistency(PeerConsistency::LocalQuorum)
            .request_timeout(Some(WITHIN));
        let builder = SessionBuilder::new()
            .known_nodes_addr(access.servers.iter().copied())
            .fetch_schema_metadata(!access.bare)
            .default_execution_profile_handle(profile.build().into_handle());
        let builder = match &access.login {
            Some((user, password)) => builder.user(user, password),
            None => builder,
        };
        let builder = if access.translations.is_empty() {
            builder
        } else {
            let table: std::collections::HashMap<SocketAddr, SocketAddr> =
                access.translations.iter().copied().collect();
            builder.address_translator(Arc::new(table))
        };
        Ok(builder.build().await?)
    }

    pub async fn open(access: &ClusterAccess, aware: bool) -> Result<Theirs> {
        let session = Self::session(access, aware).await?;
        let (mut put, mut get) = (session.prepare(PUT).await?, session.prepare(GET).await?);
        put.set_is_idempotent(true);
        get.set_is_idempotent(true);
        Ok(Theirs { session, put, get })
    }
}

impl Side for Theirs {
    async fn put(&self, id: i32, n: i64) -> Result<()> {
        self.session.execute_unpaged(&self.put, (id, n, n)).await?;
        Ok(())
    }

    async fn get(&self, id: i32) -> Result<()> {
        let rows = self.session.execute_unpaged(&self.get, (id,)).await?.into_rows_result()?;
        std::hint::black_box(rows.maybe_first_row::<(i64,)>()?);
        Ok(())
    }
}

/// Creates the table if it does not exist.
pub async fn create_table(session: &Session, replicas: u32) -> Result<()> {
    let replication = format!("{{'class': 'NetworkTopologyStrategy', 'datacenter1': {replicas}}}");
    for statement in [
        format!("CREATE KEYSPACE IF NOT EXISTS chaos WITH replication = {replication}"),
        "CREATE TABLE IF NOT EXISTS chaos.t (id int PRIMARY KEY, n bigint)".to_owned(),
    ] {
        session.query(&statement, &Options::within(Duration::from_secs(60)).idempotent()).await?;
    }
    Ok(())
}

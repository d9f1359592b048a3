//! Both drivers as the bench sees them: a number written under a key, and read again.

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

/// Where the servers are, and how to be let in.
#[derive(Clone, Default)]
pub struct Place {
    pub servers: Vec<SocketAddr>,
    pub login: Option<(String, String)>,
    /// From what servers say of themselves to where they are reached.
    pub stand_ins: Vec<(SocketAddr, SocketAddr)>,
    /// Without the schema: of servers that have none to show.
    pub bare: bool,
}

pub trait Side: Send + Sync + 'static {
    fn put(&self, id: i32, n: i64) -> impl Future<Output = Result<()>> + Send;
    fn get(&self, id: i32) -> impl Future<Output = Result<()>> + Send;
}

pub struct Ours {
    pub session: Session,
    put: Statement,
    get: Statement,
    how: Options,
}

impl Ours {
    /// The peer knows no other.
    pub const VERSIONS: Versions = Versions { lowest: Version::V4, highest: Version::V4 };

    pub fn session(place: &Place) -> Result<Session> {
        Self::session_with(place, |_| {})
    }

    fn session_with(place: &Place, change: impl FnOnce(&mut honeyflow_pool::Settings)) -> Result<Session> {
        let login = place.login.clone().map(|(user, password)| -> Arc<dyn honeyflow_cassandra::connection::Login> {
            Arc::new(Password { user, password: Secret::Plain(password) })
        });
        let settings = Settings { versions: Self::VERSIONS, login, ..Settings::default() };
        let mut servers = honeyflow_pool::Settings {
            servers: place.servers.iter().map(ToString::to_string).collect(),
            translate: Translate { table: place.stand_ins.iter().copied().collect(), hook: None },
            ..honeyflow_pool::Settings::default()
        };
        change(&mut servers);
        Ok(Session::open(settings, servers)?)
    }

    pub async fn open(place: &Place) -> Result<Ours> {
        Self::open_with(place, |_| {}).await
    }

    pub async fn open_with(place: &Place, change: impl FnOnce(&mut honeyflow_pool::Settings)) -> Result<Ours> {
        let session = Self::session_with(place, change)?;
        let (put, get) = (session.prepare(PUT).await?, session.prepare(GET).await?);
        let how = Options::within(WITHIN).consistency(Consistency::LocalQuorum).idempotent();
        Ok(Ours { session, put, get, how })
    }
}

impl Side for Ours {
    async fn put(&self, id: i32, n: i64) -> Result<()> {
        self.session.execute(&self.put, (id, n, n), &self.how).await?;
        Ok(())
    }

    async fn get(&self, id: i32) -> Result<()> {
        let rows = self.session.execute(&self.get, (id,), &self.how).await?.into_rows();
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
    /// Token-aware, as it comes; with `aware`, looking at latencies as well.
    pub async fn session(place: &Place, aware: bool) -> Result<Peer> {
        let policy = DefaultPolicy::builder().token_aware(true);
        let policy = if aware { policy.latency_awareness(LatencyAwarenessBuilder::new()) } else { policy };
        let profile = ExecutionProfile::builder()
            .load_balancing_policy(policy.build())
            .consistency(PeerConsistency::LocalQuorum)
            .request_timeout(Some(WITHIN));
        let builder = SessionBuilder::new()
            .known_nodes_addr(place.servers.iter().copied())
            .fetch_schema_metadata(!place.bare)
            .default_execution_profile_handle(profile.build().into_handle());
        let builder = match &place.login {
            Some((user, password)) => builder.user(user, password),
            None => builder,
        };
        let builder = if place.stand_ins.is_empty() {
            builder
        } else {
            let table: std::collections::HashMap<SocketAddr, SocketAddr> = place.stand_ins.iter().copied().collect();
            builder.address_translator(Arc::new(table))
        };
        Ok(builder.build().await?)
    }

    pub async fn open(place: &Place, aware: bool) -> Result<Theirs> {
        let session = Self::session(place, aware).await?;
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

/// The table, wherever it is not there yet.
pub async fn furnish(session: &Session, replicas: u32) -> Result<()> {
    let replication = format!("{{'class': 'NetworkTopologyStrategy', 'datacenter1': {replicas}}}");
    for statement in [
        format!("CREATE KEYSPACE IF NOT EXISTS chaos WITH replication = {replication}"),
        "CREATE TABLE IF NOT EXISTS chaos.t (id int PRIMARY KEY, n bigint)".to_owned(),
    ] {
        session.query(&statement, &Options::within(Duration::from_secs(60)).idempotent()).await?;
    }
    Ok(())
}

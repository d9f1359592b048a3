//! Helpers that reach the server directly, without the hive.

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use honeyflow_event::Epoch;
use honeyflow_hive::{
    HiveStore, NodeId, Reply, Request,
    contract::{Claim, Head, Mint, Refusal, State, Status, View},
};
use honeyflow_hive_redis::{Options, RedisHive};
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, aio::MultiplexedConnection};
use uuid::Uuid;

/// Opens a separate connection.
pub async fn connection(url: &str) -> MultiplexedConnection {
    let patient = Some(Duration::from_secs(30));
    let config = AsyncConnectionConfig::new().set_connection_timeout(patient).set_response_timeout(patient);
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&config).await.expect("the server answers")
}

pub async fn ask<T: FromRedisValue>(connection: &MultiplexedConnection, command: &Cmd) -> T {
    command.query_async(&mut connection.clone()).await.expect("answered")
}

/// Sends one command, given as its words.
pub async fn send_command(url: &str, words: &[&str]) -> redis::Value {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    ask(&connection(url).await, &command).await
}

/// A free port for a server's second listener, below the range of other test servers and outgoing connections.
pub fn free_port() -> u16 {
    static SEARCHES: AtomicU32 = AtomicU32::new(0);
    let search = SEARCHES.fetch_add(1, Ordering::Relaxed);
    let start = std::process::id().wrapping_mul(31).wrapping_add(search.wrapping_mul(97)) % 5_000;
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let all = (0..5_000).filter_map(|step| u16::try_from(15_000 + (start + step) % 5_000).ok());
    all.into_iter().find(is_free).expect("a free port")
}

/// A hive name that no other test of this run uses.
pub fn fresh_name(what: &str) -> String {
    format!("{what}-{}", Uuid::new_v4())
}

pub fn options(url: &str, hive: &str) -> Options {
    Options { hive: hive.into(), ..Options::new(url) }
}

pub fn open(url: &str, hive: &str) -> RedisHive {
    RedisHive::open(&options(url, hive)).unwrap()
}

/// A member of a hive that sends one request at a time.
pub struct Node {
    pub hive: RedisHive,
    pub id: NodeId,
}

/// A time to live so long that no node expires during a test, even on a busy machine.
pub const TTL_MS: u64 = 60_000;

pub fn join(id: NodeId) -> Request {
    Request::Join { node: id, name: "node".into(), heartbeat_ms: 2_000, ttl_ms: TTL_MS, meta: "{}".into() }
}

impl Node {
    pub async fn join(hive: RedisHive) -> Node {
        let node = Node { hive, id: NodeId(Uuid::new_v4()) };
        assert!(matches!(node.call(join(node.id)).await, Reply::Joined(_)));
        node.beat().await;
        node
    }

    pub async fn call(&self, request: Request) -> Reply {
        let asked = format!("{request:?}");
        self.hive.call(request).await.unwrap_or_else(|failure| panic!("{asked}: {failure:?}"))
    }

    pub fn beating(&self, read_only: bool) -> Request {
        let state = State { ready: true, eligible: true, ..State::default() };
        Request::Beat { node: self.id, read_only, state }
    }

    pub async fn beat(&self) -> Status {
        match self.call(self.beating(false)).await {
            Reply::Beat(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    pub async fn view(&self) -> View {
        match self.call(Request::View).await {
            Reply::View(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    pub async fn head(&self) -> Head {
        self.view().await.head
    }

    pub async fn look(&self, lease: &str) -> honeyflow_hive::contract::LeaseRow {
        match self.call(Request::Look { leases: vec![lease.into()] }).await {
            Reply::Leases { mut leases, .. } => leases.remove(0),
            other => panic!("{other:?}"),
        }
    }

    /// A take by a node that need not wait for the lineage (`watched`), or that must.
    pub async fn taking(&self, lease: &str, watched: bool) -> Request {
        let seen = self.look(lease).await.epoch;
        let mint = Mint { lineage: self.head().await.server.into(), watched };
        Request::Take { node: self.id, claims: vec![Claim::new(lease.into(), seen)], cause: "free".into(), mint }
    }

    pub async fn take(&self, lease: &str) -> Epoch {
        match self.call(self.taking(lease, true).await).await {
            Reply::Taken(taken) => taken[0].epoch,
            other => panic!("{other:?}"),
        }
    }

    pub async fn is_early(&self, lease: &str) -> bool {
        match self.call(self.taking(lease, false).await).await {
            Reply::Refused(Refusal::Early { wait_ms }) => {
                assert!((1..=TTL_MS).contains(&wait_ms), "{wait_ms}");
                true
            }
            Reply::Taken(_) => false,
            other => panic!("{other:?}"),
        }
    }

    /// Records the lineage of the server, which is another one or has lost its data.
    pub async fn records_lineage(&self) {
        let head = self.head().await;
        let (was, found) = (head.lineage.map(Into::into), head.server.into());
        assert_eq!(self.call(Request::NewLineage { was, found }).await, Reply::Done);
    }
}

//! The server as a test reaches around the hive.

use honeyflow_event::Epoch;
use honeyflow_hive::{
    HiveStore, NodeId, Reply, Request,
    contract::{Claim, Head, Mint, Refusal, State, Status, View},
};
use honeyflow_hive_redis::{Options, RedisHive};
use redis::{Cmd, FromRedisValue, aio::MultiplexedConnection};
use uuid::Uuid;

/// A connection of one's own.
pub async fn connection(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.expect("the server answers")
}

pub async fn ask<T: FromRedisValue>(connection: &MultiplexedConnection, command: &Cmd) -> T {
    command.query_async(&mut connection.clone()).await.expect("answered")
}

/// Words of one command.
pub async fn tell(url: &str, words: &[&str]) -> redis::Value {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    ask(&connection(url).await, &command).await
}

/// A hive that nobody else in this run uses.
pub fn fresh_name(what: &str) -> String {
    format!("{what}-{}", Uuid::new_v4())
}

pub fn options(url: &str, hive: &str) -> Options {
    Options { hive: hive.into(), ..Options::new(url) }
}

pub fn open(url: &str, hive: &str) -> RedisHive {
    RedisHive::open(&options(url, hive)).unwrap()
}

/// A member of a hive, asking one thing at a time.
pub struct Node {
    pub hive: RedisHive,
    pub id: NodeId,
}

pub const TTL_MS: u64 = 6_000;

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

    /// As one that need not wait for the lineage, or as one that must.
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

    /// Another server answers, or has forgotten everything: it is recorded.
    pub async fn records_lineage(&self) {
        let head = self.head().await;
        let (was, found) = (head.lineage.map(Into::into), head.server.into());
        assert_eq!(self.call(Request::NewLineage { was, found }).await, Reply::Done);
    }
}

//! What a hive backend must answer. Requests and replies are plain data, so that a simulator can delay and lose them.
//!
//! Times are milliseconds since 2020-01-01 on the store's clock; nodes send durations, never instants.

use futures_util::future::BoxFuture;
use honeyflow_event::{Epoch, Name};
use honeyflow_runtime::Failure;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Milliseconds from 1970 to 2020: hive time begins there.
pub const HIVE_TIME_START_MS: i64 = 1_577_836_800_000;

/// A fresh UUID at every start: an incarnation, not a machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct NodeId(pub Uuid);

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Inserts the node, never updates one. Backends on one machine bury here whoever's kernel lock is free.
    Join {
        node: NodeId,
        name: Name,
        ttl_ms: u64,
        meta: String,
    },
    /// Renews the node. A node whose trust has run out asks `read_only` first.
    Beat {
        node: NodeId,
        read_only: bool,
    },
    /// A missing lease is made with epoch 0.
    Look {
        lease: Name,
    },
    /// Compare-and-set on the epoch seen; the new one is `max(epoch + 1, hive time, floor + 1)`.
    Take {
        lease: Name,
        node: NodeId,
        seen: Epoch,
        floor: Epoch,
        cause: Name,
    },
    /// To itself it mints anew; never vacant in between.
    HandOver {
        lease: Name,
        node: NodeId,
        epoch: Epoch,
        heir: NodeId,
        floor: Epoch,
        cause: Name,
    },
    Release {
        lease: Name,
        node: NodeId,
        epoch: Epoch,
    },
    Leave {
        node: NodeId,
    },
    Nodes,
    Leases,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Joined,
    /// `member` is false once the node has been buried.
    Beat {
        hive_ms: u64,
        member: bool,
    },
    /// Free: no holder, or one without a node row.
    Lease {
        epoch: Epoch,
        holder: Option<NodeId>,
        free: bool,
    },
    /// Take and hand-over: won, under this epoch.
    Taken {
        epoch: Epoch,
    },
    /// Take, hand-over, release: someone else was first.
    Refused,
    Done,
    Nodes(Vec<NodeRow>),
    Leases(Vec<LeaseRow>),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NodeRow {
    pub id: NodeId,
    pub name: String,
    pub beat: u64,
    pub expires_in_ms: i64,
    pub meta: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LeaseRow {
    pub name: String,
    pub epoch: Epoch,
    pub holder: Option<NodeId>,
    pub since_ms: u64,
    pub cause: String,
}

/// One boxed future per request; an unknown outcome is resolved by the backend or leaves as `Retry`.
pub trait HiveStore: Send + Sync {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>>;
}

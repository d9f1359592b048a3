//! The parts of replies. Instants are hive time; each reply carries the hive time at which it was made.

use honeyflow_event::{Epoch, Name};
use serde::Serialize;
use uuid::Uuid;

use super::{NodeId, event::Event};

/// The hive's single view row, and the server it was read from. Without that row (nothing created yet, or everything
/// lost) only time and server are set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Head {
    pub hive_ms: u64,
    /// The lineage of the server that answered.
    pub server: String,
    /// Drawn when the view was created. A different one means another hive under the same name.
    pub origin: Option<Uuid>,
    /// The recorded lineage. If it is not the server's, the history is unknown.
    pub lineage: Option<String>,
    /// When the lineage was recorded; 0 if there is nothing to wait for.
    pub lineage_ms: u64,
    /// The longest time to live that any member ever wrote.
    pub max_ttl_ms: u64,
    /// While it is set, no node mints.
    pub hold: Option<String>,
    pub version: u64,
    /// Rises with every change of a limit's definition.
    pub limits: u64,
    /// The counts that the queen has published; `counted_ms` is 0 if no queen has.
    pub counts: Counts,
}

impl Head {
    /// Whether the server that answered is the recorded one. If not, it may have lost versions and use them again.
    pub fn is_recorded(&self) -> bool {
        self.lineage.as_deref() == Some(&*self.server)
    }

    /// How long a node must still wait before it mints, unless it has watched this lineage for long enough.
    pub fn wait_ms(&self) -> u64 {
        match self.lineage_ms {
            0 => 0,
            since => since.saturating_add(self.max_ttl_ms).saturating_sub(self.hive_ms),
        }
    }
}

/// Numbers of nodes. alive: unexpired; ready: alive and ready; engaged: ready, and `engaged_ms` lies in the future.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    pub alive: u64,
    pub ready: u64,
    pub engaged: u64,
    /// The epoch of the queen that published last.
    pub epoch: Epoch,
    pub counted_ms: u64,
}

impl Counts {
    pub fn same_numbers(&self, other: &Counts) -> bool {
        (self.alive, self.ready, self.engaged) == (other.alive, other.ready, other.engaged)
    }
}

/// What a node learns from every heartbeat reply.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    pub head: Head,
    /// False if the node was removed, or has never joined.
    pub member: bool,
    /// The row was written. It is not for a read-only heartbeat, and for one that the database was too busy to write
    /// (SQLite): that one keeps the node's trust, but does not count as an observation of other members.
    pub renewed: bool,
    /// `None` if the hive never had a queen.
    pub queen: Option<Queen>,
    /// Leases that name this node as successor, at most [`super::SOONEST_MAX`].
    pub successor_of: Vec<Name>,
    /// The other members that expire soonest, including expired ones; at most [`super::SOONEST_MAX`].
    pub soonest: Vec<WatchedNode>,
    /// A stored instant lies further ahead than possible: the clock has stepped back. [`super::Request::Mend`] repairs
    /// it.
    pub ahead: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queen {
    pub epoch: Epoch,
    pub holder: Option<NodeId>,
    pub successor: Option<NodeId>,
    pub since_ms: u64,
    /// The holder's row; without it the lease is free.
    pub node: Option<WatchedNode>,
}

/// What other nodes need to know of a member to decide whether it has expired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchedNode {
    pub id: NodeId,
    pub beat: u64,
    pub heartbeat_ms: u64,
    pub ttl_ms: u64,
    pub expires_ms: u64,
    /// Its kernel lock is free: it may be removed at once.
    pub dead: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NodeRow {
    pub id: NodeId,
    pub name: String,
    pub beat: u64,
    pub heartbeat_ms: u64,
    pub ttl_ms: u64,
    pub expires_ms: u64,
    pub engaged_ms: u64,
    pub ready: bool,
    pub eligible: bool,
    pub warm: Vec<Name>,
    /// The JSON text that the node gave when it joined.
    pub meta: String,
}

impl NodeRow {
    pub fn is_alive(&self, hive_ms: u64) -> bool {
        self.expires_ms > hive_ms
    }

    pub fn is_engaged(&self, hive_ms: u64) -> bool {
        self.is_alive(hive_ms) && self.ready && self.engaged_ms > hive_ms
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LeaseRow {
    pub name: Name,
    pub epoch: Epoch,
    pub holder: Option<NodeId>,
    #[serde(rename = "heir")]
    pub successor: Option<NodeId>,
    pub since_ms: u64,
    pub cause: String,
    /// The lease has no holder, or its holder has no row.
    pub free: bool,
    /// The successor's row says that it is ready to take over this lease, and that it is eligible.
    #[serde(rename = "heir_is_warm")]
    pub successor_is_warm: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct View {
    pub head: Head,
    /// Ordered by id.
    pub nodes: Vec<NodeRow>,
    /// Ordered by name.
    pub leases: Vec<LeaseRow>,
}

/// Every event after the requested version, up to `head.version`, without a gap.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Events {
    pub head: Head,
    pub events: Vec<Event>,
    /// The nodes named in `events` that still have a row.
    pub nodes: Vec<NodeRow>,
    /// The leases named in `events`.
    pub leases: Vec<LeaseRow>,
}

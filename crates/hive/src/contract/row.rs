//! What replies are made of. Instants are hive time; each reply says what time it is there.

use honeyflow_event::{Epoch, Name};
use serde::Serialize;
use uuid::Uuid;

use super::{NodeId, event::Event};

/// The hive's one row, and the server it was read from. Without a view (nothing made yet, or everything lost) it is
/// empty but for time and server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Head {
    pub hive_ms: u64,
    /// The lineage of the server that answered.
    pub server: String,
    /// Drawn when the view was made: another one means another hive under the same name.
    pub origin: Option<Uuid>,
    /// The recorded lineage: to be the server's, else the history is unknown.
    pub lineage: Option<String>,
    /// Since when it is recorded; 0 if there is nothing to wait for.
    pub lineage_ms: u64,
    /// The longest time to live that was ever written.
    pub max_ttl_ms: u64,
    /// While it stands nobody mints.
    pub hold: Option<String>,
    pub version: u64,
    /// Rises with every change of a limit's definition.
    pub limits: u64,
    /// As the queen has published them; `counted_ms` 0 if nobody has.
    pub counts: Counts,
}

impl Head {
    /// The server that answered is the recorded one. Else versions may come again that it has lost.
    pub fn is_recorded(&self) -> bool {
        self.lineage.as_deref() == Some(&*self.server)
    }

    /// How long nobody mints yet, unless it has watched for long enough.
    pub fn wait_ms(&self) -> u64 {
        match self.lineage_ms {
            0 => 0,
            since => since.saturating_add(self.max_ttl_ms).saturating_sub(self.hive_ms),
        }
    }
}

/// alive: unexpired; ready: alive and ready; engaged: ready, and `engaged_ms` still to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    pub alive: u64,
    pub ready: u64,
    pub engaged: u64,
    /// Of the queen who published last.
    pub epoch: Epoch,
    pub counted_ms: u64,
}

impl Counts {
    pub fn same_numbers(&self, other: &Counts) -> bool {
        (self.alive, self.ready, self.engaged) == (other.alive, other.ready, other.engaged)
    }
}

/// What a node learns with every beat.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    pub head: Head,
    /// False once the node has been buried, or has never joined.
    pub member: bool,
    /// The row was written. Not so for a read-only beat, and for one that the database was too busy to write (SQLite):
    /// that keeps the node's trust, but counts for nothing that the node has watched in others.
    pub renewed: bool,
    /// None if nobody ever was.
    pub queen: Option<Queen>,
    /// Leases that name this node as heir, at most [`super::SOONEST_MAX`].
    pub heir_of: Vec<Name>,
    /// The others soonest to expire, those who have expired among them; at most [`super::SOONEST_MAX`].
    pub soonest: Vec<Watched>,
    /// Some stored instant lies further ahead than it can: the clock has stepped back. [`super::Request::Mend`] helps.
    pub ahead: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queen {
    pub epoch: Epoch,
    pub holder: Option<NodeId>,
    pub heir: Option<NodeId>,
    pub since_ms: u64,
    /// The holder's row; without one the lease is free.
    pub node: Option<Watched>,
}

/// What others need to know of a node to judge whether it is dead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watched {
    pub id: NodeId,
    pub beat: u64,
    pub heartbeat_ms: u64,
    pub ttl_ms: u64,
    pub expires_ms: u64,
    /// Its kernel lock is free: it may be buried at once.
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
    /// JSON, as it was given.
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
    pub heir: Option<NodeId>,
    pub since_ms: u64,
    pub cause: String,
    /// No holder, or one without a row.
    pub free: bool,
    /// The heir's row says that it has loaded the lease's state, and that it may lead.
    pub heir_is_warm: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct View {
    pub head: Head,
    /// By id.
    pub nodes: Vec<NodeRow>,
    /// By name.
    pub leases: Vec<LeaseRow>,
}

/// Every event after the version asked for, up to `head.version`, without a gap.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Events {
    pub head: Head,
    pub events: Vec<Event>,
    /// Of the nodes named in `events`, those that still have a row.
    pub nodes: Vec<NodeRow>,
    /// The leases named in `events`.
    pub leases: Vec<LeaseRow>,
}

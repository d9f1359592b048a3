//! The requests that a hive backend must answer. They are plain data, so that a simulator can delay and lose them.
//!
//! Every request is one round trip. A request that changes something is one transaction or script, and makes its
//! comparisons in the statement that writes. These rules hold for all requests:
//!
//! - Times are milliseconds since 2020-01-01 on the store's clock (*hive time*). Nodes send durations, never instants.
//! - A store is opened for one hive, by name. It sees no row of another hive.
//! - A change that has an event ([`EventKind`]) raises the view's version by one per event and writes the event under
//!   that version, in the same transaction. Nothing else raises the version; heartbeats do not.
//! - Backends lock rows in the order node, lease, view, limit; several rows of one kind in the order of their names.
//! - Minting (take, hand-over) is allowed only under the conditions of [`Mint`]. The statement that mints checks them.
//! - A backend reports an unknown outcome as `Retry`. It never repeats a change by itself.

pub mod event;
pub mod limit;
pub mod row;

use futures_util::future::BoxFuture;
use honeyflow_event::{Epoch, Name};
use honeyflow_runtime::Failure;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::term::Fence;

pub use event::{Event, EventKind};
pub use row::{Counts, Events, Head, LeaseRow, NodeRow, Queen, Status, View, WatchedNode};

/// Milliseconds from 1970 to 2020. Hive time begins in 2020.
pub const HIVE_TIME_START_MS: i64 = 1_577_836_800_000;

/// The name of a hive that was given none.
pub const HIVE: &str = "honeyflow";

/// The lease of the elected leader, who counts nodes and grants rates.
pub const QUEEN: &str = "queen";

/// How long a node counts as engaged after its last traffic.
pub const ENGAGED_MS: u64 = 30_000;

/// How many of the nodes that expire soonest a heartbeat reply lists.
pub const SOONEST_MAX: usize = 16;

/// The largest size of a node's meta data, in bytes.
pub const META_BYTES_MAX: usize = 4096;

/// A fresh UUID at every start: it names an incarnation, not a machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct NodeId(pub Uuid);

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Inserts the node with beat 0, neither ready nor eligible, expiring after `ttl_ms`; the hive's longest time to
    /// live grows to `ttl_ms`. Event `joined`. Never touches an existing row: → `Refused(Known)`.
    ///
    /// Creates what is missing: tables, and the view with a fresh origin under the server's lineage. A hive that never
    /// existed has nothing to wait for (`lineage_ms` 0). Where lease rows exist without a view, or where the store may
    /// have lost everything (Redis), the history is unknown (`lineage_ms` now). → `Joined`. Rejects meta data of more
    /// than [`META_BYTES_MAX`] bytes.
    ///
    /// Backends with kernel locks also remove the members whose lock is free.
    Join {
        node: NodeId,
        name: Name,
        heartbeat_ms: u64,
        ttl_ms: u64,
        meta: String,
    },
    /// A heartbeat: raises `beat`, renews `expires_ms = now + ttl`, sets `engaged_ms = now − age + 30 s` (0 if none)
    /// and the rest of [`State`]. Events `eligible` or `draining`, then `ready` or `unready`, each only if the row
    /// changes. `read_only` writes nothing. → `Beat`. Without a row, `member` is false and nothing is inserted.
    ///
    /// Its cost does not depend on the number of nodes.
    Beat {
        node: NodeId,
        read_only: bool,
        state: State,
    },
    /// Deletes the node's row and gives back its slots. Event `left`. Its leases are free from then on, because their
    /// holder has no row. → `Done`, also if there was no row.
    Leave {
        node: NodeId,
    },
    /// Removes members: deletes each row that shows the watched beat and has expired or was silent, and gives back the
    /// member's slots. Event `buried` for each. → `Removed` with the members that this request has removed.
    ///
    /// With kernel locks: a member whose lock is free is deleted at once; one whose lock is held only if it was silent.
    Remove {
        nodes: Vec<Removal>,
    },
    /// Repairs the stored times after a clock step: every instant that lies further ahead than its longest duration is
    /// set to now + that duration (`expires_ms`: its ttl; `engaged_ms`: 30 s; `lineage_ms`, `counted_ms`, `pool_ms`:
    /// 0). No event. → `Mended` with the number of rows.
    Mend,
    /// Reads the leases with their holders in one snapshot, in the given order. Creates missing rows with epoch 0.
    /// → `Leases`.
    Look {
        leases: Vec<Name>,
    },
    /// Treats each claim separately: compares the row's epoch with the claimed one and checks that the lease is free,
    /// in the same statement. The node must have a row, eligible and unexpired. Sets the holder, mints, clears the
    /// successor. Event `taken` for each. → `Taken` with the leases won, `Refused` if there are none.
    Take {
        node: NodeId,
        claims: Vec<Claim>,
        cause: Name,
        mint: Mint,
    },
    /// Treats each claim separately: compares holder and epoch. The successor must have a row, unexpired and, unless it
    /// is the node itself, eligible. A hand-over to itself mints a new epoch. The lease always has a holder. Event
    /// `handed-over` (with the successor as node) for each. → `Taken` with the leases handed over and their new epochs,
    /// `Refused` if there are none.
    HandOver {
        node: NodeId,
        successor: NodeId,
        claims: Vec<Claim>,
        cause: Name,
        mint: Mint,
    },
    /// Treats each lease separately: compares holder and epoch, clears holder and successor, keeps the epoch. Event
    /// `released` for each. → `Released` with the leases that the node held.
    Release {
        node: NodeId,
        held: Vec<HeldLease>,
        cause: Name,
    },
    /// Names the lease's successor, which must be eligible and unexpired, or clears it. No event: the successor reads
    /// it in its heartbeat replies. → `Done`, `Stale`, or `Refused(Unfit)`.
    SetSuccessor {
        fence: Fence,
        successor: Option<NodeId>,
    },
    /// The queen's count, in one transaction under her fence (of [`QUEEN`]; any other is stale): removes members as
    /// [`Request::Remove`] does, counts, and publishes with her epoch if a number or the epoch has changed or the last
    /// count is `every_ms` old. The count itself has no event. → `Counted`, or `Stale` if nothing was done.
    Count {
        fence: Fence,
        every_ms: u64,
        remove: Vec<Removal>,
    },
    /// Counts and changes nothing: for nodes that see no recent published count, and for people. → `Counted`.
    Tally,
    /// Records that a chore of this lease was missed. Event `missed`. → `Done` or `Stale`.
    Missed {
        fence: Fence,
        cause: Name,
    },
    /// A chore of the queen, under her fence: deletes events that are older than `event_ms` or beyond the newest
    /// `events_max`, and buckets that are full and were not touched for `idle_ms`, together with the records that a
    /// node has no slots left; at most `rows_max` of each. → `Swept` or `Stale`.
    Sweep {
        fence: Fence,
        event_ms: u64,
        events_max: u64,
        idle_ms: u64,
        rows_max: u32,
    },
    /// Reads everything at its current version, in one snapshot. Creates nothing. → `View`.
    View,
    /// Reads the events after a version, in order, with the current rows of the nodes and leases they name, in one
    /// snapshot. A kind that only a newer release knows is read as [`EventKind::Unknown`].
    /// → `Events`; if that would leave a gap (deleted events, more than `max`, a jump of the version, `after` is ahead)
    /// → `View`.
    Events {
        after: u64,
        max: u32,
    },
    /// For people: reads the newest events first, for one lease or all, up to an instant of hive time. → `History`.
    History {
        lease: Option<Name>,
        until_ms: Option<u64>,
        max: u32,
    },
    /// For when the answering server is not the recorded one, or none is recorded: compares the recorded lineage with
    /// `was` and the server's own with `found`. Sets `lineage = found, lineage_ms = now, version = max(version + 1,
    /// now)`; creates the view if it is missing. Event `lineage`. → `Done`, or `Refused(Raced)`. SQLite leaves
    /// `lineage_ms` 0, because it is the same file.
    NewLineage {
        was: Option<Name>,
        found: Name,
    },
    /// For when this process has seen a higher version or epoch than the store shows: checks that this is still the
    /// case under this lineage. Sets `hold = 'restore'`, so that no node mints; Redis begins a new lineage instead,
    /// with its event. → `Done`, or `Refused(Raced)`.
    Behind {
        lineage: Name,
        version: u64,
        leases: Vec<HeldLease>,
    },
    /// A person confirms that the restored state is the right one: clears the hold; sets `lineage_ms = now`, so that
    /// earlier terms end before a node mints, and `version = max(version + 1, now)`. Event `restored`. → `Done`, or
    /// `Refused(Raced)` without a hold.
    AcceptRestore {
        cause: Name,
    },
    Limit(limit::Request),
}

impl Request {
    /// Describes the request in messages: a verb and a noun.
    pub fn doing(&self) -> &'static str {
        match self {
            Request::Join { .. } => "join the hive",
            Request::Beat { .. } => "beat",
            Request::Leave { .. } => "leave the hive",
            Request::Remove { .. } => "remove expired nodes",
            Request::Mend => "repair stored times",
            Request::Look { .. } => "read leases",
            Request::Take { .. } => "take a lease",
            Request::HandOver { .. } => "hand over a lease",
            Request::Release { .. } => "release a lease",
            Request::SetSuccessor { .. } => "name a successor",
            Request::Count { .. } | Request::Tally => "count the nodes",
            Request::Missed { .. } => "record a missed chore",
            Request::Sweep { .. } => "sweep the hive",
            Request::View => "read the view",
            Request::Events { .. } | Request::History { .. } => "read events",
            Request::NewLineage { .. } => "record the lineage",
            Request::Behind { .. } => "put the hive on hold",
            Request::AcceptRestore { .. } => "accept a restore",
            Request::Limit(_) => "ask the limits",
        }
    }
}

/// What a node reports about itself with each heartbeat.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Time since its last traffic; `None` if there was none, or it is too long ago to count.
    pub engaged_age_ms: Option<u64>,
    pub ready: bool,
    pub eligible: bool,
    /// Leases for which the node has loaded what it needs to take over.
    pub warm: Vec<Name>,
}

/// A lease to mint: the row must still have `epoch`, and the new epoch lies above `floor`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    pub lease: Name,
    /// The epoch that was read (take) or is held (hand-over).
    pub epoch: Epoch,
    /// The new epoch is `max(epoch + 1, hive time, floor + 1)`: it lies above a sink that is ahead.
    pub floor: Epoch,
}

impl Claim {
    pub fn new(lease: Name, epoch: Epoch) -> Claim {
        Claim { lease, epoch, floor: Epoch(0) }
    }
}

/// A lease and the epoch under which a node holds it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct HeldLease {
    pub lease: Name,
    pub epoch: Epoch,
}

/// What every statement that mints checks. Minting is allowed if `lineage` is both the server's own and the recorded
/// one, no hold is set, and (`lineage_ms` is 0, or `now ≥ lineage_ms + max_ttl_ms`, or `watched`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mint {
    pub lineage: Name,
    /// The node has watched this lineage for 2 ttl on its own clock, so a step of the store's clock does not matter.
    pub watched: bool,
}

/// A member to remove, and what the requesting node has observed of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Removal {
    pub node: NodeId,
    /// The heartbeat number that did not change.
    pub beat: u64,
    /// The requesting node has watched it for 2 ttl on its own clock, so the row need not have expired.
    pub silent: bool,
    pub cause: Name,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Joined(Box<Status>),
    Beat(Box<Status>),
    Removed(Vec<NodeId>),
    Mended(u64),
    Leases {
        hive_ms: u64,
        leases: Vec<LeaseRow>,
    },
    /// The leases that a take or hand-over has minted, with their new epochs.
    Taken(Vec<HeldLease>),
    Released(Vec<Name>),
    Counted {
        hive_ms: u64,
        /// The numbers counted now, with `epoch` and `counted_ms` of the published count.
        counts: Counts,
        published: bool,
        removed: Vec<NodeId>,
    },
    /// The store did nothing, because these fences do not hold.
    Stale(Vec<Name>),
    Refused(Refusal),
    Done,
    Swept {
        events: u64,
        buckets: u64,
    },
    View(Box<View>),
    Events(Box<Events>),
    History(Vec<Event>),
    Limit(limit::Reply),
}

/// Why the store changed nothing. If several reasons apply, it gives the first in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Join: this identity is already taken. Join again with a fresh one.
    Known,
    /// The given lineage, the recorded one and the server's own are not all the same.
    Lineage,
    /// The store was restored, and no person has accepted the restore yet.
    Hold,
    /// A term under another lineage may not have ended yet.
    Early { wait_ms: u64 },
    /// The node that is to hold the lease has no row, has expired or is not eligible.
    Unfit,
    /// Another node was first. Read the rows again.
    Raced,
}

/// Properties of a backend that its callers may depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Capabilities {
    /// Nodes may be on several machines.
    pub many_hosts: bool,
    /// The data survives the end of all processes.
    pub durable: bool,
    /// The backend announces changes before the next heartbeat.
    pub doorbell: bool,
}

/// Answers each request with one boxed future. The backend resolves an unknown outcome or reports it as `Retry`.
pub trait HiveStore: Send + Sync {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>>;

    fn capabilities(&self) -> Capabilities;
}

//! What a hive backend must answer. Requests and replies are plain data, so that a simulator can delay and lose them.
//!
//! Every request is one round trip and, where it changes something, one transaction or script: what it compares is
//! compared in the statement that writes. Rules that hold for all of them:
//!
//! - Times are milliseconds since 2020-01-01 on the store's clock (*hive time*). Nodes send durations, never instants.
//! - A store is opened for one hive by name; it sees no row of another.
//! - Whatever has an event of its own ([`EventKind`]) raises the view's version by one per event and writes the event
//!   under that version in the same transaction. Nothing else does; heartbeats do not.
//! - Rows are locked in the order node, lease, view, limit; several of one kind in the order of their names.
//! - Minting (take, hand-over) is allowed while [`Mint`] says so, judged inside the statement that mints.
//! - An outcome that is unknown leaves as `Retry`. A backend never repeats a change by itself.

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
pub use row::{Counts, Events, Head, LeaseRow, NodeRow, Queen, Status, View, Watched};

/// Milliseconds from 1970 to 2020: hive time begins there.
pub const HIVE_TIME_START_MS: i64 = 1_577_836_800_000;

/// A hive that was given no name.
pub const HIVE: &str = "honeyflow";

/// The lease of the one who counts and grants.
pub const QUEEN: &str = "queen";

/// How long a node counts as engaged after its last traffic.
pub const ENGAGED_MS: u64 = 30_000;

/// How many of the nodes soonest to expire a beat tells of.
pub const SOONEST_MAX: usize = 16;

/// What a node says about itself, in bytes.
pub const META_BYTES_MAX: usize = 4096;

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
    /// Inserts the node with beat 0, neither ready nor eligible, expiring after `ttl_ms`; the hive's longest time to live
    /// grows to `ttl_ms`. Event `joined`. Never touches a row that is there: → `Refused(Known)`.
    ///
    /// Makes what is missing: tables, and the view with a fresh origin under the server's lineage. A hive that never was
    /// has nothing to wait for (`lineage_ms` 0); where lease rows stand without a view, or where the store may have lost
    /// everything (Redis), its history is unknown (`lineage_ms` now). → `Joined`. More than [`META_BYTES_MAX`] is rejected.
    ///
    /// Backends with kernel locks bury here whoever's lock is free.
    Join {
        node: NodeId,
        name: Name,
        heartbeat_ms: u64,
        ttl_ms: u64,
        meta: String,
    },
    /// Raises `beat`, renews `expires_ms = now + ttl`, sets `engaged_ms = now − age + 30 s` (0 if none) and the rest of
    /// [`State`]. Events `eligible` or `draining`, then `ready` or `unready`, each only where the row said otherwise.
    /// `read_only` writes nothing. → `Beat`; no row: `member` is false, and nothing is inserted.
    ///
    /// Its cost does not depend on the number of nodes.
    Beat {
        node: NodeId,
        read_only: bool,
        state: State,
    },
    /// Deletes the node's row and gives back its slots. Event `left`. What it holds is free from now on, as its holder
    /// has no row. → `Done`, also if there was none.
    Leave {
        node: NodeId,
    },
    /// Deletes those whose row shows the watched beat and (has expired or was silent), and gives back their slots.
    /// Event `buried` each. → `Buried` with those who are gone by this request.
    ///
    /// With kernel locks: free, it is deleted at once; held, only if silent.
    Bury {
        nodes: Vec<Burial>,
    },
    /// After a clock step: every stored instant further ahead than its life goes back to now + life (`expires_ms`: its
    /// ttl; `engaged_ms`: 30 s; `lineage_ms`, `counted_ms`, `pool_ms`: 0). No event. → `Mended` with how many rows.
    Mend,
    /// Reads the leases with their holders in one snapshot, in the order asked; a missing row is made with epoch 0.
    /// → `Leases`.
    Look {
        leases: Vec<Name>,
    },
    /// Each claim by itself: compares the epoch with the one seen, and that the lease is free in the same statement. The
    /// node must have a row, eligible and unexpired. Sets the holder, mints, clears the heir. Event `taken` each.
    /// → `Taken` with those won, `Refused` if none.
    Take {
        node: NodeId,
        claims: Vec<Claim>,
        cause: Name,
        mint: Mint,
    },
    /// Each claim by itself: compares holder and epoch. The heir must have a row, unexpired and, unless it is the node
    /// itself, eligible; to itself it mints anew. Never vacant in between. Event `handed-over` (of the heir) each.
    /// → `Taken` with those handed over and their new epochs, `Refused` if none.
    HandOver {
        node: NodeId,
        heir: NodeId,
        claims: Vec<Claim>,
        cause: Name,
        mint: Mint,
    },
    /// Each by itself: compares holder and epoch, clears holder and heir, keeps the epoch. Event `released` each.
    /// → `Released` with those that were its own.
    Release {
        node: NodeId,
        held: Vec<Held>,
        cause: Name,
    },
    /// Names the lease's next holder, who must be eligible and unexpired, or nobody. No event: the heir reads it in its
    /// beats. → `Done`, `Stale`, or `Refused(Unfit)`.
    SetHeir {
        fence: Fence,
        heir: Option<NodeId>,
    },
    /// The queen's count, in one transaction under her fence (of [`QUEEN`]; any other is stale): buries as
    /// [`Request::Bury`] does, counts, and publishes with her epoch if a number or the epoch has changed or the last
    /// count is `every_ms` old. No event of its own. → `Counted`, or `Stale` and nothing was done.
    Count {
        fence: Fence,
        every_ms: u64,
        bury: Vec<Burial>,
    },
    /// Counts and changes nothing: for those who hear of no count, and for people. → `Counted`.
    Tally,
    /// A chore of this lease was missed. Event `missed`. → `Done` or `Stale`.
    Missed {
        fence: Fence,
        cause: Name,
    },
    /// A chore of the queen, under her fence: forgets events older than `event_ms` and all but the newest `events_max`,
    /// and buckets that are full and were not touched for `idle_ms`, and with them that a node has no slots any more; at
    /// most `rows_max` of each. → `Swept` or `Stale`.
    Sweep {
        fence: Fence,
        event_ms: u64,
        events_max: u64,
        idle_ms: u64,
        rows_max: u32,
    },
    /// Everything, in one snapshot: what stands at that version. Makes nothing. → `View`.
    View,
    /// What happened after a version, in order, with the rows it concerns as they stand now, in one snapshot. A kind that
    /// only a newer version knows is [`EventKind::Unknown`].
    /// → `Events`; where that would leave a gap (forgotten, more than `max`, a jump of the version, `after` is ahead) →
    /// `View`.
    Events {
        after: u64,
        max: u32,
    },
    /// For people: the newest events first, of one lease or of all, up to an instant of hive time. → `History`.
    History {
        lease: Option<Name>,
        until_ms: Option<u64>,
        max: u32,
    },
    /// The answering server is not the recorded one, or none is recorded: compares the recorded lineage with `was` and the
    /// server's own with `found`. Sets `lineage = found, lineage_ms = now, version = max(version + 1, now)`; makes the view
    /// if it is missing. Event `lineage`. → `Done`, or `Refused(Raced)`. SQLite leaves `lineage_ms` 0: it is the same file.
    NewLineage {
        was: Option<Name>,
        found: Name,
    },
    /// This process has seen a higher version or epoch than the store shows: compares that it is still so, under this
    /// lineage. Sets `hold = 'restore'`, so that nobody mints; Redis takes it for a new lineage instead, with its event.
    /// → `Done`, or `Refused(Raced)`.
    Behind {
        lineage: Name,
        version: u64,
        leases: Vec<Held>,
    },
    /// A person says that the restored state is the right one: clears the hold; `lineage_ms = now`, so that what was held
    /// before has ended; `version = max(version + 1, now)`. Event `restored`. → `Done`, or `Refused(Raced)` without a hold.
    AcceptRestore {
        cause: Name,
    },
    Limit(limit::Request),
}

impl Request {
    /// For messages: a verb and a thing.
    pub fn doing(&self) -> &'static str {
        match self {
            Request::Join { .. } => "join the hive",
            Request::Beat { .. } => "beat",
            Request::Leave { .. } => "leave the hive",
            Request::Bury { .. } => "bury a node",
            Request::Mend => "mend the hive",
            Request::Look { .. } => "look at leases",
            Request::Take { .. } => "take a lease",
            Request::HandOver { .. } => "hand over a lease",
            Request::Release { .. } => "release a lease",
            Request::SetHeir { .. } => "name an heir",
            Request::Count { .. } | Request::Tally => "count the hive",
            Request::Missed { .. } => "note a missed chore",
            Request::Sweep { .. } => "sweep the hive",
            Request::View => "read the hive",
            Request::Events { .. } | Request::History { .. } => "read events",
            Request::NewLineage { .. } => "record the lineage",
            Request::Behind { .. } => "hold the hive",
            Request::AcceptRestore { .. } => "accept a restore",
            Request::Limit(_) => "ask the limits",
        }
    }
}

/// What a node says of itself with each beat.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Since its last traffic; none if there was none, or too long ago to count.
    pub engaged_age_ms: Option<u64>,
    pub ready: bool,
    pub eligible: bool,
    /// Leases whose state is loaded here.
    pub warm: Vec<Name>,
}

/// A lease that is to be minted: under the epoch that was seen, above a floor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    pub lease: Name,
    /// Seen (take) or held (hand-over).
    pub epoch: Epoch,
    /// The new epoch is `max(epoch + 1, hive time, floor + 1)`: above a sink that is ahead.
    pub floor: Epoch,
}

impl Claim {
    pub fn new(lease: Name, epoch: Epoch) -> Claim {
        Claim { lease, epoch, floor: Epoch(0) }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Held {
    pub lease: Name,
    pub epoch: Epoch,
}

/// What every statement that mints compares. It is allowed if `lineage` is both the server's own and the recorded one,
/// no hold stands, and (`lineage_ms` is 0, or `now ≥ lineage_ms + max_ttl_ms`, or `watched`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mint {
    pub lineage: Name,
    /// The node has watched this lineage for 2 ttl on its own clock: a step of the store's clock does not matter.
    pub watched: bool,
}

/// Who is dead, by what its burier has watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Burial {
    pub node: NodeId,
    /// The beat that did not change.
    pub beat: u64,
    /// Watched for 2 ttl on the burier's own clock: it need not have expired.
    pub silent: bool,
    pub cause: Name,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Joined(Box<Status>),
    Beat(Box<Status>),
    Buried(Vec<NodeId>),
    Mended(u64),
    Leases {
        hive_ms: u64,
        leases: Vec<LeaseRow>,
    },
    /// Take and hand-over: won, under these epochs.
    Taken(Vec<Held>),
    Released(Vec<Name>),
    Counted {
        hive_ms: u64,
        /// As counted now; under `epoch` and `counted_ms` of what is published.
        counts: Counts,
        published: bool,
        buried: Vec<NodeId>,
    },
    /// Nothing was done: these fences do not hold.
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

/// Why nothing was changed. Where several apply, the first of them in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Join: the identity is taken; begin again with a fresh one.
    Known,
    /// The lineage given, the recorded one and the server's own are not all the same.
    Lineage,
    /// The store was restored, and nobody has accepted it yet.
    Hold,
    /// What was held under another lineage may not have ended.
    Early { wait_ms: u64 },
    /// Whoever is to hold has no row, has expired or is not eligible.
    Unfit,
    /// Someone else was first: look again.
    Raced,
}

/// What callers may know about the backend below.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Capabilities {
    /// Nodes may be on several machines.
    pub many_hosts: bool,
    /// It survives the end of all processes.
    pub durable: bool,
    /// It tells of changes before the next beat.
    pub doorbell: bool,
}

/// One boxed future per request; an unknown outcome is resolved by the backend or leaves as `Retry`.
pub trait HiveStore: Send + Sync {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>>;

    fn capabilities(&self) -> Capabilities;
}

//! The store's contract for limits: definitions, buckets and slots. Sums are in micro-permits, costs in whole permits.
//!
//! A definition is a [`Rule`] with a version; a changed one comes into force at a stated instant. The table of buckets
//! contains the present definition under the key `''` and the next one under `'next'`. A bucket keeps the rule under
//! which it was last counted, so that a change applies from its instant on. [`crate::bucket`] is the arithmetic; SQL
//! and scripts compute the same.

use std::fmt;

use honeyflow_event::Name;
use serde::{Deserialize, Serialize};

use super::NodeId;

/// The micro-permits in a permit.
pub const MICRO: u64 = 1_000_000;

/// The XXH3-128 hash of what the limit counts by, such as a client; 32 hexadecimal digits in the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Key(pub u128);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// `rate_u` micro-permits flow back every `period_ms`, up to `burst_u`. The numbers are in lowest terms, so that whole
/// periods are converted and nothing is lost. A rate of 0 means slots, or a quota that is full again in its next
/// window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rule {
    pub rate_u: u64,
    pub period_ms: u64,
    pub burst_u: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Each draw separately: refills the bucket up to half the burst, then gives `min(want, pool / 2)`, or all of
    /// `need` if that is more and the pool has it, otherwise nothing. A missing bucket is full, but it is empty while
    /// `now < lineage_ms + life of a batch`. Then reserves, if the draw asks for it ([`crate::bucket::reservation`]):
    /// whole permits of the next second, in which the bucket fills by as much less. → `Drawn`, in order. A draw without
    /// a reservation is the only write that need not be durable.
    Draw(Vec<Draw>),
    /// All or none: refills each bucket up to its burst and takes its cost, if every bucket has it. A refusal changes
    /// no bucket, so that the use of a window stays known even if it is above a lower quota. `peek` takes nothing. →
    /// `Admitted`, in order, or `Denied`.
    Exact { takes: Vec<ExactTake>, peek: bool },
    /// Gives back permits that were taken and not used; never beyond the burst, nor into another window. → `Done`.
    Refund(Vec<ExactTake>),
    /// Each request separately: the node says how many slots it wants in all, with a sequence number. A request with an
    /// older number changes nothing and gets the present state, so that a request without an answer may be repeated.
    /// Fewer slots are given back; of more slots it gets as many as are free. The slots of all nodes are counted in one
    /// row and are at most the burst; after the limit was lowered, `over` says by how many they are still above it. →
    /// `Slots`, in order; `Unfit` if the node has no row. If the limit is a rate now, there are as many slots as
    /// before; if it never had slots, as many as its burst.
    Slots { node: NodeId, asks: Vec<Slots> },
    /// Compares the version of the newest definition with `was` (none: not defined) and writes the next one. It comes
    /// into force after `after_ms` and two heartbeats of the slowest node; a first definition at once. The hive's
    /// limits version rises by one and becomes the version of the definition. → `Set`; `Pending` while another change
    /// is not in force yet; `Raced` if the version is another.
    Set { limit: Name, was: Option<u64>, rule: Rule, after_ms: u64 },
    /// Returns all definitions. → `Limits`.
    Limits,
    /// Returns the limit's buckets, those with the most issued permits first. → `Ledger`.
    Ledger { limit: Name, max: u32 },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draw {
    pub limit: Name,
    pub key: Key,
    pub want: u64,
    pub need: u64,
    pub reserve: Option<ReservationRequest>,
}

/// Asks for permits of the next second; the part that the node gets depends on the other nodes and the weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReservationRequest {
    pub want: u64,
    pub weight: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExactTake {
    pub limit: Name,
    pub key: Key,
    pub cost: u64,
    /// The window of a calendar quota, which is full at the start of each window. The node computes the calendar, the
    /// store knows the time.
    pub window: Option<Window>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    pub start_ms: u64,
    pub end_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slots {
    pub limit: Name,
    pub key: Key,
    /// The sequence number; it grows with each request of this node for this key.
    pub seq: u64,
    pub wants: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Drawn { hive_ms: u64, drawn: Vec<Result<DrawOutcome, UndefinedLimit>> },
    Admitted { hive_ms: u64, left: Vec<Remainder> },
    Denied(DeniedTake),
    Slots(Vec<Result<SlotsHeld, UndefinedLimit>>),
    Unfit,
    Set { version: u64, effective_ms: u64 },
    Pending { effective_ms: u64 },
    Raced,
    Limits { hive_ms: u64, version: u64, limits: Vec<Limit> },
    Ledger(Vec<BucketRow>),
    Done,
}

/// The limit is not defined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UndefinedLimit;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DrawOutcome {
    pub granted: u64,
    /// The micro-permits that remain in the pool.
    pub pool_u: u64,
    /// The version of the definition under which it was drawn.
    pub version: u64,
    /// If nothing was granted: the time until the pool has `max(need, 1)`; `None`: never.
    pub retry_ms: Option<u64>,
    /// The reserved permits; they become available evenly over the second.
    pub reserved: u64,
    /// The time from now until that second begins.
    pub begins_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remainder {
    pub pool_u: u64,
    pub version: u64,
    /// The time until the bucket is full, or until its window ends.
    pub full_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeniedTake {
    /// The index of the first take that is refused.
    pub at: usize,
    pub version: u64,
    pub why: Denial,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    Undefined,
    /// The cost is more than the burst: it will never be admitted.
    TooLarge,
    Empty {
        pool_u: u64,
        retry_ms: u64,
    },
    /// The present time is not in the window.
    OtherWindow {
        hive_ms: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotsHeld {
    pub has: u64,
    /// Slots that no node holds.
    pub free: u64,
    /// The number by which all nodes together hold more slots than the limit has, since it was lowered. Slots in use
    /// stay in use, but a slot that comes back is not lent again.
    pub over: u64,
    pub max: u64,
    pub version: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Limit {
    pub name: Name,
    pub now: Definition,
    /// A change that is not in force yet.
    pub next: Option<Definition>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Definition {
    pub version: u64,
    pub rule: Rule,
    pub effective_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BucketRow {
    pub key: Key,
    pub version: u64,
    /// The pool at `pool_ms`, without the permits that have flowed back since.
    pub pool_u: u64,
    pub pool_ms: u64,
    /// All permits ever issued, including the reserved ones that have become available; for slots: those held now.
    pub issued_u: u64,
    /// The permits reserved of the present second.
    pub booked_u: u64,
}

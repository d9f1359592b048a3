//! Limits: definitions, buckets and slots in the store. Sums are in micro-permits, costs in whole permits.
//!
//! A definition is a [`Rule`] with a version; a changed one comes into force at a stated instant. It stands in the table of
//! buckets under the key `''`, the one to come under `'next'`. A bucket keeps the rule it was last counted under, so that
//! a change applies from its instant on. [`crate::bucket`] is the arithmetic; SQL and scripts compute the same.

use std::fmt;

use honeyflow_event::Name;
use serde::{Deserialize, Serialize};

use super::NodeId;

/// In a permit.
pub const MICRO: u64 = 1_000_000;

/// XXH3-128 of whatever the limit counts by; 32 hexadecimal digits in the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Key(pub u128);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// `rate_u` flow back every `period_ms`, up to `burst_u`. In lowest terms: whole periods are converted and nothing is
/// lost. A rate of 0: slots, or a quota that is full again in its next window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rule {
    pub rate_u: u64,
    pub period_ms: u64,
    pub burst_u: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Each by itself: refills the bucket (at most half the burst), then gives `min(want, pool / 2)`, or `need` whole if
    /// that is more and there, else nothing. A bucket that is missing is full, but empty while
    /// `now < lineage_ms + life of a batch`. Then books, if it is asked for ([`crate::bucket::booking`]): whole permits of
    /// the next second, for which the bucket fills by so much less. → `Drawn`, in order. Without booking it
    /// is the only write that need not be durable.
    Draw(Vec<Draw>),
    /// All or none: refills each bucket (up to its burst) and takes its cost if every one has it; a refusal leaves all
    /// untouched, so that what was used of a window and is more than a lower quota stays known. `peek` takes nothing.
    /// → `Admitted`, in order, or `Denied`.
    Exact { takes: Vec<Exact>, peek: bool },
    /// Gives back what was taken and not used; never beyond the burst, nor into another window. → `Done`.
    Refund(Vec<Exact>),
    /// Each by itself: the node says how many slots it wants to have in all, numbered; an older number changes nothing and
    /// is told what stands, so that one that went unanswered may be repeated. Fewer: given back. More: as many as are
    /// free. All nodes' slots ≤ burst, in one row, or `over` says by how many a lower limit still finds them above. → `Slots`,
    /// in order; `Unfit` if the node has no row. Under a rate there are as many as there were before it; never any: its burst.
    Slots { node: NodeId, asks: Vec<Slots> },
    /// Compares the version of the newest definition (`was`; none: not defined) and writes the next, in force after
    /// `after_ms` and two heartbeats of the slowest node, a first one at once. The hive's limits version rises by one and
    /// is the definition's. → `Set`; `Pending` while another change is to come; `Raced`.
    Set { limit: Name, was: Option<u64>, rule: Rule, after_ms: u64 },
    /// All definitions. → `Limits`.
    Limits,
    /// The limit's buckets, most issued first. → `Ledger`.
    Ledger { limit: Name, max: u32 },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draw {
    pub limit: Name,
    pub key: Key,
    pub want: u64,
    pub need: u64,
    pub book: Option<Book>,
}

/// So many permits of the next second, if the others leave them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Book {
    pub want: u64,
    pub weight: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exact {
    pub limit: Name,
    pub key: Key,
    pub cost: u64,
    /// A calendar quota: full at the beginning of each window. The node knows the calendar, the store the time.
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
    /// Grows with each ask of this node for this key.
    pub seq: u64,
    pub wants: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Drawn { hive_ms: u64, drawn: Vec<Result<Drawn, Undefined>> },
    Admitted { hive_ms: u64, left: Vec<Left> },
    Denied(Denied),
    Slots(Vec<Result<SlotsHeld, Undefined>>),
    Unfit,
    Set { version: u64, effective_ms: u64 },
    Pending { effective_ms: u64 },
    Raced,
    Limits { hive_ms: u64, version: u64, limits: Vec<Limit> },
    Ledger(Vec<BucketRow>),
    Done,
}

/// Nobody has defined this limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Undefined;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drawn {
    pub granted: u64,
    /// What is left.
    pub pool_u: u64,
    /// Of the definition it was drawn under.
    pub version: u64,
    /// If nothing was granted: until `max(need, 1)` is there. None: never.
    pub retry_ms: Option<u64>,
    /// Permits that come evenly over a second.
    pub booked: u64,
    /// From now until that second begins.
    pub begins_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    pub pool_u: u64,
    pub version: u64,
    /// Until the bucket is full, or its window ends.
    pub full_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denied {
    /// Which of those asked for; the first that has a reason.
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
    /// The window is not now.
    OtherWindow {
        hive_ms: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotsHeld {
    pub has: u64,
    /// Nobody's.
    pub free: u64,
    /// So many more than there are, of all nodes together, since there are fewer than before. Nothing is taken from anybody
    /// who uses it; but what comes back is not lent again.
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
    /// As of `pool_ms`: what has flowed back since is not in it.
    pub pool_u: u64,
    pub pool_ms: u64,
    /// Ever, with what has come of what was booked; slots: held now.
    pub issued_u: u64,
    /// Of the present second.
    pub booked_u: u64,
}

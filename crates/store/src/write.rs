//! Fenced writes: a list of operations in one transaction that first compares the lease row with the fence.
//! Each operation may be repeated without harm.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Document, Event, EventId, Key, Kind, Name, Priority, Stamp, Target};
use honeyflow_hive::Fence;
use honeyflow_runtime::Failure;

use crate::statement::Statement;

#[derive(Clone, Debug)]
pub struct Write {
    pub fence: Fence,
    pub ops: Vec<Op>,
}

/// Which run: what it works on, and by which workflow.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Settled {
    pub tenant: Name,
    pub entity: Name,
    pub key: Key,
    pub workflow: Name,
}

#[derive(Clone, Debug)]
pub enum Op {
    /// Runs have succeeded. Deletes exactly the rows read whose last obligation this was (absent = done), writes their
    /// `dedupe` marks, and clears failures, parked entries and checkpoints of `runs`.
    Settle { events: Vec<EventId>, runs: Vec<Settled> },
    /// An item was rejected and will be tried again: its attempts outlive the node.
    Charge { run: Settled, step: Name, index: u32, attempts: u32, due_in: Duration, failure: Failure },
    /// Set aside with its error; deletes `events` (those that owe nothing else) in the same transaction.
    Park(Box<Parked>),
    /// A row that cannot even be read (payload too large, unknown shape): moved whole, inside the database.
    ParkRow { event: EventId, failure: Failure },
    /// A step's output that a repeat must not compute again; its emitted events are stored with it, once.
    Checkpoint(Box<Checkpoint>),
    /// The event is kept under the name and key it leads to, for those who will wait for it within that time; once.
    Signal { event: Arc<Event>, target: Target, keep: Duration },
    /// The row is replaced by these, if it is still there.
    Replace { event: EventId, by: Vec<NewEvent> },
    /// One page of a fan-out: stores rows for the containers found and moves the `fan-out` row on, if it is still there.
    FanOut(Box<FanOut>),
    /// History of an ended run.
    History(Box<History>),
}

#[derive(Clone, Debug)]
pub struct Parked {
    pub run: Settled,
    /// A message's own id: each is data of its own. None: the data is read fresh, and a later success heals the entry.
    pub message: Option<EventId>,
    /// Deleted with it: those that owe nothing else.
    pub events: Vec<EventId>,
    pub priority: Priority,
    pub version: u32,
    pub step: Name,
    pub attempts: u32,
    pub failure: Failure,
    pub payload: Option<Arc<str>>,
    pub kind: Kind,
}

/// The step of a checkpoint that belongs to the run as a whole: when its time is over. No step has this name. It is not
/// taken up with a parked entry's outputs: whoever tries again has time again.
pub const OF_RUN: &str = "";

/// The index of a checkpoint that holds the list of a `for-each` step: behind every instance.
pub const OF_LIST: u32 = i32::MAX.cast_unsigned();

#[derive(Clone, Debug)]
pub struct Checkpoint {
    pub run: Settled,
    pub version: u32,
    /// The rows that form the run: on resume exactly these.
    pub covers: Vec<EventId>,
    pub phase: u32,
    pub step: Name,
    pub index: u32,
    pub attempt: u32,
    pub stamp: Stamp,
    pub outcome: Checkpointed,
    pub emit: Vec<NewEvent>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Checkpointed {
    Done(Document),
    Failed(Failure),
    Skipped,
    /// A sleep or wait began; it ends at this time of the store's clock (milliseconds since 1970).
    Until(i64),
}

/// An event to be stored. `id` makes it idempotent: an equal one is not stored twice.
#[derive(Clone, PartialEq, Debug)]
pub struct NewEvent {
    pub kind: Kind,
    pub tenant: Name,
    pub entity: Name,
    pub key: Key,
    pub priority: Priority,
    pub workflow: Option<Name>,
    /// Not before so long from now, by the store's clock.
    pub delay: Option<Duration>,
    pub dedupe: Option<Arc<str>>,
    pub traceparent: Option<Arc<str>>,
    pub root: Option<EventId>,
    pub payload: Option<Arc<str>>,
}

/// The row's payload is a JSON object of the source's own; the store sets `after` in it and keeps the rest. The next
/// position gets a new row, so that a repeat finds none and does nothing.
#[derive(Clone, Debug)]
pub struct FanOut {
    /// The `fan-out` row.
    pub event: EventId,
    /// The event that began it.
    pub root: EventId,
    pub tenant: Name,
    /// The configured entity whose documents are reached.
    pub entity: Name,
    pub workflow: Option<Name>,
    pub statement: Arc<Statement>,
    /// The cause: keys that go into the statement.
    pub causes: Vec<Key>,
    pub after: Option<Key>,
    pub page: u32,
    /// While so many rows of this priority are waiting, nothing is added and the row stays as it is.
    pub pending_max: u32,
}

#[derive(Clone, Debug)]
pub struct History {
    pub run: Settled,
    pub version: u32,
    pub verdict: &'static str,
    pub steps: serde_json::Value,
}

/// What a new owner finds.
#[derive(Clone, Default, Debug)]
pub struct Recovered {
    pub failures: Vec<Charged>,
    /// Those whose rows are all still there: without them the run cannot go on.
    pub checkpoints: Vec<Checkpoint>,
    pub paused: Vec<Pause>,
    pub store_ms: i64,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Charged {
    pub run: Settled,
    pub step: Name,
    pub index: u32,
    pub attempts: u32,
    pub due_in: Duration,
    pub failure: Failure,
}

#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Pause {
    /// `source`, `workflow`, `kind` or `sink`.
    pub noun: String,
    pub name: String,
    pub why: String,
    pub since_ms: i64,
}

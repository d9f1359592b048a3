//! Fenced writes: a list of operations in one transaction that first compares the lease row with the fence.
//! Each operation is idempotent.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Changes, Document, EventId, EventView, Key, Kind, Name, Priority, Stamp};
use honeyflow_hive::Fence;
use honeyflow_runtime::Failure;

use crate::statement::Statement;

#[derive(Clone, Debug)]
pub struct Write {
    pub fence: Fence,
    pub ops: Vec<Op>,
}

/// Identifies a run: what it works on, and under which workflow.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunKey {
    pub tenant: Name,
    pub entity: Name,
    pub key: Key,
    pub workflow: Name,
}

#[derive(Clone, Debug)]
pub enum Op {
    /// The runs have succeeded. Deletes exactly the rows that they read and that have no other obligation (an absent
    /// row is done), writes their `dedupe` marks, and clears the failures, parked entries and checkpoints of `runs`.
    Settle { events: Vec<EventId>, runs: Vec<RunKey> },
    /// An item was rejected and will be retried. Stores its counted attempts, so that they outlive the node.
    Charge { run: RunKey, step: Name, index: u32, attempts: u32, due_in: Duration, failure: Failure },
    /// Parks a run with its error; deletes `events` (rows without another obligation) in the same transaction.
    Park(Box<ParkRequest>),
    /// Parks a row that the node cannot read (payload too large, unknown shape): the database moves the whole row.
    ParkRow { event: EventId, failure: Failure },
    /// Stores a step's output, so that a repeated run does not execute the step again. Stores the events that the step
    /// emitted in the same transaction, once.
    Checkpoint(Box<Checkpoint>),
    /// Stores the event once, under the name and key of its target. A run that waits within `keep` receives it.
    Signal { event: Box<EventView>, keep: Duration },
    /// Replaces the row by these events, if the row still exists.
    Replace { event: EventId, by: Vec<NewEvent> },
    /// Executes one page of a fan-out: stores rows for the containers and advances the `fan-out` row, if that row still
    /// exists.
    FanOut(Box<FanOut>),
    /// Stores the history of an ended run.
    History(Box<History>),
}

#[derive(Clone, Debug)]
pub struct ParkRequest {
    pub run: RunKey,
    /// The id of a message: each message carries its own data. None: a run reads the current data, so a later success
    /// of the same key heals the entry.
    pub message: Option<EventId>,
    /// The rows to delete: rows of this run without another obligation.
    pub events: Vec<EventId>,
    pub priority: Priority,
    pub version: u32,
    pub step: Name,
    pub attempts: u32,
    pub failure: Failure,
    pub change: Changes,
    pub columns: Option<Arc<str>>,
    pub payload: Option<Arc<str>>,
    pub kind: Kind,
}

/// The step name of the checkpoint that stores a whole run's deadline. No step has this name. A retry of a parked entry
/// does not restore this checkpoint, so the retried run gets its full time again.
pub const WHOLE_RUN_STEP: &str = "";

/// The index of the checkpoint that holds the list of a `for-each` step: higher than that of every instance.
pub const LIST_INDEX: u32 = i32::MAX.cast_unsigned();

#[derive(Clone, Debug)]
pub struct Checkpoint {
    pub run: RunKey,
    pub version: u32,
    /// The rows that form the run. A resumed run consists of exactly these rows.
    pub covers: Vec<EventId>,
    pub phase: u32,
    pub step: Name,
    pub index: u32,
    pub attempt: u32,
    pub stamp: Stamp,
    pub outcome: CheckpointOutcome,
    pub emit: Vec<NewEvent>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum CheckpointOutcome {
    Done(Document),
    Failed(Failure),
    Skipped,
    /// A sleep or wait has started; it ends at this time of the store's clock (milliseconds since 1970).
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
    /// The event is due this long from now, by the store's clock.
    pub delay: Option<Duration>,
    pub dedupe: Option<Arc<str>>,
    pub traceparent: Option<Arc<str>>,
    pub root: Option<EventId>,
    pub change: Changes,
    /// The names of the changed columns, as a JSON list.
    pub columns: Option<Arc<str>>,
    pub payload: Option<Arc<str>>,
}

/// One page of a fan-out. The row's payload is a JSON object that the source defines; the store sets `after` in it and
/// keeps the rest. The next position gets a new row, so that a repeated request finds no row and does nothing.
#[derive(Clone, Debug)]
pub struct FanOut {
    /// The `fan-out` row.
    pub event: EventId,
    /// The event that started the fan-out.
    pub root: EventId,
    pub tenant: Name,
    /// The configured entity whose documents contain the changed rows.
    pub entity: Name,
    pub workflow: Option<Name>,
    pub statement: Arc<Statement>,
    /// The keys of the changed rows: the statement's `$keys`.
    pub causes: Vec<Key>,
    pub after: Option<Key>,
    pub page: u32,
    /// The payload of the containers' rows: it names the row whose change led to them.
    pub payload: Arc<str>,
    /// While this number of fan-out rows is waiting, the store adds nothing and the row stays as it is.
    pub pending_max: u32,
}

#[derive(Clone, Debug)]
pub struct History {
    pub run: RunKey,
    pub version: u32,
    pub verdict: &'static str,
    pub steps: serde_json::Value,
}

/// The stored state that a new owner of a shard continues from.
#[derive(Clone, Default, Debug)]
pub struct RecoveredState {
    pub failures: Vec<StoredFailure>,
    /// Checkpoints whose rows all still exist: without its rows a run cannot continue.
    pub checkpoints: Vec<Checkpoint>,
    pub paused: Vec<Pause>,
    pub store_ms: i64,
}

#[derive(Clone, PartialEq, Debug)]
pub struct StoredFailure {
    pub run: RunKey,
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

//! Reading the outbox. There is no cursor: every row that is still in the table has work to do. A position is only a
//! hint where a poll starts to read; sweeps read below it.

use honeyflow_event::{Event, EventId, Name, PRIORITY_LEVELS};

use crate::write::Checkpoint;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Poll {
    pub shard: u16,
    /// One entry per priority: read at most `room` rows with an id above `after`, lowest id first.
    pub levels: [Level; PRIORITY_LEVELS],
    /// Also read at most `newest` of the newest rows over all levels, so that a fresh change does not wait behind a
    /// backlog.
    pub newest: u32,
    /// Read from the start instead of above the positions, and return at most `room` rows that are not in `known`.
    pub sweep: Option<Sweep>,
    /// Rows that match one of these stay in the table: their entity or workflow cannot be processed now.
    pub passed_over: Vec<SkipRule>,
    /// A larger payload is not read; its row is listed in `oversized`.
    pub payload_bytes_max: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Level {
    pub after: EventId,
    pub room: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sweep {
    /// The first id to read (the low-water mark, or 0).
    pub from: EventId,
    /// The last id to read.
    pub to: EventId,
    pub room: u32,
    /// The sorted ids of the rows in flight: the sweep does not return them again.
    pub known: std::sync::Arc<Vec<EventId>>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SkipRule {
    /// The entity as written in the row.
    pub entity: Name,
    /// None: rows that have an obligation to every workflow.
    pub workflow: Option<Name>,
}

#[derive(Clone, Default, Debug)]
pub struct PollReply {
    /// The rows, ordered by priority, then id; the newest rows follow at the end. Rows with `ready_at` in the past are
    /// included. A row whose `dedupe` mark is stored repeats an event that is done: the store never returns it, but
    /// removes it.
    pub events: Vec<Event>,
    /// The number of rows at the end of `events` that were read out of turn because they are the newest.
    pub newest: usize,
    /// Rows that were not read: too large, or of a kind or shape that this binary does not know.
    pub oversized: Vec<UnreadRow>,
    /// The stored checkpoints of runs that a retry resumes; their rows are for one workflow. A run is listed only if
    /// all the rows that it covers are in `events`.
    pub resumed: Vec<Checkpoint>,
    /// The id up to which each level was read above its position: the poll returned or skipped every row up to here.
    /// Unlike the last returned id, it advances past a long stretch of skipped rows. A sweep does not set it.
    pub looked_to: [EventId; PRIORITY_LEVELS],
    /// The time until the next delayed row is due, in milliseconds of the store's clock.
    pub next_due_ms: Option<u64>,
    /// The store's clock, milliseconds since 1970.
    pub store_ms: i64,
    /// A number that changes whenever the database's schema changes.
    pub schema_version: i64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreadRow {
    pub id: EventId,
    pub bytes: u64,
}

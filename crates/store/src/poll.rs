//! Reading the outbox. There is no cursor: what is left in the table is what is to be done. A position is only a hint
//! where to look first; sweeps look below it.

use honeyflow_event::{Event, EventId, Name, PRIORITY_LEVELS};

use crate::write::Checkpoint;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Poll {
    pub shard: u16,
    /// By priority: at most `room` rows with an id above `after`, lowest first.
    pub levels: [Level; PRIORITY_LEVELS],
    /// And at most so many of the newest, over all levels, so that a fresh change does not wait behind a backlog.
    pub newest: u32,
    /// Look from the start instead of above the positions, and return at most `room` rows that `known` does not name.
    pub sweep: Option<Sweep>,
    /// Rows of these are left where they are: their entity or workflow cannot be worked on now.
    pub passed_over: Vec<PassedOver>,
    /// A larger payload is not read; its row is named in `oversized`.
    pub payload_bytes_max: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Level {
    pub after: EventId,
    pub room: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sweep {
    /// From here up (the low-water mark, or 0).
    pub from: EventId,
    /// Up to and including this id.
    pub to: EventId,
    pub room: u32,
    /// Rows in flight, sorted: not to be read again.
    pub known: std::sync::Arc<Vec<EventId>>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PassedOver {
    /// As written in the row.
    pub entity: Name,
    /// None: rows that owe every workflow.
    pub workflow: Option<Name>,
}

#[derive(Clone, Default, Debug)]
pub struct Polled {
    /// In the order of priority, then id; the newest last. Rows with `ready_at` in the past are among them.
    /// Rows whose `dedupe` mark is stored repeat what is done: they are never given out, and the store removes them.
    pub events: Vec<Event>,
    /// How many at the end of `events` are the newest, read out of turn.
    pub newest: usize,
    /// Rows that were not read: too large, or of a kind or shape that this binary does not know.
    pub oversized: Vec<Oversized>,
    /// What was kept of the runs that rows for one workflow take up again, after a retry. Only where all the rows that
    /// they cover are among `events`.
    pub resumed: Vec<Checkpoint>,
    /// How far each level was looked through above its position: rows up to here were returned or passed over. Unlike
    /// the last id returned it moves on past a long stretch of rows that are passed over. Not set by a sweep.
    pub looked_to: [EventId; PRIORITY_LEVELS],
    /// Milliseconds until the next delayed row is due, by the store's clock.
    pub next_due_ms: Option<u64>,
    /// The store's clock, milliseconds since 1970.
    pub store_ms: i64,
    /// Changes whenever the database's schema does.
    pub schema_version: i64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Oversized {
    pub id: EventId,
    pub bytes: u64,
}

//! The contract of a source of events. A poll returns events with the documents they lead to; the source follows edges
//! before runs exist, so that steps never resolve them.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use honeyflow_event::{Changes, Event, EventId, Key, Name, Target};
use honeyflow_runtime::Failure;
use honeyflow_store::{Poll, Statement, poll::UnreadRow, write::Checkpoint};
use smallvec::SmallVec;

pub trait Source: Send + Sync {
    fn poll(&self, request: Poll) -> BoxFuture<'static, Result<Intake, Failure>>;
}

/// The result of one poll.
#[derive(Clone, Default, Debug)]
pub struct Intake {
    pub taken: Vec<TakenEvent>,
    pub oversized: Vec<UnreadRow>,
    /// The checkpoints of runs that rows in `taken` continue, because a person has retried them.
    pub resumed: Vec<Checkpoint>,
    /// For each priority: the poll has found no other new row with an id up to this one.
    pub looked_to: [EventId; honeyflow_event::PRIORITY_LEVELS],
    pub next_due_ms: Option<u64>,
    pub store_ms: i64,
    pub schema_version: i64,
}

#[derive(Clone, Debug)]
pub struct TakenEvent {
    pub event: Arc<Event>,
    pub leads: Leads,
    /// The row was read from the newest end: it does not move the poll position.
    pub newest: bool,
}

/// What an event leads to.
#[derive(Clone, Debug)]
pub enum Leads {
    /// These documents: each is one obligation per workflow. If there are none, there is nothing to do.
    To(SmallVec<[Lead; 1]>),
    /// More than a page of documents, or documents of other shards: the row is replaced by these rows, with one
    /// `fan-out` row per large edge.
    Replace(Vec<honeyflow_store::NewEvent>),
    /// The row is the rest of a fan-out: its next page is to be stored.
    Page(Box<Page>),
    /// The row cannot be read: it is parked unchanged.
    Unreadable(Failure),
    /// Its edges cannot be followed now (a table is missing during a migration): the row stays, and polls skip its
    /// entity.
    Held(Failure),
}

/// One document that an event leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lead {
    pub target: Target,
    /// What the event means for the document: what changed in its own row, or that a row it reads has changed.
    pub change: Changes,
}

#[derive(Clone, Debug)]
pub struct Page {
    pub root: EventId,
    pub entity: Name,
    pub statement: Arc<Statement>,
    pub causes: Vec<Key>,
    pub after: Option<Key>,
}

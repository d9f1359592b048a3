//! The source contract: where events come from. A poll returns events with the documents they lead to; edges are
//! followed here, before runs exist, so that steps never resolve them.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use honeyflow_event::{Event, EventId, Key, Name, Target};
use honeyflow_runtime::Failure;
use honeyflow_store::{Poll, Statement, poll::Oversized, write::Checkpoint};
use smallvec::SmallVec;

pub trait Source: Send + Sync {
    fn poll(&self, request: Poll) -> BoxFuture<'static, Result<Intake, Failure>>;
}

/// One poll's harvest.
#[derive(Clone, Default, Debug)]
pub struct Intake {
    pub taken: Vec<Taken>,
    pub oversized: Vec<Oversized>,
    /// What was kept of runs that rows among `taken` take up again.
    pub resumed: Vec<Checkpoint>,
    /// By priority: nothing new lies at or below this id, as far as the poll has looked.
    pub looked_to: [EventId; honeyflow_event::PRIORITY_LEVELS],
    pub next_due_ms: Option<u64>,
    pub store_ms: i64,
    pub schema_version: i64,
}

#[derive(Clone, Debug)]
pub struct Taken {
    pub event: Arc<Event>,
    pub leads: Leads,
    /// Read from the other end, out of turn: it does not move the position.
    pub newest: bool,
}

/// Where an event leads.
#[derive(Clone, Debug)]
pub enum Leads {
    /// To these documents: one obligation each per workflow. None at all: nothing to do.
    To(SmallVec<[Target; 1]>),
    /// To more than a page: the row is replaced by one for its own documents and one `fan-out` row per large edge.
    Replace(Vec<honeyflow_store::NewEvent>),
    /// It is itself the rest of a fan-out: store the next page.
    Page(Box<Page>),
    /// It cannot be read: parked whole.
    Unreadable(Failure),
    /// Its edges cannot be followed now (a table is missing during a migration): it stays, and its entity is passed over.
    Held(Failure),
}

#[derive(Clone, Debug)]
pub struct Page {
    pub root: EventId,
    pub entity: Name,
    pub statement: Arc<Statement>,
    pub causes: Vec<Key>,
    pub after: Option<Key>,
}

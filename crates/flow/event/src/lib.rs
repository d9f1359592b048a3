//! The data that passes through the engine: events, keys, stamps, documents. Plain data; no clock, no I/O.

pub mod changes;
pub mod document;
pub mod key;
pub mod shard;
pub mod stamp;
pub mod view;

use std::sync::Arc;

pub use changes::Changes;
pub use document::Document;
pub use key::Key;
use serde::{Deserialize, Serialize};
pub use stamp::{Epoch, Stamp};
pub use view::EventView;

/// The name of a source, entity, workflow, step or sink, from the configuration.
pub type Name = Arc<str>;

/// Number of an event within its source: the outbox row's id. Never reused; says nothing about commit order.
pub type EventId = i64;

/// The priority of an event: 0 is served first, 9 last.
pub type Priority = u8;
pub const PRIORITY_DEFAULT: Priority = 4;
pub const PRIORITY_FAN_OUT: Priority = 7;
pub const PRIORITY_REINDEX: Priority = 8;
pub const PRIORITY_LEVELS: usize = 10;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// "This entity changed": the run reads the current data.
    Row,
    /// The payload is the data.
    Message,
    /// The rest of a large fan-out; the payload contains its position.
    FanOut,
    /// The table was truncated.
    Truncate,
}

/// One outbox row, or one message of a broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    pub id: EventId,
    pub format: u16,
    pub kind: Kind,
    pub tenant: Name,
    /// The captured table's name, or a configured entity's.
    pub entity: Name,
    pub key: Key,
    pub priority: Priority,
    /// The only workflow that the event is for; none: all.
    pub workflow: Option<Name>,
    /// Milliseconds since 1970 on the store's clock.
    pub created_ms: i64,
    pub dedupe: Option<Arc<str>>,
    pub traceparent: Option<Arc<str>>,
    /// The event whose fan-out made this one.
    pub root: Option<EventId>,
    /// What changed in the row.
    pub change: Changes,
    /// The names of the changed columns that a workflow asks for, as a JSON list; none if the writer did not say.
    pub columns: Option<Arc<str>>,
    pub payload: Option<Arc<str>>,
}

/// A document (or piece of work) that an event leads to, once edges have been followed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    pub entity: Name,
    pub key: Key,
}

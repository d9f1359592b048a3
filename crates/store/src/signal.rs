//! Signals: stored events for which a run waits, or may wait later. A run looks them up by name, and by key if it knows
//! the key.

use std::sync::Arc;

use honeyflow_event::{Event, Key, Name};

/// The signals that one wait looks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignalQuery {
    pub tenant: Name,
    pub name: Name,
    /// None: signals of any key.
    pub key: Option<Key>,
    /// Leave out signals that were stored before this time of the store's clock, even if they still exist.
    pub since_ms: i64,
    /// Only signals with a higher id.
    pub after: i64,
    pub limit: u32,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Signal {
    /// The ids rise in the order in which the signals were stored.
    pub id: i64,
    /// The event; its entity and key are the name and key of its target.
    pub event: Arc<Event>,
}

//! Events kept for those who will wait for them only later. They are looked up by name, and by key where that is known.

use std::sync::Arc;

use honeyflow_event::{Event, Key, Name};

/// What one wait looks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    pub tenant: Name,
    pub name: Name,
    /// None: of any key.
    pub key: Option<Key>,
    /// Not those that were kept before this time of the store's clock, even if they are still there.
    pub since_ms: i64,
    /// Only those behind this one.
    pub after: i64,
    pub limit: u32,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Signal {
    /// Rises in the order in which they were kept.
    pub id: i64,
    /// Under the name and key that it led to.
    pub event: Arc<Event>,
}

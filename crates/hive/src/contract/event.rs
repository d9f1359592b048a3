//! What happened in a hive, one entry per version of its view.

use std::fmt;

use honeyflow_event::{Epoch, Name};
use serde::Serialize;

use super::NodeId;

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Event {
    pub version: u64,
    pub at_ms: u64,
    pub kind: EventKind,
    /// Whom it concerns: who joined, was buried, holds now, or released.
    pub node: Option<NodeId>,
    pub lease: Option<Name>,
    /// Minted, or released.
    pub epoch: Option<Epoch>,
    pub cause: Name,
}

/// Stored by its text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    Joined,
    Ready,
    Unready,
    Eligible,
    Draining,
    Left,
    Buried,
    Taken,
    HandedOver,
    Released,
    /// A chore did not happen when it was due.
    Missed,
    /// The store is another one now.
    Lineage,
    /// A person has accepted what a restore brought back.
    Restored,
    /// Written by a newer version, which knows more kinds: whom it concerns is all that can be told.
    Unknown,
}

impl EventKind {
    /// Those that this version writes.
    pub const ALL: [EventKind; 13] = [
        EventKind::Joined,
        EventKind::Ready,
        EventKind::Unready,
        EventKind::Eligible,
        EventKind::Draining,
        EventKind::Left,
        EventKind::Buried,
        EventKind::Taken,
        EventKind::HandedOver,
        EventKind::Released,
        EventKind::Missed,
        EventKind::Lineage,
        EventKind::Restored,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            EventKind::Joined => "joined",
            EventKind::Ready => "ready",
            EventKind::Unready => "unready",
            EventKind::Eligible => "eligible",
            EventKind::Draining => "draining",
            EventKind::Left => "left",
            EventKind::Buried => "buried",
            EventKind::Taken => "taken",
            EventKind::HandedOver => "handed-over",
            EventKind::Released => "released",
            EventKind::Missed => "missed",
            EventKind::Lineage => "lineage",
            EventKind::Restored => "restored",
            EventKind::Unknown => "unknown",
        }
    }

    /// What a beat has changed, given (ready, eligible) before and after: at most two, in this order.
    pub fn of_beat(was: (bool, bool), is: (bool, bool)) -> impl Iterator<Item = EventKind> {
        let eligible = (was.1 != is.1).then_some(if is.1 { EventKind::Eligible } else { EventKind::Draining });
        let ready = (was.0 != is.0).then_some(if is.0 { EventKind::Ready } else { EventKind::Unready });
        eligible.into_iter().chain(ready)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// As it is stored.
impl From<&str> for EventKind {
    fn from(text: &str) -> EventKind {
        EventKind::ALL.into_iter().find(|kind| kind.as_str() == text).unwrap_or(EventKind::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_as_it_was_written() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from(kind.as_str()), kind);
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        assert_eq!(EventKind::from("swarmed"), EventKind::Unknown);
    }
}

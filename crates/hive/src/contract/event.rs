//! The events of a hive: one entry per version of its view.

use std::fmt;

use honeyflow_event::{Epoch, Name};
use serde::Serialize;

use super::NodeId;

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Event {
    pub version: u64,
    pub at_ms: u64,
    pub kind: EventKind,
    /// The node that joined, left, was removed, holds the lease now, or released it.
    pub node: Option<NodeId>,
    pub lease: Option<Name>,
    /// The epoch that was minted or released.
    pub epoch: Option<Epoch>,
    pub cause: Name,
}

/// What happened. The store keeps the text of [`EventKind::as_str`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    Joined,
    Ready,
    Unready,
    Eligible,
    Draining,
    Left,
    /// An expired member was removed.
    Buried,
    Taken,
    HandedOver,
    Released,
    /// A chore did not happen when it was due.
    Missed,
    /// Another server, with its own history, is the store now.
    Lineage,
    /// A person has accepted the state that a restore brought back.
    Restored,
    /// A newer release, which knows more kinds, has written it. Only its node and lease can be read.
    Unknown,
}

impl EventKind {
    /// The kinds that this release writes.
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

    /// The events of a heartbeat that changed (ready, eligible): at most two, in this order.
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

/// Reads the stored text.
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

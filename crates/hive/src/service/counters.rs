//! What has happened in this process's part of a hive, for metrics. Counted where it is carried out, read by anyone.

use std::{collections::BTreeMap, time::Duration};

use honeyflow_event::Name;

use crate::contract::{Event, EventKind, NodeId};

/// Causes are few; a store that tells of more is not believed.
const CAUSES_MAX: usize = 32;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Answered beats, and how long they took together.
    pub beats: u64,
    pub beats_took: Duration,
    /// Terms that began here, by the cause that stands in the lease.
    pub terms: BTreeMap<Name, u64>,
    /// Nodes that were buried, by whomever.
    pub burials: u64,
    /// Writes under a fence of this node that a store has refused.
    pub fences_refused: u64,
    /// Leases that were lost while whoever worked under them did not stop in time.
    pub unstopped: u64,
    /// Steps of the store's clock that were seen.
    pub clock_steps: u64,
}

impl Counters {
    pub(super) fn beat(&mut self, took: Duration) {
        self.beats += 1;
        self.beats_took += took;
    }

    pub(super) fn notice(&mut self, code: &str) {
        self.clock_steps += u64::from(code == "clock-step");
    }

    /// `me`: whose terms are counted.
    pub(super) fn events(&mut self, events: &[Event], me: Option<NodeId>) {
        for event in events {
            match event.kind {
                EventKind::Buried => self.burials += 1,
                EventKind::Taken | EventKind::HandedOver if event.node.is_some() && event.node == me => {
                    self.term(&event.cause);
                }
                _ => {}
            }
        }
    }

    fn term(&mut self, cause: &Name) {
        if self.terms.len() < CAUSES_MAX || self.terms.contains_key(cause) {
            *self.terms.entry(cause.clone()).or_default() += 1;
        }
    }
}

//! Counts what has happened on this node, for metrics. The heartbeat thread counts; any thread may read.

use std::{collections::BTreeMap, time::Duration};

use honeyflow_event::Name;

use crate::{
    codes,
    contract::{Event, EventKind, NodeId},
};

/// There are few causes. More of them are not counted, to bound the memory.
const CAUSES_MAX: usize = 32;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Answered heartbeats, and how long they took in total.
    pub beats: u64,
    pub beats_took: Duration,
    /// Terms that began on this node, by the cause in the lease row.
    pub terms: BTreeMap<Name, u64>,
    /// Expired members that any node has removed.
    pub removals: u64,
    /// Writes under a fence of this node that a store has refused.
    pub fences_refused: u64,
    /// Lost leases whose work did not stop in time.
    pub unstopped: u64,
    /// Steps of the store's clock that this node noticed.
    pub clock_steps: u64,
}

impl Counters {
    pub(super) fn beat(&mut self, took: Duration) {
        self.beats += 1;
        self.beats_took += took;
    }

    pub(super) fn notice(&mut self, code: &str) {
        self.clock_steps += u64::from(code == codes::notice::CLOCK_STEP);
    }

    /// Counts events. `me`: the node whose terms are counted.
    pub(super) fn events(&mut self, events: &[Event], me: Option<NodeId>) {
        for event in events {
            match event.kind {
                EventKind::Buried => self.removals += 1,
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

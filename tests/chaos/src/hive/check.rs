//! The independent checker: reads the log as it stands in the store and asks two rules about it.

use std::collections::{BTreeMap, BTreeSet};

use honeyflow_event::Epoch;
use honeyflow_invariant::{fence::Accepted, hive::accepted_epochs_never_fall};
use serde::Serialize;

use super::ledger::Entry;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Verdict {
    pub writes: u64,
    pub terms: u64,
    /// Accepted after a write under a higher epoch (HI-3, HI-11).
    pub stale: u64,
    /// Epochs under which two nodes have written (HI-1).
    pub shared_epochs: u64,
}

impl Verdict {
    pub fn add(&mut self, other: &Verdict) {
        self.writes += other.writes;
        self.terms += other.terms;
        self.stale += other.stale;
        self.shared_epochs += other.shared_epochs;
    }
}

/// In the order in which the store has accepted them.
pub fn judge(entries: &[Entry]) -> Verdict {
    let accepted: Vec<Accepted> = entries
        .iter()
        .map(|entry| Accepted { lease: entry.lease.as_str().into(), epoch: Epoch(entry.epoch) })
        .collect();
    let mut writers: BTreeMap<(&str, u64), BTreeSet<&str>> = BTreeMap::new();
    for entry in entries {
        writers.entry((&entry.lease, entry.epoch)).or_default().insert(&entry.node);
    }
    Verdict {
        writes: entries.len() as u64,
        terms: writers.len() as u64,
        stale: accepted_epochs_never_fall(&accepted).len() as u64,
        shared_epochs: writers.values().filter(|nodes| nodes.len() > 1).count() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(entries: &[(&str, u64, &str)]) -> Vec<Entry> {
        let entry = |(lease, epoch, node): &(&str, u64, &str)| Entry {
            lease: (*lease).to_owned(),
            epoch: *epoch,
            node: (*node).to_owned(),
            at_us: 0,
        };
        entries.iter().map(entry).collect()
    }

    #[test]
    fn hv_85_a_write_after_a_higher_epoch_is_stale() {
        let verdict = judge(&log(&[("a", 1, "x"), ("a", 2, "y"), ("a", 1, "x"), ("b", 1, "x"), ("a", 2, "y")]));
        assert_eq!((verdict.writes, verdict.stale, verdict.shared_epochs, verdict.terms), (5, 1, 0, 3));
    }

    #[test]
    fn hi_1_two_writers_of_one_epoch_are_seen() {
        assert_eq!(judge(&log(&[("a", 1, "x"), ("a", 1, "y")])).shared_epochs, 1);
    }
}

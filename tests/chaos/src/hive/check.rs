//! The independent checker. It reads the log from the store and tests two rules on it; a third rule is tested on what
//! the nodes have reported about their terms.

use std::collections::{BTreeMap, BTreeSet};

use honeyflow_event::Epoch;
use honeyflow_invariant::{fence::AcceptedWrite, hive::accepted_epochs_never_fall};
use serde::Serialize;

use super::{NodeMessage, ledger::Entry};

#[derive(Clone, Debug, Default, Serialize)]
pub struct Verdict {
    pub writes: u64,
    pub terms: u64,
    /// Writes that the store accepted after a write under a higher epoch (HI-3, HI-11).
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

/// Tests the entries, which stand in the order in which the store accepted them.
pub fn judge(entries: &[Entry]) -> Verdict {
    let accepted: Vec<AcceptedWrite> = entries
        .iter()
        .map(|entry| AcceptedWrite { lease: entry.lease.as_str().into(), epoch: Epoch(entry.epoch) })
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

/// When each term was good, on the machine's clock: at the latest from its first accepted write on, and at least until
/// it was last checked.
#[derive(Default)]
pub struct Terms(BTreeMap<String, BTreeMap<u64, GoodTime>>);

#[derive(Default)]
struct GoodTime {
    from_us: Option<u64>,
    until_us: Option<u64>,
}

impl Terms {
    pub fn record(&mut self, message: &NodeMessage) {
        match message {
            NodeMessage::Wrote { lease, epoch, at_us } => self.entry(lease, *epoch).from_us = Some(*at_us),
            NodeMessage::Tried { lease, epoch, good_us, .. } => self.entry(lease, *epoch).until_us = Some(*good_us),
            _ => {}
        }
    }

    fn entry(&mut self, lease: &str, epoch: u64) -> &mut GoodTime {
        self.0.entry(lease.to_owned()).or_default().entry(epoch).or_default()
    }

    /// True if the node that had this term has finished writing under it.
    pub fn is_over(&self, lease: &str, epoch: u64) -> bool {
        let good = self.0.get(lease).and_then(|terms| terms.get(&epoch));
        good.is_some_and(|good| good.until_us.is_some())
    }

    /// Counts the terms that began while an earlier term of the same lease was good (HI-4).
    pub fn overlaps(&self) -> u32 {
        let of_lease = |terms: &BTreeMap<u64, GoodTime>| {
            let (mut until_us, mut found) = (0, 0);
            for good in terms.values() {
                found += u32::from(good.from_us.is_some_and(|from_us| from_us < until_us));
                until_us = until_us.max(good.until_us.unwrap_or(0));
            }
            found
        };
        self.0.values().map(of_lease).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hi_4_a_term_that_is_good_after_its_successor_began_is_found() {
        let overlaps = |until_us: u64| {
            let mut terms = Terms::default();
            let wrote = |epoch, at_us| NodeMessage::Wrote { lease: "a".to_owned(), epoch, at_us };
            terms.record(&wrote(2, 50));
            terms.record(&wrote(1, 10));
            let lease = "a".to_owned();
            terms.record(&NodeMessage::Tried {
                lease,
                epoch: 1,
                accepted: 0,
                refused: 4,
                good_us: until_us,
                accepted_us: 0,
            });
            terms.overlaps()
        };
        assert_eq!((overlaps(49), overlaps(51)), (0, 1));
    }

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
    fn hi_1_two_writers_of_one_epoch_are_found() {
        assert_eq!(judge(&log(&[("a", 1, "x"), ("a", 1, "y")])).shared_epochs, 1);
    }
}

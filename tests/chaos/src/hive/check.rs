//! The independent checker: reads the log as it stands in the store and asks two rules about it. What bees have said
//! about their terms is asked a third one.

use std::collections::{BTreeMap, BTreeSet};

use honeyflow_event::Epoch;
use honeyflow_invariant::{fence::Accepted, hive::accepted_epochs_never_fall};
use serde::Serialize;

use super::{Said, ledger::Entry};

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

/// When terms were good, on the machine's clock: by the latest when the first write under one was accepted, and at least
/// until it was last looked at.
#[derive(Default)]
pub struct Terms(BTreeMap<String, BTreeMap<u64, Good>>);

#[derive(Default)]
struct Good {
    from_us: Option<u64>,
    until_us: Option<u64>,
}

impl Terms {
    pub fn hear(&mut self, said: &Said) {
        match said {
            Said::Wrote { lease, epoch, at_us } => self.of(lease, *epoch).from_us = Some(*at_us),
            Said::Tried { lease, epoch, good_us, .. } => self.of(lease, *epoch).until_us = Some(*good_us),
            _ => {}
        }
    }

    fn of(&mut self, lease: &str, epoch: u64) -> &mut Good {
        self.0.entry(lease.to_owned()).or_default().entry(epoch).or_default()
    }

    /// Whoever had it has written all that it will under it.
    pub fn is_over(&self, lease: &str, epoch: u64) -> bool {
        let good = self.0.get(lease).and_then(|terms| terms.get(&epoch));
        good.is_some_and(|good| good.until_us.is_some())
    }

    /// Terms that began while an earlier one of the same lease was good (HI-4).
    pub fn at_once(&self) -> u32 {
        let of_lease = |terms: &BTreeMap<u64, Good>| {
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
    fn hi_4_a_term_that_is_good_after_its_successor_began_is_seen() {
        let at_once = |until_us: u64| {
            let mut terms = Terms::default();
            let wrote = |epoch, at_us| Said::Wrote { lease: "a".to_owned(), epoch, at_us };
            terms.hear(&wrote(2, 50));
            terms.hear(&wrote(1, 10));
            let lease = "a".to_owned();
            terms.hear(&Said::Tried { lease, epoch: 1, accepted: 0, refused: 4, good_us: until_us, accepted_us: 0 });
            terms.at_once()
        };
        assert_eq!((at_once(49), at_once(51)), (0, 1));
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
    fn hi_1_two_writers_of_one_epoch_are_seen() {
        assert_eq!(judge(&log(&[("a", 1, "x"), ("a", 1, "y")])).shared_epochs, 1);
    }
}

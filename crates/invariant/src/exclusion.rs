//! I3: the grants of a key do not overlap, in the order of the holder's own counter and not of clocks; an epoch has one
//! holder. I8: the same for a duty of the cluster, whose epochs rise with every grant.

use std::collections::BTreeMap;

use honeyflow_event::Epoch;

use crate::Breach;

/// A run's exclusive hold on a key. `opened` and `closed` are positions in its holder's own history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The incarnation that holds the key.
    pub holder: u64,
    /// What the run excludes: entity and key, and the workflow if runs exclude only those of their workflow.
    pub key: String,
    pub run: u64,
    pub opened: u64,
    pub closed: u64,
}

pub fn exclusion(grants: &[Grant]) -> Vec<Breach> {
    let mut sorted: Vec<&Grant> = grants.iter().collect();
    sorted.sort_by(|a, b| (a.holder, &a.key, a.opened).cmp(&(b.holder, &b.key, b.opened)));
    let mut breaches = Vec::new();
    for pair in sorted.windows(2) {
        let [before, after] = pair else { continue };
        if before.holder == after.holder && before.key == after.key && after.opened < before.closed {
            let what = format!("run {} of {} began while run {} was open", after.run, after.key, before.run);
            breaches.push(Breach::new("I3", what));
        }
    }
    breaches
}

/// A term that a node believes it holds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HeldTerm {
    pub lease: String,
    pub epoch: Epoch,
    pub holder: u64,
}

pub fn one_holder_per_epoch(held: &[HeldTerm]) -> Vec<Breach> {
    let mut holders: BTreeMap<(&str, Epoch), u64> = BTreeMap::new();
    let mut breaches = Vec::new();
    for HeldTerm { lease, epoch, holder } in held {
        let first = *holders.entry((lease, *epoch)).or_insert(*holder);
        if first != *holder {
            let what = format!("epoch {} of {lease} was held by incarnations {first} and {holder}", epoch.0);
            breaches.push(Breach::new("I3", what));
        }
    }
    breaches
}

/// Checks the grants of the cluster's duties, in the order in which the store made them.
pub fn duties_are_held_by_one(granted: &[HeldTerm]) -> Vec<Breach> {
    let mut last: BTreeMap<&str, &HeldTerm> = BTreeMap::new();
    let mut breaches = Vec::new();
    for held in granted {
        if let Some(before) = last.insert(&held.lease, held)
            && before.epoch >= held.epoch
        {
            let (lease, before, after) = (&held.lease, before, held);
            let what = format!(
                "{lease}: incarnation {} was granted epoch {} after incarnation {} had epoch {}",
                after.holder, after.epoch.0, before.holder, before.epoch.0
            );
            breaches.push(Breach::new("I8", what));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    fn grant(holder: u64, key: &str, opened: u64, closed: u64) -> Grant {
        Grant { holder, key: key.to_owned(), run: opened, opened, closed }
    }

    #[test]
    fn i3_runs_of_a_key_follow_each_other() {
        let good = [grant(1, "a", 0, 5), grant(1, "a", 5, 9), grant(1, "b", 2, 7), grant(2, "a", 3, 4)];
        assert_eq!(exclusion(&good), []);
        assert_eq!(ids(&exclusion(&[grant(1, "a", 0, 5), grant(1, "a", 4, 9)])), ["I3"]);
        assert_eq!(ids(&exclusion(&[grant(1, "a", 3, 4), grant(1, "a", 0, u64::MAX)])), ["I3"], "in any order");
    }

    #[test]
    fn i3_an_epoch_has_one_holder() {
        let held = |epoch, holder| HeldTerm { lease: "shard/shop/0".to_owned(), epoch: Epoch(epoch), holder };
        assert_eq!(one_holder_per_epoch(&[held(1, 1), held(2, 2), held(2, 2), held(3, 1)]), []);
        assert_eq!(ids(&one_holder_per_epoch(&[held(1, 1), held(1, 2)])), ["I3"]);
        assert_eq!(ids(&one_holder_per_epoch(&[held(1, 1), held(2, 1), held(1, 3)])), ["I3"]);
    }

    #[test]
    fn i8_epochs_of_a_duty_rise() {
        let held = |lease: &str, epoch, holder| HeldTerm { lease: lease.to_owned(), epoch: Epoch(epoch), holder };
        assert_eq!(duties_are_held_by_one(&[held("duty/a", 1, 1), held("duty/b", 1, 2), held("duty/a", 2, 1)]), []);
        assert_eq!(ids(&duties_are_held_by_one(&[held("duty/a", 2, 1), held("duty/a", 2, 2)])), ["I8"], "two holders");
        assert_eq!(ids(&duties_are_held_by_one(&[held("duty/a", 2, 1), held("duty/a", 1, 1)])), ["I8"], "it fell");
    }
}

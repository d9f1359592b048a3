//! I4 and I5: rules for the writes that a store or a sink has accepted, in the order in which it accepted them.

use std::collections::BTreeMap;

use honeyflow_event::{Epoch, Key, Name, Stamp};

use crate::Breach;

/// A fenced write that the store has executed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcceptedWrite {
    pub lease: Name,
    pub epoch: Epoch,
}

pub fn epochs_never_fall<'a>(accepted: impl IntoIterator<Item = &'a AcceptedWrite>) -> Vec<Breach> {
    let mut highest: BTreeMap<&str, Epoch> = BTreeMap::new();
    let mut breaches = Vec::new();
    for AcceptedWrite { lease, epoch } in accepted {
        let before = highest.entry(lease).or_default();
        if *epoch < *before {
            let what = format!("{lease}: a write of epoch {} was accepted after one of epoch {}", epoch.0, before.0);
            breaches.push(Breach::new("I4", what));
        }
        *before = (*before).max(*epoch);
    }
    breaches
}

/// A write that a sink has applied. `loaded` is the change that the load of this stamp read, `carried` the change that
/// the document shows, if known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AppliedWrite {
    pub sink: Name,
    pub key: Key,
    pub stamp: Stamp,
    pub loaded: Option<u64>,
    pub carried: Option<u64>,
}

pub fn stamps_increase<'a>(applied: impl IntoIterator<Item = &'a AppliedWrite>) -> Vec<Breach> {
    let mut last: BTreeMap<(&str, &str), Stamp> = BTreeMap::new();
    let mut breaches = Vec::new();
    for AppliedWrite { sink, key, stamp, loaded, carried } in applied {
        let before = last.insert((sink, key), *stamp);
        if before.is_some_and(|before| before >= *stamp) {
            let before = before.unwrap_or_default();
            breaches.push(Breach::new("I5", format!("{sink}: {key} was written under {stamp} after {before}")));
        }
        if let (Some(loaded), Some(carried)) = (loaded, carried)
            && loaded != carried
        {
            let what = format!("{sink}: {key} under {stamp} carries change {carried}, its load read {loaded}");
            breaches.push(Breach::new("I5", what));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    #[test]
    fn i4_accepted_epochs_never_fall() {
        let accepted = |lease: &str, epoch| AcceptedWrite { lease: lease.into(), epoch: Epoch(epoch) };
        assert_eq!(epochs_never_fall(&[accepted("a", 3), accepted("b", 1), accepted("a", 3), accepted("a", 4)]), []);
        assert_eq!(ids(&epochs_never_fall(&[accepted("a", 3), accepted("a", 2)])), ["I4"]);
        assert_eq!(
            ids(&epochs_never_fall(&[accepted("a", 3), accepted("a", 1), accepted("a", 2)])),
            ["I4", "I4"],
            "each is reported"
        );
    }

    /// The epoch is the high part of a stamp: every stamp of a new term is above all stamps of an older term.
    #[test]
    fn hi_11_accepted_epochs_of_a_key_never_fall() {
        let applied = |key: &str, epoch, sequence| AppliedWrite {
            sink: "s".into(),
            key: key.into(),
            stamp: Stamp::new(Epoch(epoch), sequence),
            loaded: None,
            carried: None,
        };
        let rises = [applied("a", 3, 900), applied("b", 2, 1), applied("a", 3, 901), applied("a", 4, 0)];
        assert_eq!(stamps_increase(&rises), []);
        assert_eq!(ids(&stamps_increase(&[applied("a", 4, 0), applied("a", 3, 902)])), ["I5"]);
    }

    #[test]
    fn i5_stamps_of_a_key_increase_and_match_the_loaded_change() {
        let applied = |key: &str, stamp, loaded, carried| AppliedWrite {
            sink: "s".into(),
            key: key.into(),
            stamp: Stamp(stamp),
            loaded,
            carried,
        };
        let good = [applied("a", 1, Some(1), Some(1)), applied("b", 1, None, Some(9)), applied("a", 2, Some(2), None)];
        assert_eq!(stamps_increase(&good), []);
        assert_eq!(ids(&stamps_increase(&[applied("a", 2, None, None), applied("a", 1, None, None)])), ["I5"]);
        assert_eq!(ids(&stamps_increase(&[applied("a", 2, None, None), applied("a", 2, None, None)])), ["I5"]);
        assert_eq!(ids(&stamps_increase(&[applied("a", 2, Some(4), Some(3))])), ["I5"]);
    }
}

//! HI-1 to HI-5 and HI-8 to HI-11: rules that a hive never breaks, independent of its nodes, clocks and store.

use std::collections::BTreeMap;

use honeyflow_event::Epoch;

use crate::{
    Breach,
    fence::{AcceptedWrite, epochs_never_fall},
};

/// A lease that got a new holder and epoch. The records are in the order in which the store made them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MintedLease {
    pub lease: String,
    pub epoch: Epoch,
    pub holder: String,
}

/// HI-1 and HI-2: an epoch has one holder, and a lease's epochs only grow.
pub fn epochs_grow(minted: &[MintedLease]) -> Vec<Breach> {
    let mut last: BTreeMap<&str, Epoch> = BTreeMap::new();
    let mut holders: BTreeMap<(&str, Epoch), &str> = BTreeMap::new();
    let mut breaches = Vec::new();
    for MintedLease { lease, epoch, holder } in minted {
        let first = *holders.entry((lease, *epoch)).or_insert(holder);
        if first != holder {
            let what = format!("epoch {} of {lease} was minted for {first} and for {holder}", epoch.0);
            breaches.push(Breach::new("HI-1", what));
        }
        let before = last.insert(lease, *epoch).unwrap_or_default();
        if *epoch <= before {
            let what = format!("{lease}: epoch {} was minted after {}", epoch.0, before.0);
            breaches.push(Breach::new("HI-2", what));
        }
    }
    breaches
}

/// HI-3 and HI-11: the epochs of accepted writes never fall.
pub fn accepted_epochs_never_fall<'a>(accepted: impl IntoIterator<Item = &'a AcceptedWrite>) -> Vec<Breach> {
    let fallen = epochs_never_fall(accepted);
    fallen.into_iter().map(|breach| Breach::new("HI-3", breach.what)).collect()
}

/// The time during which a term was valid on the node that held it, on one clock for all nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TermInterval {
    pub lease: String,
    pub epoch: Epoch,
    pub holder: String,
    pub from: u64,
    pub until: u64,
}

/// HI-4: two terms of one lease are never valid at once.
pub fn terms_do_not_overlap(reigns: &[TermInterval]) -> Vec<Breach> {
    let mut sorted: Vec<&TermInterval> = reigns.iter().filter(|reign| reign.from < reign.until).collect();
    sorted.sort_by(|a, b| (&a.lease, a.from, a.until).cmp(&(&b.lease, b.from, b.until)));
    let mut breaches = Vec::new();
    for pair in sorted.windows(2) {
        let [before, after] = pair else { continue };
        if before.lease == after.lease && after.from < before.until && before.holder != after.holder {
            let what = format!(
                "{}: epoch {} of {} began at {}, while epoch {} of {} was valid until {}",
                before.lease, after.epoch.0, after.holder, after.from, before.epoch.0, before.holder, before.until
            );
            breaches.push(Breach::new("HI-4", what));
        }
    }
    breaches
}

/// HI-4: a node's trust ends before other nodes may treat it as expired.
pub fn trust_ends_before_expiry(node: &str, trusted_until: u64, expires: u64) -> Option<Breach> {
    let what = || format!("{node} trusts itself until {trusted_until}, and expires at {expires}");
    (trusted_until > expires).then(|| Breach::new("HI-4", what()))
}

/// HI-5: every lease has a living holder within the limit after the last fault.
pub fn leases_are_held(vacant: &[&str], after_ms: u64, limit_ms: u64) -> Vec<Breach> {
    if after_ms < limit_ms {
        return Vec::new();
    }
    let say =
        |lease: &&str| Breach::new("HI-5", format!("{lease} has no living holder {after_ms} ms after the last fault"));
    vacant.iter().map(say).collect()
}

/// The content of a version as one node has received it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceivedVersion {
    pub node: String,
    /// The origin and lineage of the version.
    pub of: String,
    pub version: u64,
    pub content: String,
}

/// HI-8: a version has the same content on every node, and the versions that a node receives rise.
pub fn versions_mean_one_content(shown: &[ReceivedVersion]) -> Vec<Breach> {
    let mut contents: BTreeMap<(&str, u64), (&str, &str)> = BTreeMap::new();
    let mut last: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut breaches = Vec::new();
    for ReceivedVersion { node, of, version, content } in shown {
        let (first, was) = *contents.entry((of, *version)).or_insert((node, content));
        if was != content {
            let what = format!("version {version} is {was:?} for {first} and {content:?} for {node}");
            breaches.push(Breach::new("HI-8", what));
        }
        let before = last.insert((of, node), *version);
        if before.is_some_and(|before| before >= *version) {
            let what = format!("{node} was shown version {version} after {}", before.unwrap_or_default());
            breaches.push(Breach::new("HI-8", what));
        }
    }
    breaches
}

/// HI-8: versions within a lineage have no gap, in the order in which the store wrote them.
pub fn versions_have_no_gap(versions: &[u64]) -> Vec<Breach> {
    let gaps = versions.windows(2).filter(|pair| pair[1] != pair[0] + 1);
    gaps.map(|pair| Breach::new("HI-8", format!("version {} follows {}", pair[1], pair[0]))).collect()
}

/// HI-9: after a quiet time every node knows the number of nodes.
pub fn counts_are_true(known: &[(String, Option<u64>)], truth: u64) -> Vec<Breach> {
    let wrong = known.iter().filter(|(_, count)| *count != Some(truth));
    let say = |(node, count): &(String, Option<u64>)| {
        Breach::new("HI-9", format!("{node} counts {count:?}, there are {truth}"))
    };
    wrong.map(say).collect()
}

/// HV-30: a node that knows no count divides by at least the expected count.
pub fn unknown_is_not_one(node: &str, count: Option<u64>, divisor: u64, expected: u64) -> Option<Breach> {
    let wrong = count.is_none() && divisor < expected;
    wrong.then(|| Breach::new("HI-9", format!("{node} knows no count and divides by {divisor}, not by {expected}")))
}

/// HI-10: a living member whose heartbeats arrive is never removed. `silent_ms` is the time since its last heartbeat
/// was written.
pub fn no_live_member_is_removed(node: &str, silent_ms: u64, ttl_ms: u64) -> Option<Breach> {
    let what =
        || format!("{node} was removed {silent_ms} ms after its last heartbeat; its time to live is {ttl_ms} ms");
    (silent_ms < ttl_ms).then(|| Breach::new("HI-10", what()))
}

/// HI-3 for published counts: a queen of an earlier epoch writes nothing.
pub fn published_epochs_never_fall(epochs: &[Epoch]) -> Vec<Breach> {
    let falls = epochs.windows(2).filter(|pair| pair[1] < pair[0]);
    let say = |pair: &[Epoch]| Breach::new("HI-3", format!("a count of epoch {} replaced {}", pair[1].0, pair[0].0));
    falls.map(say).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    /// A rule that no checker calls protects nothing.
    #[test]
    fn hv_80_every_rule_is_called_by_a_checker() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let checkers = ["tests/model", "tests/sim", "tests/chaos"].map(|folder| sources(&root.join(folder)));
        let checkers = checkers.concat();
        let rules = include_str!("hive.rs").lines().filter_map(|line| line.strip_prefix("pub fn "));
        for rule in rules.map(|rule| rule.split(['(', '<']).next().unwrap_or_default()) {
            assert!(checkers.iter().any(|source| source.contains(&format!("{rule}("))), "no checker calls {rule}");
        }
    }

    fn sources(folder: &std::path::Path) -> Vec<String> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                found.extend(sources(&entry));
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                found.push(std::fs::read_to_string(&entry).expect("readable"));
            }
        }
        found
    }

    #[test]
    fn hi_1_and_2_epochs_have_one_holder_and_grow() {
        let minted =
            |epoch, holder: &str| MintedLease { lease: "queen".into(), epoch: Epoch(epoch), holder: holder.to_owned() };
        assert_eq!(epochs_grow(&[minted(1, "a"), minted(3, "a"), minted(4, "b")]), []);
        assert_eq!(ids(&epochs_grow(&[minted(3, "a"), minted(2, "a")])), ["HI-2"]);
        assert_eq!(ids(&epochs_grow(&[minted(3, "a"), minted(3, "b")])), ["HI-1", "HI-2"]);
    }

    #[test]
    fn hi_3_accepted_epochs_never_fall() {
        let accepted = |epoch| AcceptedWrite { lease: "queen".into(), epoch: Epoch(epoch) };
        assert_eq!(accepted_epochs_never_fall(&[accepted(1), accepted(1), accepted(2)]), []);
        assert_eq!(ids(&accepted_epochs_never_fall(&[accepted(2), accepted(1)])), ["HI-3"]);
        assert_eq!(published_epochs_never_fall(&[Epoch(1), Epoch(1), Epoch(4)]), []);
        assert_eq!(ids(&published_epochs_never_fall(&[Epoch(4), Epoch(1)])), ["HI-3"]);
    }

    #[test]
    fn hi_4_two_terms_are_never_valid_at_once() {
        let reign = |holder: &str, from, until| TermInterval {
            lease: "queen".into(),
            epoch: Epoch(from),
            holder: holder.to_owned(),
            from,
            until,
        };
        assert_eq!(terms_do_not_overlap(&[reign("a", 0, 5), reign("b", 5, 9), reign("b", 8, 12)]), []);
        assert_eq!(ids(&terms_do_not_overlap(&[reign("b", 4, 9), reign("a", 0, 5)])), ["HI-4"]);
        assert_eq!(trust_ends_before_expiry("a", 5, 5), None);
        assert!(trust_ends_before_expiry("a", 6, 5).is_some());
    }

    #[test]
    fn hi_5_a_vacant_lease_is_found_once_its_time_is_over() {
        assert_eq!(leases_are_held(&["queen"], 6_999, 7_000), []);
        assert_eq!(ids(&leases_are_held(&["queen", "duty/a"], 7_000, 7_000)), ["HI-5", "HI-5"]);
    }

    #[test]
    fn hi_8_a_version_has_one_content() {
        let shown = |node: &str, version, content: &str| ReceivedVersion {
            node: node.to_owned(),
            of: "o".into(),
            version,
            content: content.to_owned(),
        };
        assert_eq!(versions_mean_one_content(&[shown("a", 1, "x"), shown("b", 1, "x"), shown("a", 3, "y")]), []);
        assert_eq!(ids(&versions_mean_one_content(&[shown("a", 1, "x"), shown("b", 1, "y")])), ["HI-8"]);
        assert_eq!(ids(&versions_mean_one_content(&[shown("a", 2, "x"), shown("a", 1, "y")])), ["HI-8"]);
        assert_eq!(versions_have_no_gap(&[4, 5, 6]), []);
        assert_eq!(ids(&versions_have_no_gap(&[4, 6, 6])), ["HI-8", "HI-8"]);
    }

    #[test]
    fn hi_9_and_10_counts_are_true_and_no_live_member_is_removed() {
        let known = |count| ("a".to_owned(), count);
        assert_eq!(counts_are_true(&[known(Some(3))], 3), []);
        assert_eq!(ids(&counts_are_true(&[known(None), known(Some(2)), known(Some(3))], 3)), ["HI-9", "HI-9"]);
        assert!(unknown_is_not_one("a", None, 1, 16).is_some());
        assert!(unknown_is_not_one("a", None, 16, 16).is_none() && unknown_is_not_one("a", Some(1), 1, 16).is_none());
        assert!(no_live_member_is_removed("a", 5_999, 6_000).is_some());
        assert!(no_live_member_is_removed("a", 6_000, 6_000).is_none());
    }
}

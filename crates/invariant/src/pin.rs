//! I15: a run and phase have one definition version, over all owners and attempts.

use std::collections::BTreeMap;

use crate::Breach;

/// The definition version that one owner used for a run and phase.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PinnedVersion {
    /// Identifies the run over all its owners: entity, key, workflow and the rows that its journal covers.
    pub run: String,
    pub phase: u32,
    pub version: u32,
}

pub fn one_version<'a>(pinned: impl IntoIterator<Item = &'a PinnedVersion>) -> Vec<Breach> {
    let mut first: BTreeMap<(&str, u32), u32> = BTreeMap::new();
    let mut breaches = Vec::new();
    for PinnedVersion { run, phase, version } in pinned {
        let began = *first.entry((run, *phase)).or_insert(*version);
        if began != *version {
            let what = format!("{run}, phase {phase}, began under version {began} and continued under {version}");
            breaches.push(Breach::new("I15", what));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    fn pinned(run: &str, phase: u32, version: u32) -> PinnedVersion {
        PinnedVersion { run: run.to_owned(), phase, version }
    }

    #[test]
    fn i15_a_run_has_one_version() {
        assert_eq!(one_version(&[pinned("a", 0, 1), pinned("b", 0, 2), pinned("a", 0, 1)]), []);
        assert_eq!(one_version(&[pinned("a", 0, 1), pinned("a", 1, 2)]), [], "each phase has its own version");
        assert_eq!(ids(&one_version(&[pinned("a", 0, 1), pinned("a", 0, 2)])), ["I15"]);
        assert_eq!(ids(&one_version(&[pinned("a", 0, 2), pinned("a", 0, 1), pinned("a", 0, 3)])), ["I15", "I15"]);
    }
}

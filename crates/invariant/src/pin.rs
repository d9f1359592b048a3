//! I15: a run and phase have one version, over all owners and attempts.

use std::collections::BTreeMap;

use crate::Breach;

/// What some owner did for a run, and by which version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pinned {
    /// Whatever names the run over all its owners: entity, key, workflow and the rows that its journal covers.
    pub run: String,
    pub phase: u32,
    pub version: u32,
}

pub fn one_version<'a>(pinned: impl IntoIterator<Item = &'a Pinned>) -> Vec<Breach> {
    let mut first: BTreeMap<(&str, u32), u32> = BTreeMap::new();
    let mut breaches = Vec::new();
    for Pinned { run, phase, version } in pinned {
        let began = *first.entry((run, *phase)).or_insert(*version);
        if began != *version {
            let what = format!("{run}, phase {phase}, began by version {began} and went on by {version}");
            breaches.push(Breach::new("I15", what));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    fn pinned(run: &str, phase: u32, version: u32) -> Pinned {
        Pinned { run: run.to_owned(), phase, version }
    }

    #[test]
    fn i15_a_run_has_one_version() {
        assert_eq!(one_version(&[pinned("a", 0, 1), pinned("b", 0, 2), pinned("a", 0, 1)]), []);
        assert_eq!(one_version(&[pinned("a", 0, 1), pinned("a", 1, 2)]), [], "each phase begins by its own");
        assert_eq!(ids(&one_version(&[pinned("a", 0, 1), pinned("a", 0, 2)])), ["I15"]);
        assert_eq!(ids(&one_version(&[pinned("a", 0, 2), pinned("a", 0, 1), pinned("a", 0, 3)])), ["I15", "I15"]);
    }
}

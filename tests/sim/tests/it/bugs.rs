//! Every planted bug is found: a simulator that stays green with a planted bug proves nothing.

use honeyflow_sim::{bugs, campaign::plant, run};

const SEEDS_MAX: u64 = 1000;

/// RL-43, WF-173; PB-1 PB-2 PB-3 PB-4 PB-5 PB-7 PB-11 PB-12 PB-13 PB-14 PB-15 PB-16 PB-17 PB-18 PB-19 PB-20 PB-21 PB-22
/// PB-23 PB-24 PB-25 PB-28 PB-29 PB-39 PB-40 PB-41 PB-42
#[test]
fn rl_43_every_planted_bug_is_found() {
    // A void seed proves nothing; a panic of the core counts as a find.
    every_bug_is_found(bugs(), SEEDS_MAX, |seed| !run(seed).breaches.is_empty());
}

/// Plants each bug, and plays the seed that is known to find it, then the other seeds.
pub fn every_bug_is_found(bugs: &[(&'static str, u64)], seeds_max: u64, finds: impl Fn(u64) -> bool) {
    let mut survivors = Vec::new();
    for (bug, known) in bugs {
        plant(Some(bug));
        let found = std::iter::once(*known).chain(1..=seeds_max).find(|seed| finds(*seed));
        plant(None);
        match found {
            Some(seed) if seed == *known => {}
            Some(seed) => println!("{bug} is found by seed {seed}, not by {known}"),
            None => survivors.push(*bug),
        }
    }
    assert!(survivors.is_empty(), "not found by {seeds_max} seeds: {survivors:?}");
}

#[test]
fn without_a_bug_the_same_seeds_hold() {
    for (bug, seed) in bugs() {
        let outcome = run(*seed);
        assert!(outcome.is_good(), "{bug}: seed {seed} fails by itself: {:?} {:?}", outcome.breaches, outcome.void);
    }
}

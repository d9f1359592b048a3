//! Every bug that can be planted is found: seeds that stay green with one of them on are worth nothing.

use honeyflow_hive::planted::plant;

use crate::world::check::run;

/// HV-86. What is local to a statement is planted in the memory backend, which stands for all of them here.
const BUGS: &[&str] = &[
    "PB-1",
    "trust from reply time",
    "deaf node renews",
    "bury without the watched beat",
    "0 as 1 when unknown",
    "take without epoch compare",
    "lineage not compared",
    "count unfenced",
    "plain epoch",
    "renew by name only",
    "answers of another store",
    "sitting out is warm",
];

const SEEDS_MAX: u64 = 600;

#[test]
fn hv_86_every_planted_bug_is_found() {
    let mut survivors = Vec::new();
    for bug in BUGS {
        plant(Some(bug));
        let found = (1..=SEEDS_MAX).find(|seed| !run(*seed).breaches.is_empty());
        plant(None);
        match found {
            Some(seed) => println!("{bug}: found by seed {seed}"),
            None => survivors.push(*bug),
        }
    }
    assert!(survivors.is_empty(), "not found by {SEEDS_MAX} seeds: {survivors:?}");
}

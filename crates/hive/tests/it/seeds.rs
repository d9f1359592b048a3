//! Many seeds hold; the same seed is the same history.

use std::fmt::Write;

use crate::world::check::{Outcome, run};

fn describe(outcome: &Outcome) -> String {
    let mut text = format!("{:#?}\n", outcome.plan);
    for breach in outcome.breaches.iter().take(10) {
        let _ = writeln!(text, "  {breach}");
    }
    let seed = outcome.plan.options.seed;
    let _ = writeln!(text, "again: HIVE_SEED={seed} cargo test -p honeyflow-hive --test it one_seed -- --nocapture");
    text
}

/// HV-82: how many is said by `HIVE_SEEDS`.
#[test]
fn hv_82_seeds_hold() {
    let count = std::env::var("HIVE_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(200);
    let mut failed = Vec::new();
    let (mut granted, mut accepted, mut refused, mut buried, mut slowest) = (0, 0, 0, 0, 0);
    for seed in 1..=count {
        let outcome = run(seed);
        granted += outcome.granted;
        accepted += outcome.accepted;
        refused += outcome.refused;
        buried += outcome.buried;
        slowest = slowest.max(outcome.held_after_ms.unwrap_or(0));
        if !outcome.breaches.is_empty() {
            failed.push(describe(&outcome));
            if failed.len() > 3 {
                break;
            }
        }
    }
    println!("{count} seeds: {granted} terms, {accepted} writes, {refused} refused, {buried} buried, {slowest} ms");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(refused > 100 && buried > 100, "{refused} refused, {buried} buried: these seeds prove nothing");
}

#[test]
fn hv_82_the_same_seed_is_the_same_history() {
    let traces = || (900..910).map(|seed| run(seed).trace).collect::<Vec<u64>>();
    let first = traces();
    assert_eq!(first, traces());
    assert_eq!(first.iter().collect::<std::collections::BTreeSet<_>>().len(), 10);
}

/// One seed by itself.
#[test]
fn one_seed() {
    let Some(seed) = std::env::var("HIVE_SEED").ok().and_then(|seed| seed.parse().ok()) else { return };
    let outcome = run(seed);
    println!("{outcome:#?}");
    assert!(outcome.breaches.is_empty(), "{}", describe(&outcome));
}

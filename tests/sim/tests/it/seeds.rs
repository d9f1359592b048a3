//! Seeds: a thousand new ones, those that once failed, and one that fails on purpose.

use honeyflow_invariant::Breach;
use honeyflow_sim::{
    Outcome,
    campaign::{describe, play, play_with},
    options::Options,
    run, world,
};

/// Seeds that once found a bug, with a description of it. They always run.
const FAILED_ONCE: &[(u64, &str)] = &[
    (1, "a wake-up that leads nowhere; a batch with a wrong count parked as a whole"),
    (6, "rows of a key overtook the ones that its checkpoints cover, and an event was emitted twice"),
    (12, "a covered row found no room in its key"),
    (30, "rows left in the table filled every sweep"),
    (86, "rows that wait for a covered one filled the memory"),
    (264, "the same, with room for one row"),
    (569, "a refused write was judged by a stamp that it did not carry"),
    (813, "the same"),
    (904, "the same"),
    (14554, "a row was deleted before the park that paid another of its obligations was written"),
    (21828, "a row was forgotten before its last obligation had committed, and read again"),
    (284, "a shard without a stamp kept the others waiting"),
    (372, "a key waited for a covered row that had become a fan-out"),
    (1226, "an item on trial was parked for what its neighbours did"),
];

fn assert_good(failed: &[Outcome]) {
    let shown: Vec<String> = failed.iter().map(describe).collect();
    assert!(failed.is_empty(), "{}", shown.join("\n"));
}

/// RL-33, RL-42, WF-171. Owners die between lease and use (F01), are cut off (F05), get no answers (F06, F17) or late
/// ones (F18); transactions hold low ids (F23), clocks differ (F31), events come twice (F32), in any order (F33) and
/// poisoned (F34); rows are deleted and created again (F64).
#[test]
fn rl_33_a_thousand_seeds_hold() {
    let report = play(1, 1000, 5, |_| {});
    println!("{report}");
    assert_good(&report.failed);
    assert!(report.is_good(), "{report}");
    assert_eq!(report.seeds, 1000);
    let total = &report.total;
    assert!(total.stale_refused > 100 && total.fenced > 100 && total.late_commits > 1000, "{report}");
}

/// RL-16, F41: a sink may forget a delete after the time by which a write can be late; forgetting it at once does harm
/// (PB-28).
#[test]
fn rl_16_sinks_may_forget_deletes_after_a_while() {
    for seed in 8000..8030 {
        let mut options = Options::draw(seed);
        options.forgets_after = 20;
        let outcome = world::run_with(&options);
        assert!(outcome.breaches.is_empty(), "{}", describe(&outcome));
    }
}

/// RL-36: the rules hold under the same faults with each of the two generators.
#[test]
fn rl_36_both_generators_hold() {
    for seed in 8100..8120 {
        let traces = [1, 2].map(|generator| {
            let mut options = Options::draw(seed);
            options.generator = generator;
            let outcome = world::run_with(&options);
            assert!(outcome.breaches.is_empty(), "{}", describe(&outcome));
            outcome.trace
        });
        assert_ne!(traces[0], traces[1]);
    }
}

#[test]
fn rl_38_seeds_that_once_failed_hold() {
    for (seed, why) in FAILED_ONCE {
        let outcome = run(*seed);
        assert!(outcome.is_good(), "{why}\n{}", describe(&outcome));
    }
}

#[test]
fn rl_35_the_same_seed_is_the_same_history() {
    let first = play_traces(5000);
    let second = play_traces(5000);
    assert_eq!(first, second);
    let distinct: std::collections::BTreeSet<u64> = first.iter().copied().collect();
    assert_eq!(distinct.len(), first.len(), "different seeds have different histories");
}

fn play_traces(start: u64) -> Vec<u64> {
    (start..start + 50).map(|seed| run(seed).trace).collect()
}

/// RL-42: a rule that fails on purpose in one seed of a hundred must be reported, with its seed.
#[test]
fn rl_42_a_canary_is_reported() {
    let sings = |seed: u64| {
        let mut outcome = run(seed);
        if seed % 100 == 7 {
            outcome.breaches.push(Breach::new("canary", "on purpose"));
        }
        outcome
    };
    let report = play_with(7000, 20, 5, |_| {}, sings);
    let failed: Vec<u64> = report.failed.iter().map(|outcome| outcome.options.seed).collect();
    assert_eq!(failed, [7007]);
    assert!(describe(&report.failed[0]).contains("cargo xtask sim --seed 7007"));
}

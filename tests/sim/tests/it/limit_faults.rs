//! Limits under faults: many seeds hold, the same seed is the same history, and every planted bug is found.

use std::collections::BTreeSet;

use honeyflow_sim::limit::faults::{
    campaign::{describe, play},
    run,
};

/// HV-60, HV-64, HV-65, HV-68, HV-70, HV-71, HI-7: under all faults nothing is admitted that should not be, and
/// afterwards everything can be taken again. `cargo xtask sim --limits --seeds N` plays more seeds.
#[test]
fn hv_60_limits_hold_while_everything_fails() {
    let report = play(1, 100, 4, |_| {});
    println!("{report}");
    let shown: Vec<String> = report.failed.iter().map(describe).collect();
    assert!(shown.is_empty(), "{}", shown.join("\n"));
    assert!(report.seeds == 100 && report.is_good(), "{report}: these seeds prove nothing");
}

/// The store lost a change before it was in force; a clock went back while the next second was reserved.
#[test]
fn hv_60_seeds_that_failed_once_hold() {
    for seed in [2_067, 2_155] {
        let outcome = run(seed);
        assert!(outcome.breaches.is_empty(), "{}", describe(&outcome));
    }
}

#[test]
fn hv_60_the_same_seed_is_the_same_history() {
    let traces = || (900..906).map(|seed| run(seed).trace).collect::<Vec<u64>>();
    let first = traces();
    assert_eq!(first, traces());
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 6);
}

#[test]
fn hv_60_a_failing_seed_is_one_command() {
    assert!(describe(&run(7)).contains("cargo xtask sim --limits --seed 7\n"));
}

#[cfg(feature = "planted")]
mod planted {
    use honeyflow_sim::limit::faults::{campaign::bugs, run};

    use crate::bugs::every_bug_is_found;

    /// HV-86
    #[test]
    fn hv_86_every_bug_planted_in_the_limiter_is_found() {
        every_bug_is_found(bugs(), 300, |seed| !run(seed).breaches.is_empty());
    }

    /// Without the planted bug the same seeds hold, so it is the bug that they find.
    #[test]
    fn hv_86_without_a_bug_the_same_limits_hold() {
        for (bug, seed) in bugs() {
            let outcome = run(*seed);
            assert!(outcome.breaches.is_empty(), "{bug}: seed {seed} fails by itself: {:?}", outcome.breaches);
        }
    }
}

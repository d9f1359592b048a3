//! Limits under load, each scenario for a short while; `cargo xtask bench limit-accuracy` plays them in full.

use honeyflow_sim::limit::{SCENARIOS, run};
#[cfg(feature = "planted")]
use honeyflow_sim::limit::{Scenario, load::Load};

/// HV-87, HI-7: no window admits too much, and what is admitted is nearly all that one central bucket would.
#[test]
fn hv_87_every_scenario_keeps_to_the_limit_and_near_a_central_bucket() {
    for scenario in SCENARIOS {
        let seconds = if scenario.name == "store-down" { 120 } else { 60 };
        for seed in 1..=2 {
            let figures = run(scenario, 1_000, seconds, seed);
            let name = scenario.name;
            assert!(figures.breaches.is_empty(), "{name}, seed {seed}: {}", figures.breaches[0]);
            assert!(figures.share() >= scenario.share_min, "{name}, seed {seed}: share {:.4}", figures.share());
            assert!(figures.window <= scenario.window_max, "{name}, seed {seed}: window {:.4}", figures.window);
        }
    }
}

/// HV-91: a hot limit costs the store little, however much is asked for.
#[test]
fn hv_91_operations_stay_few() {
    let even = SCENARIOS.iter().find(|scenario| scenario.name == "even").expect("it is there");
    let figures = run(even, 1_000, 60, 1);
    assert!(figures.calls_per_node <= 21.0, "in overload {:.1}/s", figures.calls_per_node);
    let figures = run(even, 100_000, 3, 1);
    assert!(figures.calls * 40 <= figures.requests, "{} calls for {} requests", figures.calls, figures.requests);
}

/// The same seed plays the same run.
#[test]
fn a_seed_is_one_history() {
    let zipf = SCENARIOS.iter().find(|scenario| scenario.name == "zipf").expect("it is there");
    let [first, second] = [(); 2].map(|()| run(zipf, 1_000, 10, 7));
    assert_eq!((first.requests, first.admitted, first.calls), (second.requests, second.admitted, second.calls));
    assert_ne!(first.requests, run(zipf, 1_000, 10, 8).requests);
}

/// HV-86: a batch that does not die is seen.
#[cfg(feature = "planted")]
#[test]
fn hv_86_a_batch_without_local_death_is_found() {
    let even = SCENARIOS.iter().find(|scenario| scenario.name == "even").expect("it is there");
    let spike = Scenario { name: "spike", load: Load::Spike, demand: 0.9, ..*even };
    let found = |bug| {
        honeyflow_hive::planted::plant(bug);
        let breaches = (1..=4).flat_map(|seed| run(&spike, 1_000, 36, seed).breaches).count();
        honeyflow_hive::planted::plant(None);
        breaches
    };
    assert_eq!(found(None), 0);
    assert!(found(Some("batch-lives-on")) > 0);
}

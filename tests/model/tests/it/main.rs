//! The model as a test: every future of a small hive with two faults keeps the rules; with a planted bug one breaks
//! them.

use honeyflow_model::{Futures, TESTED, explore};

fn futures(bug: Option<&'static str>) -> Futures {
    Futures { beginnings: TESTED.to_vec(), bug }
}

/// HV-81, HI-1, HI-2, HI-3, HI-4, HI-5, HI-10: all rules hold for every pair of faults; `cargo xtask model` explores
/// deeper.
#[test]
fn hv_81_every_future_with_two_faults_keeps_the_rules() {
    let explored = explore(futures(None));
    println!("{} states, {} deep", explored.states, explored.deepest);
    assert!(explored.holds(), "{explored:#?}");
    assert!(explored.states > 10_000, "{} states are too few to mean anything", explored.states);
}

/// HV-81, HV-86: the model finds the planted bugs.
#[cfg(feature = "planted")]
#[test]
fn hv_86_the_model_finds_planted_bugs() {
    const BUGS: [(&str, &[&str]); 4] = [
        ("PB-1", &["HI-3"]),
        ("take without epoch compare", &["HI-4"]),
        ("lineage not compared", &["HI-2", "HI-4"]),
        ("plain epoch", &["HI-1", "HI-2"]),
    ];
    for (bug, rules) in BUGS {
        let explored = explore(futures(Some(bug)));
        let broken: Vec<&str> = explored.broken.iter().map(|(rule, ..)| *rule).collect();
        println!("{bug}: {} states, {:?}", explored.states, explored.broken);
        assert!(broken.iter().any(|rule| rules.contains(rule)), "{bug}: {broken:?}");
    }
}

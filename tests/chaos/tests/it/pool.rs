//! Ten faults on scripted servers. `cargo xtask chaos pool` plays a thousand, also on real servers.

use honeyflow_chaos::pool::{Options, Part, run};

/// PL-187
#[test]
fn pl_187_a_pool_is_whole_after_every_fault() {
    let report = run(&Options { part: Part::Scripted, rounds: 10, callers: 16, seed: 7 }).unwrap();
    println!("{}", serde_json::to_string(&report).unwrap());
    assert!(report.holds(), "the pool shrank, something leaked, or a request hung or read a wrong value");
    assert!(report.faults.len() >= 5, "too few kinds of faults: {:?}", report.faults);
}

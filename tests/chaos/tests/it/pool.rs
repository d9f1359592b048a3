//! Ten faults on scripted servers; a thousand, and real ones, by `cargo xtask chaos pool`.

use honeyflow_chaos::pool::{Options, Part, run};

/// PL-187
#[test]
fn pl_187_a_pool_is_whole_after_every_fault() {
    let report = run(&Options { part: Part::Scripted, rounds: 10, callers: 16, seed: 7 }).unwrap();
    println!("{}", serde_json::to_string(&report).unwrap());
    assert!(report.holds(), "something shrank, leaked, hung or was wrong");
    assert!(report.faults.len() >= 5, "too little was tried: {:?}", report.faults);
}

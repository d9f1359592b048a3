//! The node, killed under load again and again: the rounds of `cargo xtask chaos embedded` that every test run can pay.

use honeyflow_chaos::embedded::{Options, run};

fn campaign(rounds: u32, kill: bool, seed: u64) {
    let options = Options { binary: env!("CARGO_BIN_EXE_honeyflow").into(), rounds, kill, seed };
    let report = run(&options).unwrap_or_else(|error| panic!("{error}"));
    let shown = serde_json::to_string_pretty(&report).unwrap_or_default();
    assert!(report.holds(), "{shown}");
    assert!(report.rounds_with_open_runs * 5 >= rounds * 4, "idle nodes were signalled, which proves nothing: {shown}");
    assert!(report.proof.documents_expected > 10_000, "{shown}");
}

/// RL-1, I1, I2
#[test]
fn ten_kills_under_load_lose_nothing_and_resurrect_nothing() {
    campaign(10, true, 1);
}

/// F58: a first TERM drains; nothing is lost, and the next node goes on.
#[test]
fn f58_ten_drains_under_load_lose_nothing() {
    campaign(10, false, 2);
}

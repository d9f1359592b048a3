//! Kills or drains a node repeatedly under load: a short version of `cargo xtask chaos embedded` for every test run.

use honeyflow_chaos::embedded::{Options, run};

fn campaign(rounds: u32, kill: bool, seed: u64) {
    let options = Options { binary: env!("CARGO_BIN_EXE_honeyflow").into(), rounds, kill, seed };
    let report = run(&options).unwrap_or_else(|error| panic!("{error}"));
    let shown = serde_json::to_string_pretty(&report).unwrap_or_default();
    assert!(report.holds(), "{shown}");
    assert!(
        report.rounds_with_open_runs * 5 >= rounds * 4,
        "most signals hit an idle node, so the campaign proves nothing: {shown}"
    );
    assert!(report.proof.documents_expected > 10_000, "{shown}");
}

/// RL-1, I1, I2
#[test]
fn ten_kills_under_load_lose_nothing_and_resurrect_nothing() {
    campaign(10, true, 1);
}

/// F58: a first TERM drains the node; nothing is lost, and the next node continues.
#[test]
fn f58_ten_drains_under_load_lose_nothing() {
    campaign(10, false, 2);
}

//! The suite that every connector passes, on a cluster in memory, in both modes.

mod exclusive {
    honeyflow_pool::conformance!(honeyflow_pool::testing::memory::Exclusive, start_paused = true);
}

mod shared {
    honeyflow_pool::conformance!(honeyflow_pool::testing::memory::Shared, start_paused = true);
}

/// PL-143: a behaviour that was written down and not named to the macro would be shown by nobody.
#[test]
fn pl_143_the_whole_suite_is_run() {
    let (suite, macros) = (include_str!("../../src/testing/suite.rs"), include_str!("../../src/testing.rs"));
    let behaviours: Vec<&str> =
        suite.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('<').next()).collect();
    assert!(behaviours.len() >= 12, "{behaviours:?}");
    for name in behaviours {
        assert!(macros.lines().any(|line| line.trim() == name), "{name} is not run");
    }
}

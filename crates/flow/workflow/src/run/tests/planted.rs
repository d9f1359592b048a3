//! The tests find each planted bug: they fail with the bug and pass without it.

use std::panic::catch_unwind;

use super::*;

/// Checks that each of these tests fails with the bug, and passes without it.
#[expect(clippy::disallowed_methods, reason = "a test may have threads")]
fn found_by(bug: &'static str, tests: &[fn()]) {
    for test in tests {
        let test = *test;
        // in a separate thread: the planted bug ends with it
        let outcome = std::thread::spawn(move || {
            crate::planted::plant(Some(bug));
            let failed = catch_unwind(test).is_err();
            crate::planted::plant(None);
            (failed, catch_unwind(test).is_ok())
        });
        assert_eq!(outcome.join().unwrap(), (true, true), "{bug}: (fails with the bug, passes without)");
    }
}

fn random_graphs() {
    table::run_cases(1..9, 3000);
}

#[test]
fn pb_23_a_child_that_starts_after_one_of_two_parents_is_found() {
    found_by("PB-23", &[wf_42_a_step_starts_only_after_all_its_needs, random_graphs]);
}

#[test]
fn a_verdict_without_failed_leaves_is_found() {
    found_by("failure-verdict", &[emcee_failing_leaf_fails_run, random_graphs]);
}

#[test]
fn a_join_that_is_never_decided_after_a_skip_is_found() {
    found_by("join-skip", &[emcee_join_after_skipped_branch_is_decided, random_graphs]);
}

#[test]
fn counting_cancelled_as_succeeded_is_found() {
    found_by("count C as S", &[wf_53_a_cancelled_run_is_never_a_success]);
}

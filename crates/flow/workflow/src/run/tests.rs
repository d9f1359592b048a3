//! Tests of the rules of triggers, verdicts and ends, one by one; [`table`] checks all of them on random graphs.

#[cfg(feature = "planted")]
mod planted;
mod table;

use serde_json::json;

use super::*;
use crate::sample::graph;

/// Ends every ready step as `ends` says by name (default: succeeded) until no step is ready.
fn play(graph: &Graph, ends: &[(&str, End)]) -> Run {
    let mut ready = Vec::new();
    let mut run = Run::begin(graph, &mut ready);
    finish(graph, &mut run, ready, ends);
    run
}

fn finish(graph: &Graph, run: &mut Run, mut ready: Vec<StepId>, ends: &[(&str, End)]) {
    while let Some(step) = ready.pop() {
        let end = ends.iter().find(|(name, _)| *name == &*graph[step].name).map_or(End::Succeeded, |(_, end)| *end);
        assert!(run.end(graph, step, end, &mut ready));
    }
}

fn state(graph: &Graph, run: &Run, name: &str) -> State {
    run.state(graph, graph.step(name).unwrap())
}

fn names(graph: &Graph, steps: &[StepId]) -> Vec<String> {
    let mut names: Vec<String> = steps.iter().map(|step| graph[*step].name.to_string()).collect();
    names.sort();
    names
}

#[test]
fn emcee_join_with_failed_parent_is_blocked() {
    let graph = graph(json!({
        "good": { "use": "work" }, "bad": { "use": "work" },
        "join": { "use": "work", "needs": ["good", "bad"] },
    }));
    let run = play(&graph, &[("bad", End::Failed)]);
    assert_eq!(state(&graph, &run, "join"), State::Blocked);
    assert_eq!(run.verdict(&graph), Some(Verdict::Failed));
}

#[test]
fn emcee_join_after_skipped_branch_is_decided() {
    let graph = graph(json!({
        "good": { "use": "work" },
        "maybe": { "use": "work", "when": "$event.payload.maybe" },
        "after": { "use": "work", "needs": ["maybe"] },
        "strict": { "use": "work", "needs": ["good", "after"] },
        "lenient": { "use": "work", "needs": ["good", "after"], "trigger": "none-failed" },
    }));
    let run = play(&graph, &[("maybe", End::Skipped)]);
    assert_eq!(state(&graph, &run, "after"), State::Skipped);
    assert_eq!(state(&graph, &run, "strict"), State::Skipped);
    assert_eq!(state(&graph, &run, "lenient"), State::Succeeded);
    assert_eq!(run.verdict(&graph), Some(Verdict::Succeeded));
}

#[test]
fn emcee_failing_leaf_fails_run() {
    let graph = graph(json!({ "load": { "use": "work" }, "leaf": { "use": "work", "needs": ["load"] } }));
    assert_eq!(play(&graph, &[("leaf", End::Failed)]).verdict(&graph), Some(Verdict::Failed));
    assert_eq!(play(&graph, &[]).verdict(&graph), Some(Verdict::Succeeded));
}

#[test]
fn emcee_failure_below_success_edge_fails_run() {
    let graph = graph(json!({ "load": { "use": "work" }, "index": { "use": "work", "needs": ["load"] } }));
    let run = play(&graph, &[("load", End::Failed)]);
    assert_eq!(state(&graph, &run, "index"), State::Blocked);
    assert_eq!(run.verdict(&graph), Some(Verdict::Failed));
}

#[test]
fn emcee_all_done_does_not_hide_failure() {
    let graph = graph(json!({
        "work": { "use": "work" },
        "clean": { "use": "work", "needs": ["work"], "trigger": "all-done" },
        "tell": { "use": "work", "needs": ["work"], "trigger": "one-failed" },
    }));
    let run = play(&graph, &[("work", End::Failed)]);
    assert_eq!(state(&graph, &run, "clean"), State::Succeeded);
    assert_eq!(state(&graph, &run, "tell"), State::Succeeded);
    assert_eq!(run.verdict(&graph), Some(Verdict::Failed));
}

#[test]
fn wf_40_each_trigger_reads_its_row_of_the_table() {
    // the ends of two needs, and the result of each of the six triggers
    use End::{Failed as F, Skipped as K, Succeeded as S};
    use State::{Blocked, Skipped, Succeeded as Runs};
    let rules = ["all-success", "none-failed", "one-success", "all-done", "one-failed", "all-failed"];
    let rows = [
        (S, S, [Runs, Runs, Runs, Runs, Skipped, Skipped]),
        (S, K, [Skipped, Runs, Runs, Runs, Skipped, Skipped]),
        (S, F, [Blocked, Blocked, Runs, Runs, Runs, Skipped]),
        (K, K, [Skipped, Skipped, Skipped, Runs, Skipped, Skipped]),
        (K, F, [Blocked, Blocked, Blocked, Runs, Runs, Skipped]),
        (F, F, [Blocked, Blocked, Blocked, Runs, Runs, Runs]),
    ];
    for (n, rule) in rules.into_iter().enumerate() {
        let graph = graph(json!({
            "a": { "use": "work" }, "b": { "use": "work" },
            "join": { "use": "work", "needs": ["a", "b"], "trigger": rule },
        }));
        for (a, b, expected) in &rows {
            for (a, b) in [(*a, *b), (*b, *a)] {
                let run = play(&graph, &[("a", a), ("b", b)]);
                assert_eq!(state(&graph, &run, "join"), expected[n], "{rule} over {a:?} and {b:?}");
            }
        }
    }
}

#[test]
fn wf_4_edges_of_one_join_may_differ() {
    let graph = graph(json!({
        "a": { "use": "work" }, "b": { "use": "work" }, "c": { "use": "work" },
        "join": { "use": "work", "needs": ["a", { "step": "b", "on": "done" }, { "step": "c", "on": "failure" }] },
    }));
    let join = |ends: &[(&str, End)]| state(&graph, &play(&graph, ends), "join");
    assert_eq!(join(&[("b", End::Failed), ("c", End::Failed)]), State::Succeeded);
    assert_eq!(join(&[("b", End::Skipped), ("c", End::Failed)]), State::Succeeded);
    assert_eq!(join(&[]), State::Skipped, "c did not fail");
    assert_eq!(join(&[("a", End::Failed), ("c", End::Failed)]), State::Blocked);
}

#[test]
fn wf_4_a_failure_edge_counts_blocked_as_failed() {
    let graph = graph(json!({
        "first": { "use": "work" },
        "second": { "use": "work", "needs": ["first"] },
        "rescue": { "use": "work", "needs": [{ "step": "second", "on": "failure" }] },
    }));
    let run = play(&graph, &[("first", End::Failed)]);
    assert_eq!(state(&graph, &run, "second"), State::Blocked);
    assert_eq!(state(&graph, &run, "rescue"), State::Succeeded);
}

#[test]
fn wf_7_a_failed_optional_step_is_seen_as_succeeded_but_shown_as_failed() {
    let graph = graph(json!({
        "load": { "use": "work" },
        "author": { "use": "work", "needs": ["load"], "optional": true },
        "index": { "use": "sink", "needs": ["load", "author"] },
        "told": { "use": "work", "needs": [{ "step": "author", "on": "failure" }] },
    }));
    let run = play(&graph, &[("author", End::Failed)]);
    assert_eq!(state(&graph, &run, "author"), State::Failed);
    assert_eq!(state(&graph, &run, "index"), State::Succeeded);
    assert_eq!(state(&graph, &run, "told"), State::Succeeded, "a failure edge sees the raw state");
    assert_eq!(run.verdict(&graph), Some(Verdict::Succeeded));
    let run = play(&graph, &[("load", End::Failed)]);
    assert_eq!(state(&graph, &run, "index"), State::Blocked, "only a failure of the optional step itself is ignored");
}

#[test]
fn wf_42_a_step_starts_only_after_all_its_needs() {
    let graph = graph(json!({
        "a": { "use": "work" }, "b": { "use": "work" },
        "join": { "use": "work", "needs": ["a", "b"], "trigger": "one-success" },
    }));
    let mut ready = Vec::new();
    let mut run = Run::begin(&graph, &mut ready);
    assert_eq!(names(&graph, &ready), ["a", "b"]);
    ready.clear();
    assert!(run.end(&graph, graph.step("a").unwrap(), End::Succeeded, &mut ready));
    assert_eq!((names(&graph, &ready), state(&graph, &run, "join")), (vec![], State::Pending));
    assert!(run.end(&graph, graph.step("b").unwrap(), End::Failed, &mut ready));
    assert_eq!(names(&graph, &ready), ["join"]);
}

#[test]
fn wf_43_nothing_to_do_is_a_success() {
    let graph = graph(json!({
        "load": { "use": "work", "when": "$event.kind == 1" }, "index": { "use": "sink", "needs": ["load"] },
    }));
    let run = play(&graph, &[("load", End::Skipped)]);
    assert_eq!(state(&graph, &run, "index"), State::Skipped);
    assert_eq!(run.verdict(&graph), Some(Verdict::Succeeded));
}

#[test]
fn wf_43_there_is_no_verdict_while_a_step_is_open() {
    let graph = graph(json!({ "a": { "use": "work" }, "b": { "use": "work" } }));
    let mut ready = Vec::new();
    let mut run = Run::begin(&graph, &mut ready);
    assert!(run.end(&graph, 0, End::Failed, &mut ready));
    assert_eq!((run.ended(&graph), run.verdict(&graph)), (false, None));
    assert!(run.end(&graph, 1, End::Succeeded, &mut ready));
    assert_eq!((run.ended(&graph), run.verdict(&graph)), (true, Some(Verdict::Failed)));
}

#[test]
fn wf_44_only_a_dependent_that_succeeded_forgives() {
    let graph = graph(json!({
        "work": { "use": "work" },
        "undo": { "use": "work", "needs": [{ "step": "work", "on": "failure" }], "forgives": true },
    }));
    assert_eq!(play(&graph, &[("work", End::Failed)]).verdict(&graph), Some(Verdict::Succeeded));
    let both = [("work", End::Failed), ("undo", End::Failed)];
    assert_eq!(play(&graph, &both).verdict(&graph), Some(Verdict::Failed));
}

#[test]
fn wf_44_forgiveness_passes_backwards_through_blocked_steps() {
    let graph = graph(json!({
        "first": { "use": "work" },
        "second": { "use": "work", "needs": ["first"] },
        "third": { "use": "work", "needs": ["second"] },
        "undo": { "use": "work", "needs": [{ "step": "third", "on": "failure" }], "forgives": true },
    }));
    assert_eq!(play(&graph, &[("first", End::Failed)]).verdict(&graph), Some(Verdict::Succeeded));
    assert_eq!(play(&graph, &[("third", End::Failed)]).verdict(&graph), Some(Verdict::Succeeded));
}

#[test]
fn wf_44_forgiveness_does_not_pass_through_a_step_that_succeeded() {
    let graph = graph(json!({
        "work": { "use": "work" },
        "note": { "use": "work", "needs": [{ "step": "work", "on": "done" }] },
        "end": { "use": "work", "needs": ["note"], "forgives": true },
    }));
    assert_eq!(play(&graph, &[("work", End::Failed)]).verdict(&graph), Some(Verdict::Failed));
}

#[test]
fn wf_44_a_blocked_sink_that_is_not_forgiven_fails_the_run() {
    let steps = |optional: bool, forgives: bool| {
        graph(json!({
            "load": { "use": "work" },
            "undo": { "use": "work", "needs": [{ "step": "load", "on": "failure" }], "forgives": true },
            "index": { "use": "sink", "needs": ["load"], "optional": optional },
            "tell": { "use": "work", "needs": [{ "step": "index", "on": "failure" }], "forgives": forgives },
        }))
    };
    let verdict = |graph: &Graph| play(graph, &[("load", End::Failed)]).verdict(graph);
    assert_eq!(verdict(&steps(false, false)), Some(Verdict::Failed), "the index is stale, so the run has failed");
    assert_eq!(verdict(&steps(true, false)), Some(Verdict::Succeeded));
    assert_eq!(verdict(&steps(false, true)), Some(Verdict::Succeeded));
}

#[test]
fn wf_47_an_answer_for_a_step_that_is_not_ready_changes_nothing() {
    let graph = graph(json!({ "a": { "use": "work" }, "b": { "use": "work", "needs": ["a"] } }));
    let (a, b) = (graph.step("a").unwrap(), graph.step("b").unwrap());
    let mut ready = Vec::new();
    let mut run = Run::begin(&graph, &mut ready);
    ready.clear();
    assert!(!run.end(&graph, b, End::Succeeded, &mut ready), "pending");
    assert!(!run.end(&graph, 7, End::Succeeded, &mut ready), "no such step");
    assert!(run.end(&graph, a, End::Succeeded, &mut ready));
    assert!(!run.end(&graph, a, End::Failed, &mut ready), "ended already");
    assert_eq!(ready, [b]);
    assert_eq!(state(&graph, &run, "a"), State::Succeeded);
    run.cancel(&graph);
    assert!(!run.end(&graph, b, End::Succeeded, &mut ready), "cancelled");
    assert_eq!(state(&graph, &run, "b"), State::Cancelled);
}

#[test]
fn wf_45_stop_cancels_pending_steps() {
    let graph = graph(json!({
        "bad": { "use": "work" }, "slow": { "use": "work" },
        "after": { "use": "work", "needs": ["slow"] },
        "undo": { "use": "work", "needs": [{ "step": "after", "on": "failure" }], "forgives": true },
    }));
    let mut ready = Vec::new();
    let mut run = Run::begin(&graph, &mut ready);
    ready.clear();
    assert!(run.end(&graph, graph.step("bad").unwrap(), End::Failed, &mut ready));
    run.stop(&graph);
    assert_eq!(state(&graph, &run, "slow"), State::Ready);
    assert_eq!(state(&graph, &run, "after"), State::Cancelled);
    assert!(run.end(&graph, graph.step("slow").unwrap(), End::Succeeded, &mut ready));
    assert_eq!((ready.as_slice(), run.verdict(&graph)), ([].as_slice(), Some(Verdict::Failed)));
}

#[test]
fn wf_53_a_cancelled_run_is_never_a_success() {
    let graph = graph(json!({
        "work": { "use": "work" },
        "undo": { "use": "work", "needs": [{ "step": "work", "on": "failure" }], "forgives": true },
    }));
    let mut ready = Vec::new();
    let mut run = Run::begin(&graph, &mut ready);
    run.cancel(&graph);
    assert_eq!(state(&graph, &run, "work"), State::Cancelled);
    assert_eq!(run.verdict(&graph), Some(Verdict::Failed));
    // a step that never ran does not forgive an earlier failure
    let mut run = Run::begin(&graph, &mut ready);
    ready.clear();
    assert!(run.end(&graph, graph.step("work").unwrap(), End::Failed, &mut ready));
    run.cancel(&graph);
    assert_eq!(run.verdict(&graph), Some(Verdict::Failed));
}

#[test]
fn row_gone_steps_pass_and_sinks_delete() {
    let graph = graph(json!({
        "load": { "use": "sql.load" },
        "shape": { "use": "transform", "needs": ["load"], "expression": ".title" },
        "notify": { "use": "work", "needs": ["load"], "on-missing": "run" },
        "index": { "use": "sink", "needs": ["shape"] },
    }));
    let mut ready = Vec::new();
    let mut run = Run::begin(&graph, &mut ready);
    let passes = |run: &Run, name: &str| run.passes(&graph, graph.step(name).unwrap());
    assert!(!run.is_missing() && !passes(&run, "shape"));
    run.set_missing();
    assert!(run.is_missing());
    assert!(passes(&run, "load") && passes(&run, "shape"));
    assert!(!passes(&run, "notify"), "it has on-missing = run");
    assert!(!passes(&run, "index"), "it deletes");
    finish(&graph, &mut run, ready, &[]);
    assert_eq!(run.verdict(&graph), Some(Verdict::Succeeded));
}

#[test]
fn row_gone_a_sink_deletes_whether_its_other_need_was_skipped_before_or_passed_after() {
    let graph = graph(json!({
        "load": { "use": "sql.load" },
        "flag": { "use": "work", "when": "$event.flag" },
        "index": { "use": "sink", "needs": ["load", "flag"] },
    }));
    for flag_first in [true, false] {
        let mut ready = Vec::new();
        let mut run = Run::begin(&graph, &mut ready);
        let (load, flag) = (graph.step("load").unwrap(), graph.step("flag").unwrap());
        ready.clear();
        if flag_first {
            assert!(run.end(&graph, flag, End::Skipped, &mut ready));
        }
        run.set_missing();
        assert!(run.end(&graph, load, End::Succeeded, &mut ready));
        if !flag_first {
            assert!(run.passes(&graph, flag));
            assert!(run.end(&graph, flag, End::Succeeded, &mut ready));
        }
        assert_eq!(names(&graph, &ready), ["index"]);
    }
}

#[test]
fn wf_59_a_restored_run_continues_where_it_was() {
    let graph = graph(json!({
        "load": { "use": "work" },
        "call": { "use": "work", "needs": ["load"] },
        "maybe": { "use": "work", "needs": ["call"] },
        "index": { "use": "sink", "needs": ["load", "call"] },
        "after": { "use": "work", "needs": ["maybe"] },
    }));
    let id = |name: &str| graph.step(name).unwrap();
    let mut ready = Vec::new();
    let finished = [(id("maybe"), End::Skipped), (id("call"), End::Succeeded)];
    let mut run = Run::restore(&graph, &finished, &mut ready);
    // the load has no checkpoint and is executed again; the call is not, although it needs the load
    assert_eq!(names(&graph, &ready), ["load"]);
    assert_eq!(state(&graph, &run, "call"), State::Succeeded);
    assert_eq!(state(&graph, &run, "after"), State::Skipped);
    finish(&graph, &mut run, ready, &[]);
    assert_eq!(state(&graph, &run, "index"), State::Succeeded);
    assert_eq!(run.verdict(&graph), Some(Verdict::Succeeded));
}

#[test]
fn wf_59_a_restored_run_without_ended_steps_is_a_new_run() {
    let graph = graph(json!({ "a": { "use": "work" }, "b": { "use": "work", "needs": ["a"] } }));
    let mut ready = Vec::new();
    let run = Run::restore(&graph, &[], &mut ready);
    assert_eq!((names(&graph, &ready), run.ended(&graph)), (vec!["a".to_owned()], false));
}

#[test]
fn a_run_of_few_steps_is_one_cache_line() {
    assert!(std::mem::size_of::<Run>() <= 64, "{}", std::mem::size_of::<Run>());
}

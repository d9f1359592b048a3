//! Cancelled runs: workers are informed, the key is held while they still work, and late answers are refused.

use honeyflow_engine::core::Input;
use honeyflow_runtime::Failure;
use honeyflow_step::Outcome;
use honeyflow_store::{Op, write::CheckpointOutcome};
use honeyflow_workflow::{Workflow, builder::step};

use crate::table::{Table, failed, keys, parked, plain, settled};

fn cancel(table: &mut Table, workflow: &str, key: &str) {
    table.send(Input::Cancel { workflow: workflow.into(), entity: "book".into(), key: key.into() });
}

/// WF-53: the worker is informed which items are cancelled; the others of the batch continue.
#[test]
fn wf_53_workers_are_informed_and_the_key_is_held_until_they_answer() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a"), (2, "b")]);
    let (batch, work) = table.next();
    let place = keys(&work.items).iter().position(|key| *key == "a").expect("given");
    cancel(&mut table, "index", "a");
    assert_eq!(table.withdrawn, [(batch, vec![place], false)]);
    assert_eq!(table.runs()[0].waits_for, "cancelling");
    table.rows(&[(3, "a")]);
    assert!(table.written.is_empty() && table.given.is_empty(), "neither parked nor free while the worker has it");
    table.answer(batch, 2, &Outcome::Done(None));
    let (index, work) = table.next();
    assert_eq!((&*work.step, keys(&work.items)), ("index", vec!["b"]), "the answer for the other one counts");
    table.answer(index, 1, &Outcome::Done(None));
    let ops = table.commit_all();
    assert_eq!((&*parked(&ops)[0].failure.code, &parked(&ops)[0].events[..]), ("cancelled", &[1][..]));
    assert_eq!(settled(&ops), [2]);
    assert_eq!(keys(&table.done("load")), ["a"], "the next run of the key");
}

/// WF-54: after ten seconds the run is parked, and a later answer changes nothing.
#[test]
fn wf_54_the_grace_ends_and_a_late_answer_is_refused() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    let (batch, _) = table.next();
    cancel(&mut table, "index", "a");
    assert_eq!(table.withdrawn, [(batch, vec![0], true)], "the batch has no other item");
    cancel(&mut table, "index", "a");
    assert_eq!(table.withdrawn.len(), 1, "once is enough");
    table.pass(9_900);
    assert!(table.written.is_empty());
    table.pass(200);
    let ops = table.commit_all();
    assert_eq!((parked(&ops).len(), table.open_runs()), (1, 0));
    table.answer(batch, 1, &Outcome::Done(None));
    assert!(table.given.is_empty() && table.written.is_empty());
}

/// WF-54: the death of a worker, or a step that was stopped, ends the attempt too, and costs no counted attempt.
#[test]
fn wf_54_an_attempt_without_an_answer_has_ended_too() {
    for input in [0, 1] {
        let mut table = Table::new(&plain());
        table.rows(&[(1, "a")]);
        let (batch, _) = table.next();
        cancel(&mut table, "index", "a");
        table.send(if input == 0 { Input::Unanswered { batch } } else { Input::WorkerLost { worker: 0 } });
        let ops = table.commit_all();
        assert_eq!(&*parked(&ops)[0].failure.code, "cancelled");
        assert_eq!((table.open_runs(), table.status().suspected), (0, 0));
    }
}

/// WF-54: the call was made, so a retry of the run need not make it again.
#[test]
fn wf_54_the_output_of_a_journaled_step_within_the_grace_period_is_kept() {
    let called = Workflow::new("called")
        .on("shop", "book")
        .step("call", step("call"))
        .step("index", step("index").needs(["call"]));
    let mut table = Table::new(&[called]);
    table.rows(&[(1, "a")]);
    let (batch, _) = table.next();
    cancel(&mut table, "called", "a");
    table.answer(batch, 1, &Outcome::Done(None));
    let ops = table.commit_all();
    let places = |wanted: fn(&Op) -> bool| ops.iter().position(wanted);
    let kept = places(|op| matches!(op, Op::Checkpoint(one) if one.outcome == CheckpointOutcome::Done(None)));
    let parked = places(|op| matches!(op, Op::Park(_)));
    assert!(kept.is_some() && kept < parked, "{ops:?}");
    assert!(table.given.is_empty(), "no dependent starts");
}

/// WF-53: a step that waits for its next attempt is not tried again.
#[test]
fn wf_53_a_run_without_attempts_at_workers_is_parked_at_once() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    let (batch, _) = table.next();
    table.answer(batch, 1, &failed(Failure::retry("down", "not now")));
    cancel(&mut table, "index", "a");
    assert!(table.withdrawn.is_empty());
    let ops = table.commit_all();
    assert_eq!((parked(&ops).len(), table.open_runs()), (1, 0));
    table.pass(120_000);
    assert!(table.given.is_empty());
}

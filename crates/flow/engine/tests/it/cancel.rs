//! Runs that are ended from outside: workers are told, the key is held while they still work, and late answers count no more.

use honeyflow_engine::core::Input;
use honeyflow_runtime::Failure;
use honeyflow_step::Outcome;
use honeyflow_store::{Op, write::Checkpointed};
use honeyflow_workflow::{Workflow, builder::step};

use crate::table::{Table, failed, keys, parked, plain, settled};

fn cancel(table: &mut Table, workflow: &str, key: &str) {
    table.tell(Input::Cancel { workflow: workflow.into(), entity: "book".into(), key: key.into() });
}

/// WF-53: the worker is told which items nobody wants; others of the batch go on.
#[test]
fn wf_53_workers_are_told_and_the_key_is_held_until_they_have_answered() {
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

/// WF-54: ten seconds, then it is parked, and whatever is said later changes nothing.
#[test]
fn wf_54_the_grace_ends_and_a_late_answer_is_refused() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    let (batch, _) = table.next();
    cancel(&mut table, "index", "a");
    assert_eq!(table.withdrawn, [(batch, vec![0], true)], "nothing else is in it");
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

/// WF-54: a worker that dies, or stops because it was told to, has answered too; nobody is charged for that.
#[test]
fn wf_54_an_attempt_without_an_answer_is_over_as_well() {
    for input in [0, 1] {
        let mut table = Table::new(&plain());
        table.rows(&[(1, "a")]);
        let (batch, _) = table.next();
        cancel(&mut table, "index", "a");
        table.tell(if input == 0 { Input::Unanswered { batch } } else { Input::WorkerLost { worker: 0 } });
        let ops = table.commit_all();
        assert_eq!(&*parked(&ops)[0].failure.code, "cancelled");
        assert_eq!((table.open_runs(), table.status().suspected), (0, 0));
    }
}

/// WF-54: the call was made: whoever tries the run again need not make it twice.
#[test]
fn wf_54_what_a_journaled_step_did_in_the_grace_is_kept() {
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
    let kept = places(|op| matches!(op, Op::Checkpoint(one) if one.outcome == Checkpointed::Done(None)));
    let parked = places(|op| matches!(op, Op::Park(_)));
    assert!(kept.is_some() && kept < parked, "{ops:?}");
    assert!(table.given.is_empty(), "and nothing follows from it");
}

/// WF-53: what waits for its next try is not tried again.
#[test]
fn wf_53_a_run_that_nobody_holds_is_parked_at_once() {
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

//! Defects of an earlier engine: each test fails in an engine that has the defect.

use honeyflow_engine::core::Input;
use honeyflow_runtime::Failure;
use honeyflow_step::Outcome;
use honeyflow_store::Op;
use honeyflow_workflow::{Workflow, builder::step};
use serde_json::json;

use crate::table::{Table, failed, keys, plain, settled};

#[test]
fn emcee_same_key_runs_alone() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    table.rows(&[(2, "a")]);
    assert_eq!(table.given.len(), 1);
}

#[test]
fn emcee_different_keys_run_together() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    table.rows(&[(2, "b")]);
    assert_eq!(table.given.len(), 2, "neither waits for the other");
}

#[test]
fn emcee_duplicate_id_runs_once() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    table.rows(&[(1, "a")]);
    table.done("load");
    table.done("index");
    assert_eq!(settled(&table.commit()), [1]);
    assert_eq!((table.open_runs(), table.given.len()), (0, 0));
}

#[test]
fn emcee_lost_batch_is_given_out_again() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    let (lost, _) = table.next();
    table.send(Input::WorkerLost { worker: 0 });
    table.send(Input::Hello { worker: 1, room: (0..4).map(|kind| (kind, 8)).collect() });
    let (again, work) = table.next();
    assert_ne!(again, lost);
    assert_eq!(keys(&work.items), ["a"]);
    table.answer(lost, 1, &Outcome::Done(None));
    assert!(table.given.is_empty(), "a late answer of the dead worker is refused");
}

#[test]
fn emcee_hung_step_times_out() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    table.next();
    table.pass(40_000);
    assert_eq!(keys(&table.next().1.items), ["a"]);
}

#[test]
fn emcee_unknown_reply_is_rejected() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    let (batch, _) = table.next();
    table.send(Input::Outcomes { batch, outcomes: vec![Outcome::Done(None), Outcome::Done(None)] });
    table.pass(300_000);
    assert!(!table.given.is_empty() || !table.written.is_empty(), "it does not hang: tried again, or parked");
}

/// The earlier engine retried crashes only, and sent the input again only with a second mix-in.
#[test]
fn emcee_failed_reply_is_retried() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    table.done("load");
    let (batch, work) = table.next();
    let input = work.items[0].input.clone();
    table.answer(batch, 1, &failed(Failure::retry("down", "not now")));
    table.pass(1_000);
    let (_, again) = table.next();
    assert_eq!(&*again.step, "index");
    assert_eq!(again.items[0].input, input, "emcee_retry_redelivers_input");
    assert_eq!(again.items[0].stamp, work.items[0].stamp, "the same bytes keep their stamp");
    assert!(again.items[0].attempt > work.items[0].attempt);
}

#[test]
fn emcee_cause_is_kept() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    table.done("load");
    for _ in 0..2 {
        table.commit_all();
        table.wait_for_batch();
        let (batch, _) = table.next();
        table.answer(batch, 1, &failed(Failure::reject("bad-field", "price is no number")));
    }
    while !table.written.iter().any(|(_, write)| write.ops.iter().any(|op| matches!(op, Op::Park(_)))) {
        table.commit();
    }
    let ops = table.commit();
    let parked = ops.iter().find_map(|op| if let Op::Park(parked) = op { Some(parked) } else { None });
    let parked = parked.expect("parked after its last attempt");
    assert_eq!((&*parked.failure.code, &*parked.failure.message), ("bad-field", "price is no number"));
    assert_eq!((&*parked.step, &parked.events[..]), ("index", &[1][..]));
}

#[test]
fn emcee_parallel_outputs_kept_apart() {
    let fork = Workflow::new("fork")
        .on("shop", "book")
        .step("left", step("work"))
        .step("right", step("work"))
        .step("join", step("work").needs(["left", "right"]));
    let mut table = Table::new(&[fork]);
    table.rows(&[(1, "a")]);
    table.done("left");
    table.done("right");
    let (_, join) = table.next();
    let input = join.items[0].input.as_deref().cloned();
    assert_eq!(
        input,
        Some(json!({ "left": { "of": "left" }, "right": { "of": "right" } })),
        "each output under the name of its step; in the earlier engine the last writer won"
    );
}

#[test]
fn emcee_quick_rerun_of_key() {
    let mut table = Table::new(&plain());
    for id in 1..=5 {
        table.rows(&[(id, "a")]);
        table.done("load");
        table.done("index");
        assert_eq!(settled(&table.commit()), [id], "the next run follows at once, without a name conflict");
    }
}

#[test]
fn emcee_slow_ack_does_not_stop_polling() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    table.done("load");
    table.done("index");
    assert_eq!(table.written.len(), 1, "under way, and not answered");
    table.rows(&[(2, "b")]);
    assert_eq!(keys(&table.done("load")), ["b"]);
}

//! Defects of an earlier engine: what its masters lost when one of them died, and what its workers could not handle.

use std::sync::atomic::Ordering;

use honeyflow_engine::core::Input;
use honeyflow_store::Reply;
use honeyflow_workflow::{Workflow, builder::step};

use crate::{
    engine::Engine,
    table::{Table, keys, plain, settled},
};

fn one_by_one() -> Vec<Workflow> {
    vec![Workflow::new("index").on("shop", "book").step("load", step("load").set("batch", 1))]
}

/// WF-93: the next master reads the rows of the table again; late writes of the first one are refused or harmless.
#[tokio::test]
async fn emcee_workflow_master_restart_loses_nothing() {
    let mut engine = Engine::new(&plain(), 0, 4);
    engine.rows(1..=50);
    engine.target.closed.send_replace(true);
    let first = engine.start();
    engine.batches(1).await;
    first.abort();
    let _ = first.await;
    engine.target.closed.send_replace(false);
    let second = engine.start();
    engine.done().await;
    assert_eq!(engine.keys_written(), 50);
    second.abort();
}

/// WF-93: all batches that were out are given out again, and late answers to them are refused.
#[test]
fn emcee_worker_master_restart_loses_nothing() {
    let mut table = Table::new(&one_by_one());
    table.hello(0, 3);
    table.rows(&[(1, "a"), (2, "b"), (3, "c"), (4, "d")]);
    let lost: Vec<_> = std::iter::from_fn(|| table.given.pop_front()).collect();
    assert_eq!(lost.len(), 3);
    table.send(Input::WorkerLost { worker: 0 });
    table.hello(0, 8);
    for (batch, _) in &lost {
        table.answer(*batch, 1, &honeyflow_step::Outcome::Done(None));
    }
    assert_eq!(table.status().stale_answers, 3);
    let mut again = Vec::new();
    while !table.given.is_empty() {
        again.extend(keys(&table.done("load")).into_iter().map(str::to_owned));
    }
    again.sort();
    assert_eq!(again, ["a", "b", "c", "d"]);
    assert_eq!(settled(&table.commit_all()).len(), 4);
}

/// WF-91, WF-121: rows belong to the runs, not to the poller.
#[test]
fn emcee_poller_master_restart_still_acks() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    table.poll_fails();
    table.done("load");
    table.poll_fails();
    table.done("index");
    assert_eq!(settled(&table.commit()), [1]);
    assert!(!table.status().workflows.iter().any(|workflow| workflow.open > 0));
}

/// WF-91: a poller that dies several times is replaced, without a restart of other parts; its rows are still found.
#[tokio::test]
async fn emcee_dead_poller_is_replaced() {
    let mut engine = Engine::new(&plain(), 3, 4);
    engine.rows(1..=5);
    let running = engine.start();
    engine.done().await;
    assert_eq!(engine.keys_written(), 5);
    let status = engine.handle.status();
    assert_eq!(status.leases_lost, 0, "no other part was restarted");
    running.abort();
}

/// WF-22, RL-18: a worker that does not know the kind of a step is not blocked by it, and the step waits for another.
#[test]
fn emcee_unknown_kind_is_left_to_others() {
    const LOAD: u16 = 1;
    const INDEX: u16 = 3;
    let mut table = Table::new(&plain());
    table.send(Input::Hello { worker: 0, room: vec![(LOAD, 4)] });
    table.rows(&[(1, "a")]);
    table.done("load");
    assert!(table.given.is_empty(), "no worker executes this kind");
    assert_eq!(table.reason(), "no-worker");
    table.rows(&[(2, "b")]);
    assert_eq!(keys(&table.done("load")), ["b"], "the worker continues with the kinds it knows");
    table.send(Input::Hello { worker: 1, room: vec![(INDEX, 4)] });
    assert_eq!(keys(&table.done("index")), ["a", "b"]);
    let ops = table.commit_all();
    assert_eq!((settled(&ops), table.status().parked), (vec![1, 2], 0));
}

#[test]
fn emcee_full_worker_drops_nothing() {
    let mut table = Table::new(&one_by_one());
    table.hello(0, 1);
    table.rows(&[(1, "a"), (2, "b"), (3, "c")]);
    for key in ["a", "b", "c"] {
        assert_eq!(table.given.len(), 1, "a full worker gets no batch");
        assert_eq!(keys(&table.done("load")), [key]);
    }
    assert!(table.given.is_empty());
    assert_eq!(settled(&table.commit_all()), [1, 2, 3]);
}

/// In the earlier engine the concurrency was 10 for every step and machine.
#[tokio::test]
async fn emcee_step_concurrency_is_set() {
    for at_once in [1, 3] {
        let mut engine = Engine::new(&one_by_one(), 0, at_once);
        engine.rows(1..=12);
        engine.target.closed.send_replace(true);
        let running = engine.start();
        engine.batches(at_once as usize).await;
        engine.target.closed.send_replace(false);
        engine.done().await;
        assert_eq!(engine.target.most_at_once.load(Ordering::SeqCst), at_once as usize);
        running.abort();
    }
}

/// WF-121: an acknowledgement is repeated until it is confirmed, and the key is held until then.
#[test]
fn a_lost_acknowledgement_is_sent_again() {
    let mut table = Table::new(&plain());
    table.rows(&[(1, "a")]);
    table.done("load");
    table.done("index");
    for _ in 0..5 {
        let (write, request) = table.written.pop_front().expect("written");
        assert_eq!(settled(&request.ops), [1]);
        let result = Err(honeyflow_runtime::Failure::retry("unknown", "the answer was lost"));
        table.send(Input::Written { write, result });
        assert_eq!(table.open_runs(), 1);
        table.pass(6_000);
    }
    let (write, _) = table.written.pop_front().expect("written");
    table.send(Input::Written { write, result: Ok(Reply::Committed) });
    assert_eq!(table.open_runs(), 0);
}

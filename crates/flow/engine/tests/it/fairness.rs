//! Which workflow is served next, in which order a key's events are processed, and the reason that a waiting run gives.

use honeyflow_engine::core::{Input, plan::Limits};
use honeyflow_runtime::Failure;
use honeyflow_step::Outcome;
use honeyflow_workflow::{Workflow, builder::step};

use crate::table::{Table, failed, keys, plain, settled};

fn ordered(order: &str) -> Vec<Workflow> {
    vec![Workflow::new("lone").on("shop", "book").set("order", order).step("do", step("work"))]
}

#[test]
fn wf_67_latest_merges_and_strict_goes_one_by_one() {
    let mut latest = Table::new(&ordered("latest"));
    latest.rows(&[(1, "a"), (2, "a"), (3, "a")]);
    latest.done("do");
    assert_eq!(settled(&latest.commit_all()), [1, 2, 3], "one run for all three");

    let mut strict = Table::new(&ordered("strict"));
    strict.rows(&[(1, "a"), (2, "a"), (3, "a"), (4, "b")]);
    let (batch, first) = strict.next();
    assert_eq!(keys(&first.items), ["a", "b"], "never two of a key in one batch");
    strict.answer(batch, 2, &Outcome::Done(None));
    strict.commit_all();
    for id in [2, 3] {
        assert_eq!(strict.given[0].1.items[0].event.id, id);
        strict.done("do");
        assert_eq!(settled(&strict.commit_all()), [id]);
    }
}

/// WF-70: two workflows with work of the same level take turns, even if one of them has much more.
#[test]
fn wf_70_workflows_of_a_level_take_turns() {
    let one = |name: &str| Workflow::new(name).on("shop", "book").set("exclusion", "workflow");
    let small = |kind| step(kind).set("batch", 1);
    let mut table = Table::new(&[one("a").step("do", small("work")), one("b").step("do", small("work"))]);
    table.hello(0, 0);
    table.rows(&[(1, "k1"), (2, "k2"), (3, "k3")]);
    table.hello(0, 1);
    let mut turns = Vec::new();
    while let Some((batch, work)) = table.given.pop_front() {
        turns.push(work.workflow.to_string());
        table.answer(batch, 1, &Outcome::Done(None));
    }
    assert_eq!(turns, ["a", "b", "a", "b", "a", "b"]);
}

/// WF-117: the reason is the true one; a run that is in no queue, timer or write would say `nothing`.
#[test]
fn wf_117_a_waiting_run_says_what_it_waits_for() {
    let mut table = Table::new(&plain());
    table.hello(0, 0);
    table.rows(&[(1, "a")]);
    assert_eq!(table.reason(), "no-worker");
    table.hello(0, 1);
    assert_eq!(table.reason(), "working");
    table.rows(&[(2, "b")]);
    let waits: Vec<&str> = table.runs().iter().map(|run| run.waits_for).collect();
    assert_eq!(waits, ["working", "behind"], "the only worker is full");
    table.done("load");
    table.done("load");
    let (batch, work) = table.next();
    table.send(Input::Pause { workflow: "index".into(), paused: true });
    let outcomes = work.items.iter().map(|item| match &*item.key {
        "a" => Outcome::Done(None),
        _ => failed(Failure::fatal("gone", "no such sink")),
    });
    let outcomes = outcomes.collect();
    table.send(Input::Outcomes { batch, outcomes });
    let waits: Vec<&str> = table.runs().iter().map(|run| run.waits_for).collect();
    assert!(waits == ["settling", "paused"] || waits == ["settling"], "{waits:?}");
}

/// WF-117: each closed gate and each kind of wait has its reason.
#[test]
fn wf_117_gates_and_waits_are_reasons() {
    let lone = |step| vec![Workflow::new("lone").on("shop", "book").step("do", step)];
    let answered = |failure: Failure| {
        let mut table = Table::new(&lone(step("work").set("tries", 9)));
        table.rows(&[(1, "a")]);
        let (batch, _) = table.next();
        table.answer(batch, 1, &failed(failure));
        table.commit_all();
        table.reason()
    };
    assert_eq!(answered(Failure::fatal("gone", "no such table")), "fatal");
    assert_eq!(answered(Failure::retry("down", "not now")), "back-off");
    assert_eq!(answered(Failure::reject("bad", "no")), "back-off");

    let mut down = Table::new(&lone(step("work").set("batch", 10)));
    let names: Vec<String> = (1..=30).map(|id| format!("k{id}")).collect();
    let rows: Vec<(i64, &str)> = (1..).zip(names.iter().map(String::as_str)).collect();
    down.rows(&rows);
    for _ in 0..3 {
        let (batch, _) = down.next();
        down.answer(batch, 10, &failed(Failure::retry("down", "not now")));
    }
    down.pass(300);
    assert!(down.runs().iter().any(|run| run.waits_for == "breaker"), "{:?}", down.runs());

    let mut moving = Table::new(&plain());
    moving.send(Input::Trust { source: 0, until: moving.now() });
    moving.rows(&[(1, "a")]);
    assert_eq!(moving.reason(), "shard-moving", "the lease is no longer trusted");
}

/// OB-51: if too many keys are due for parking at once, runs begin one by one and give that as their reason.
#[test]
fn wf_114_a_storm_of_parks_slows_the_workflow_down() {
    let limits = Limits { parked_per_minute_max: 3, ..Limits::default() };
    let broken = Workflow::new("lone").on("shop", "book").step("do", step("work").set("tries", 1).set("batch", 1));
    let mut table = Table::with_limits(&[broken], limits);
    table.hello(0, 1);
    let names: Vec<String> = (1..=20).map(|id| format!("k{id}")).collect();
    let rows: Vec<(i64, &str)> = (1..).zip(names.iter().map(String::as_str)).collect();
    table.rows(&rows);
    let mut tried = 0;
    while let Some((batch, _)) = table.given.pop_front() {
        tried += 1;
        table.answer(batch, 1, &failed(Failure::reject("bad", "no")));
        table.commit_all();
    }
    assert_eq!(tried, 4, "the fourth was one too many");
    assert!(table.runs().iter().all(|run| run.waits_for == "storm"));
    table.wait_for_batch();
    table.done("do");
    table.commit_all();
    assert!(!table.given.is_empty(), "a run that succeeds ends the storm");
}

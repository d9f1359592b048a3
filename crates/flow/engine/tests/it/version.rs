//! A run continues by the definition version it began with, even if the configuration has changed.

use std::sync::Arc;

use honeyflow_engine::core::plan::{Limits, Plan, Version, WorkflowPlan};
use honeyflow_event::{Event, EventId, PRIORITY_REINDEX};
use honeyflow_runtime::Failure;
use honeyflow_source::Intake;
use honeyflow_step::Outcome;
use honeyflow_store::{
    Op, RecoveredState,
    write::{Checkpoint, CheckpointOutcome, RunKey},
};
use honeyflow_workflow::{Workflow, builder::step};

use crate::table::{Table, failed, keys, leads_to, parked, plan, row, settled, taken};

/// `load → call → last`, where the call has checkpoints. It excludes only runs of the same workflow, in all versions.
fn calling(last: &str) -> Workflow {
    Workflow::new("book")
        .on("shop", "book")
        .set("exclusion", "workflow")
        .step("load", step("load"))
        .step("call", step("call").needs(["load"]))
        .step(last, step("index").needs(["call"]).set("tries", 1))
}

fn number(workflow: &str, number: u32, planned: Result<usize, &str>) -> Version {
    Version { workflow: workflow.into(), number, planned: planned.map_err(ToOwned::to_owned) }
}

/// A plan in which the first `current` workflows are configured, and the others are earlier versions.
fn versions(workflows: &[Workflow], current: usize, numbers: Vec<Version>) -> Plan {
    let mut plan = plan(workflows, Limits::default());
    for older in &mut plan.workflows[current..] {
        *older = Arc::new(WorkflowPlan { older: true, ..WorkflowPlan::clone(older) });
    }
    plan.sources[0].versions = numbers;
    plan.sources[0].entities.get_mut("book").expect("the entity").workflows = (0..current).collect();
    plan
}

fn first() -> Plan {
    versions(&[calling("old")], 1, vec![number("book", 1, Ok(0))])
}

/// The second version is configured, the first can still be executed.
fn second() -> Plan {
    let numbers = vec![number("book", 1, Ok(1)), number("book", 2, Ok(0))];
    versions(&[calling("new"), calling("old")], 1, numbers)
}

/// The second version is configured, the first cannot be executed.
fn without_the_first() -> Plan {
    let numbers = vec![number("book", 1, Err("has no sink x")), number("book", 2, Ok(0))];
    versions(&[calling("new")], 1, numbers)
}

fn checkpoints(ops: Vec<Op>) -> RecoveredState {
    let kept = ops.into_iter().filter_map(|op| if let Op::Checkpoint(kept) = op { Some(*kept) } else { None });
    RecoveredState { checkpoints: kept.collect(), ..RecoveredState::default() }
}

/// A node of the first version has executed `call` for key `a` and is gone.
fn called_by_the_first() -> (Table, RecoveredState) {
    let mut table = Table::with_plan(first());
    table.rows(&[(1, "a")]);
    table.done("load");
    table.done("call");
    let left = checkpoints(table.commit());
    assert_eq!(left.checkpoints.len(), 1);
    assert_eq!(left.checkpoints[0].version, 1);
    (table, left)
}

fn directed(id: EventId, key: &str, workflow: &str) -> Arc<Event> {
    Arc::new(Event { workflow: Some(workflow.into()), ..Event::clone(&row(id, key, 4)) })
}

fn open(table: &Table) -> Vec<(String, u32)> {
    let mut open: Vec<_> = table.runs().into_iter().map(|run| (run.key, run.version)).collect();
    open.sort();
    open
}

#[test]
fn wf_21_a_resumed_run_keeps_its_version() {
    let (mut table, left) = called_by_the_first();
    table.next_owner_with(second(), left);
    table.rows(&[(1, "a"), (2, "b")]);
    assert_eq!(open(&table), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
    let by_version = [table.next(), table.next()];
    for (batch, work) in by_version {
        assert_eq!((&*work.step, work.items.len()), ("load", 1), "two versions are never one batch");
        table.answer(batch, 1, &Outcome::Done(Some(Arc::new(serde_json::json!({})))));
    }
    assert_eq!(keys(&table.done("old")), ["a"], "it has executed its call, and ends by the version it began with");
    assert_eq!(keys(&table.done("call")), ["b"]);
    let mut ops = table.commit_all();
    assert_eq!(keys(&table.done("new")), ["b"]);
    ops.extend(table.commit_all());
    let numbers: Vec<_> = checkpoints(ops.clone()).checkpoints.iter().map(|kept| kept.version).collect();
    assert_eq!(numbers, [2]);
    assert_eq!(settled(&ops), [1, 2]);
    table.rows(&[(3, "a")]);
    assert_eq!(open(&table), [("a".to_owned(), 2)], "a new run begins by the newest version");
    assert_eq!(table.status().older[0].ended, 1);
}

#[test]
fn wf_21_a_run_without_checkpoints_begins_by_the_newest_version() {
    let mut table = Table::with_plan(first());
    table.rows(&[(1, "a")]);
    table.done("load");
    table.next_owner_with(second(), RecoveredState::default());
    table.rows(&[(1, "a")]);
    assert_eq!(open(&table), [("a".to_owned(), 2)]);
}

#[test]
fn wf_21_a_newer_event_waits_for_the_run_of_the_older_version() {
    let (mut table, left) = called_by_the_first();
    table.next_owner_with(second(), left);
    table.rows(&[(1, "a"), (2, "a")]);
    table.rows(&[(2, "a")]);
    table.done("load");
    table.done("old");
    assert!(table.given.is_empty(), "the key is held until the end has committed");
    assert_eq!(settled(&table.commit_all()), [1]);
    assert_eq!(open(&table), [("a".to_owned(), 2)]);
}

/// I15
#[test]
fn wf_21_a_failover_and_a_park_keep_the_version() {
    let (mut table, left) = called_by_the_first();
    table.next_owner_with(second(), left.clone());
    table.rows(&[(1, "a")]);
    table.done("load");
    table.next_owner(left);
    table.rows(&[(1, "a")]);
    table.done("load");
    let (batch, work) = table.next();
    assert_eq!(&*work.step, "old");
    table.answer(batch, 1, &failed(Failure::reject("bad", "bad")));
    let ops = table.commit_all();
    let [entry] = parked(&ops)[..] else { panic!("{ops:?}") };
    assert_eq!((entry.version, &entry.events[..]), (1, &[1][..]));
}

#[test]
fn wf_21_a_removed_workflow_finishes_the_runs_it_began() {
    let (mut table, left) = called_by_the_first();
    let other = Workflow::new("other").on("shop", "book").step("load", step("load"));
    let numbers = vec![number("other", 1, Ok(0)), number("book", 1, Ok(1))];
    table.next_owner_with(versions(&[other, calling("old")], 1, numbers), left);
    table.rows(&[(1, "a"), (2, "b")]);
    let (mut given, mut gone) = (Vec::new(), Vec::new());
    while !table.given.is_empty() {
        let (batch, work) = table.next();
        given.extend(work.items.iter().map(|item| format!("{} {} {}", work.workflow, work.step, item.key)));
        table.answer(batch, work.items.len(), &Outcome::Done(Some(Arc::new(serde_json::json!({})))));
        gone.extend(settled(&table.commit_all()));
    }
    given.sort();
    assert_eq!(given, ["book load a", "book old a", "other load a", "other load b"], "no new run begins by it");
    gone.sort_unstable();
    assert_eq!(gone, [1, 2]);
}

/// RL-18
#[test]
fn wf_22_a_version_that_cannot_be_executed_is_left_and_reported() {
    let (mut table, left) = called_by_the_first();
    let mut plan = without_the_first();
    let other = versions(
        &[
            calling("new"),
            Workflow::new("other").on("shop", "book").set("exclusion", "none").step("look", step("load")),
        ],
        2,
        Vec::new(),
    );
    plan.workflows = other.workflows;
    plan.sources[0].entities = other.sources[0].entities.clone();
    plan.sources[0].versions.push(number("other", 1, Ok(1)));
    table.next_owner_with(plan, left);
    assert_eq!(table.alarms, ["no-worker"]);
    table.rows(&[(1, "a"), (2, "a"), (3, "b")]);
    let looked = table.given.iter().filter(|(_, work)| *work.workflow == *"other").flat_map(|(_, work)| &work.items);
    assert_eq!(looked.count(), 2, "other workflows continue, also for its key");
    while let Some((batch, work)) = table.given.pop_front() {
        assert!(
            *work.workflow == *"other" || keys(&work.items) == ["b"],
            "no newer run of the key may begin: {work:?}"
        );
        table.answer(batch, work.items.len(), &Outcome::Done(Some(Arc::new(serde_json::json!({})))));
        let ops = table.commit_all();
        assert!(!settled(&ops).contains(&1) && !settled(&ops).contains(&2), "{ops:?}");
    }
    let status = table.status();
    let [none] = &status.no_worker[..] else { panic!("{:?}", status.no_worker) };
    assert_eq!((&*none.workflow, none.version, none.runs, &*none.why), ("book", 1, 1, "has no sink x"));
    assert!(status.closed.iter().any(|closed| closed.reason == "no-worker" && closed.detail.contains("has no sink x")));
    let stranded =
        table.runs().into_iter().find(|run| run.waits_for == "no-worker").expect("the stranded run is listed");
    assert_eq!((&*stranded.key, stranded.version), ("a", 1));
    // The sink is back.
    let (_, left) = called_by_the_first();
    table.next_owner_with(second(), left);
    table.rows(&[(1, "a")]);
    table.done("load");
    assert_eq!(keys(&table.done("old")), ["a"]);
}

#[test]
fn wf_22_events_for_a_removed_workflow_stay() {
    let mut plan = second();
    plan.sources[0].versions.push(number("gone", 4, Err("has no sink x")));
    let mut table = Table::with_plan(plan);
    let directed_at = |table: &mut Table, id, workflow| {
        let event = directed(id, "a", workflow);
        table.answer_poll(Intake { taken: vec![taken(event.clone(), leads_to(&event))], ..Intake::default() });
    };
    directed_at(&mut table, 1, "gone");
    assert!(table.written.is_empty() && table.given.is_empty());
    assert!(table.status().closed.iter().any(|closed| &*closed.name == "gone" && closed.reason == "no-worker"));
    directed_at(&mut table, 2, "never-defined");
    assert_eq!(settled(&table.commit_all()), [2], "no node can execute a workflow that was never defined");
    directed_at(&mut table, 3, "book");
    assert_eq!(open(&table), [("a".to_owned(), 2)]);
}

#[test]
fn ob_98_a_fill_row_of_a_workflow_that_is_gone_is_acknowledged() {
    let (_, left) = called_by_the_first();
    let mut numbers = second().sources[0].versions.clone();
    numbers.push(number("gone", 1, Err("is not configured")));
    let plan = || versions(&[calling("new"), calling("old")], 1, numbers.clone());
    let fill = |id, key: &str, workflow: &str| {
        Arc::new(Event { priority: PRIORITY_REINDEX, ..Event::clone(&directed(id, key, workflow)) })
    };
    let mut table = Table::with_plan(plan());
    let event = fill(1, "a", "gone");
    table.answer_poll(Intake { taken: vec![taken(event.clone(), leads_to(&event))], ..Intake::default() });
    assert_eq!(settled(&table.commit_all()), [1]);
    assert!(table.status().closed.iter().all(|closed| &*closed.name != "gone"));
    // A run that has begun is not forgotten: a node that knows its version continues it.
    let event = fill(2, "b", "gone");
    let run = RunKey { key: "b".into(), workflow: "gone".into(), ..left.checkpoints[0].run.clone() };
    let begun = Checkpoint { run, version: 1, covers: vec![2], ..left.checkpoints[0].clone() };
    let taken = vec![taken(event.clone(), leads_to(&event))];
    table.answer_poll(Intake { taken, resumed: vec![begun], ..Intake::default() });
    assert_eq!(settled(&table.commit_all()), [0; 0]);
}

fn retried(id: EventId, kept: &Checkpoint) -> Intake {
    let event = directed(id, &kept.run.key, "book");
    let kept = Checkpoint { covers: vec![id], ..kept.clone() };
    Intake { taken: vec![taken(event.clone(), leads_to(&event))], resumed: vec![kept], ..Intake::default() }
}

/// WF-74
#[test]
fn wf_21_a_running_node_continues_a_retried_run_by_its_version() {
    let (_, left) = called_by_the_first();
    let mut table = Table::with_plan(second());
    table.answer_poll(retried(7, &left.checkpoints[0]));
    assert_eq!(open(&table), [("a".to_owned(), 1)]);
    table.done("load");
    assert_eq!(keys(&table.done("old")), ["a"], "the call is not executed again");
    assert_eq!(settled(&table.commit_all()), [7]);
}

#[test]
fn wf_74_a_retried_run_joins_no_other_run() {
    let (_, mut left) = called_by_the_first();
    let mut table = Table::with_plan(second());
    left.checkpoints[0].version = 2;
    // No step of the run was given out yet, so a plain event would join it.
    table.hello(0, 0);
    table.rows(&[(5, "a")]);
    table.answer_poll(retried(7, &left.checkpoints[0]));
    assert_eq!(table.runs()[0].events, 1);
    table.hello(0, 8);
    table.done("load");
    table.done("call");
    table.commit_all();
    table.done("new");
    assert_eq!(settled(&table.commit_all()), [5]);
    table.done("load");
    assert_eq!(keys(&table.done("new")), ["a"]);
    assert_eq!(settled(&table.commit_all()), [7]);
    assert_eq!(table.open_runs(), 0);
}

#[test]
fn wf_74_a_run_in_flight_is_not_resumed_again() {
    let mut table = Table::with_plan(second());
    let event = directed(7, "a", "book");
    table.answer_poll(Intake { taken: vec![taken(event.clone(), leads_to(&event))], ..Intake::default() });
    table.done("load");
    table.done("call");
    let kept = checkpoints(table.commit_all()).checkpoints.remove(0);
    assert_eq!((kept.outcome != CheckpointOutcome::Skipped, kept.version), (true, 2));
    // A sweep began before the row was in flight, and finds its checkpoint too.
    table.answer_poll(retried(7, &kept));
    table.done("new");
    assert_eq!(settled(&table.commit_all()), [7]);
    assert_eq!((table.open_runs(), table.given.len()), (0, 0));
    table.rows(&[(8, "a")]);
    assert_eq!(keys(&table.done("load")), ["a"], "a new run waits for nothing");
}

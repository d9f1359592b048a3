//! `for-each` steps survive the death of their owner: the list stays the same, and finished instances are not repeated.

use std::sync::Arc;

use honeyflow_engine::core::Input;
use honeyflow_runtime::Failure;
use honeyflow_step::{Batch, Outcome};
use honeyflow_store::{
    Op, RecoveredState,
    write::{Checkpoint, CheckpointOutcome, LIST_INDEX, StoredFailure},
};
use honeyflow_workflow::{Workflow, builder::step};
use serde_json::{Value, json};

use crate::table::{Table, failed, parked, settled};

/// `load → each → index`
fn listing(kind: &str) -> Vec<Workflow> {
    let each = step(kind).needs(["load"]).set("for-each", ".list").set("input", "{n: $item}");
    vec![
        Workflow::new("listing")
            .on("shop", "book")
            .step("load", step("load"))
            .step("each", each.set("parallel", 2).set("tries", 3))
            .step("index", step("work").needs(["each"])),
    ]
}

fn load(table: &mut Table, list: &Value) {
    let (batch, work) = table.next();
    assert_eq!(&*work.step, "load");
    table.answer(batch, 1, &Outcome::Done(Some(Arc::new(json!({ "list": list })))));
}

/// Returns the index and input of each instance in the batch.
fn instances(work: &Batch) -> Vec<(u32, Value)> {
    assert_eq!(&*work.step, "each");
    work.items.iter().map(|item| (item.index, item.input.as_deref().cloned().unwrap_or_default())).collect()
}

fn checkpoints(ops: &[Op]) -> Vec<Checkpoint> {
    ops.iter().filter_map(|op| if let Op::Checkpoint(one) = op { Some((**one).clone()) } else { None }).collect()
}

fn counted_attempts(ops: &[Op]) -> Vec<(u32, u32)> {
    let counted = |op: &Op| if let Op::Charge { index, attempts, .. } = op { Some((*index, *attempts)) } else { None };
    ops.iter().filter_map(counted).collect()
}

/// WF-80, WF-81: the list is written before the first instance starts; each output and counted attempt when it occurs.
#[test]
fn wf_81_a_list_survives_its_owner_with_outputs_and_counted_attempts() {
    let mut table = Table::new(&listing("call"));
    table.rows(&[(1, "a")]);
    load(&mut table, &json!([10, 20, 30]));
    assert!(table.given.is_empty(), "not before the list is written");
    let mut kept = checkpoints(&table.commit());
    assert_eq!((kept.len(), &*kept[0].step, kept[0].index), (1, "each", LIST_INDEX));
    table.rows(&[(2, "a")]);
    let (batch, work) = table.next();
    assert_eq!(instances(&work), [(0, json!({ "n": 10 })), (1, json!({ "n": 20 }))]);
    let outcomes = vec![Outcome::Done(Some(Arc::new(json!("first")))), failed(Failure::reject("bad", "no"))];
    table.send(Input::Outcomes { batch, outcomes });
    let ops = table.commit_all();
    assert_eq!(counted_attempts(&ops), [(1, 1)]);
    kept.extend(checkpoints(&ops));
    assert_eq!((kept.len(), kept[1].index), (2, 0));
    let charged = StoredFailure {
        run: kept[0].run.clone(),
        step: "each".into(),
        index: 1,
        attempts: 1,
        due_in: std::time::Duration::ZERO,
        failure: Failure::reject("bad", "no"),
    };
    table.next_owner(RecoveredState { checkpoints: kept, failures: vec![charged], ..RecoveredState::default() });
    table.rows(&[(1, "a"), (2, "a")]);
    load(&mut table, &json!([70, 80]));
    let (batch, work) = table.next();
    let left = [(1, json!({ "n": 20 })), (2, json!({ "n": 30 }))];
    assert_eq!(instances(&work), left, "the stored elements, without the finished one");
    let outcomes = vec![failed(Failure::reject("bad", "no")), Outcome::Done(Some(Arc::new(json!("third"))))];
    table.send(Input::Outcomes { batch, outcomes });
    assert_eq!(counted_attempts(&table.commit_all()), [(1, 2)], "its second attempt, and there is a third");
    table.wait_for_batch();
    let (batch, work) = table.next();
    assert_eq!(instances(&work), [(1, json!({ "n": 20 }))]);
    table.answer(batch, 1, &Outcome::Done(Some(Arc::new(json!("second")))));
    table.commit_all();
    let items = table.done("index");
    assert_eq!(items[0].input.as_deref(), Some(&json!(["first", "second", "third"])));
    assert_eq!(settled(&table.commit()), [1], "exactly the rows that the list covers");
}

/// WF-80: all instances were done, so the step is done too.
#[test]
fn wf_80_a_finished_list_is_not_executed_again() {
    let mut table = Table::new(&listing("call"));
    table.rows(&[(1, "a")]);
    load(&mut table, &json!([10, 20]));
    let mut kept = checkpoints(&table.commit());
    table.done("each");
    kept.extend(checkpoints(&table.commit_all()));
    assert_eq!(kept.len(), 3);
    table.next_owner(RecoveredState { checkpoints: kept, ..RecoveredState::default() });
    table.rows(&[(1, "a")]);
    let mut again: Vec<String> = table.given.iter().map(|(_, work)| work.step.to_string()).collect();
    again.sort();
    assert_eq!(again, ["index", "load"]);
    let index = table.given.iter().position(|(_, work)| &*work.step == "index").expect("given");
    let (_, work) = table.given.remove(index).expect("there");
    assert_eq!(work.items[0].input.as_deref(), Some(&json!([{ "of": "each" }, { "of": "each" }])));
}

/// WF-82: the list of a step without checkpoints is not stored; the next owner evaluates it again.
#[test]
fn wf_82_a_list_of_a_step_without_checkpoints_is_not_written() {
    let mut table = Table::new(&listing("work"));
    table.rows(&[(1, "a")]);
    load(&mut table, &json!([10, 20, 30]));
    assert!(table.written.is_empty());
    assert_eq!(instances(&table.next().1).len(), 2);
}

/// RL-10: a sink is ahead, and the run begins again under a higher epoch: the list is not evaluated again.
#[test]
fn rl_10_a_run_that_begins_again_keeps_its_list() {
    let sunk = Workflow::new("sunk")
        .on("shop", "book")
        .step("load", step("load"))
        .step("each", step("call").needs(["load"]).set("for-each", ".list").set("parallel", 1))
        .step("index", step("index").needs(["load"]));
    let mut table = Table::new(&[sunk]);
    table.rows(&[(1, "a")]);
    load(&mut table, &json!([10, 20]));
    table.commit_all();
    let index = table.given.iter().position(|(_, work)| &*work.step == "index").expect("given");
    let (batch, _) = table.given.remove(index).expect("there");
    table.done("each");
    table.commit_all();
    let (held, work) = table.next();
    assert_eq!(instances(&work), [(1, json!(20))]);
    let stored = honeyflow_event::Stamp::new(honeyflow_event::Epoch(1 << 40), 7);
    table.answer(batch, 1, &Outcome::Stale { stored });
    assert_eq!(table.minted, 1);
    table.answer(held, 1, &Outcome::Done(Some(Arc::new(json!("too late")))));
    assert!(table.written.is_empty(), "the late answer is refused");
    table.mint();
    load(&mut table, &json!([70, 80, 90]));
    let at = table.given.iter().position(|(_, work)| &*work.step == "each").expect("the instances continue");
    let (_, work) = table.given.remove(at).expect("there");
    assert_eq!(instances(&work), [(1, json!(20))], "the stored list, without the finished instance");
}

/// WF-80, RL-10: an earlier owner has finished the list, and the run of its successor begins again under a higher epoch.
#[test]
fn wf_80_a_restored_list_stays_finished_when_the_run_begins_again() {
    let sunk = Workflow::new("sunk")
        .on("shop", "book")
        .step("load", step("load"))
        .step("each", step("call").needs(["load"]).set("for-each", ".list"))
        .step("index", step("index").needs(["load", "each"]));
    let mut table = Table::new(&[sunk]);
    table.rows(&[(1, "a")]);
    load(&mut table, &json!([10]));
    let mut kept = checkpoints(&table.commit_all());
    table.done("each");
    kept.extend(checkpoints(&table.commit_all()));
    table.next_owner(RecoveredState { checkpoints: kept, ..RecoveredState::default() });
    table.rows(&[(1, "a")]);
    load(&mut table, &json!([70]));
    let (batch, work) = table.next();
    assert_eq!(&*work.step, "index");
    let stored = honeyflow_event::Stamp::new(honeyflow_event::Epoch(1 << 40), 7);
    table.answer(batch, 1, &Outcome::Stale { stored });
    table.mint();
    load(&mut table, &json!([70]));
    assert_eq!(&*table.next().1.step, "index", "the finished instance is not executed again");
}

/// WF-8
#[test]
fn wf_8_a_list_above_the_limit_or_no_list_fails_the_step() {
    for list in [json!(7), json!((0..10_001).collect::<Vec<u32>>())] {
        let mut table = Table::new(&listing("call"));
        table.rows(&[(1, "a")]);
        load(&mut table, &list);
        let ops = table.commit_all();
        assert_eq!(parked(&ops).len(), 1);
        assert!(!ops.iter().any(|op| matches!(op, Op::Checkpoint(one) if one.outcome != CheckpointOutcome::Skipped)));
    }
}

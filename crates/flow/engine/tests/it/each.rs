//! `for-each` over the death of its owner: the list stays what it was, and what is done is not done again.

use std::sync::Arc;

use honeyflow_engine::core::Input;
use honeyflow_runtime::Failure;
use honeyflow_step::{Batch, Outcome};
use honeyflow_store::{
    Op, Recovered,
    write::{Charged, Checkpoint, Checkpointed, OF_LIST},
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

/// Index and input of what was given out.
fn instances(work: &Batch) -> Vec<(u32, Value)> {
    assert_eq!(&*work.step, "each");
    work.items.iter().map(|item| (item.index, item.input.as_deref().cloned().unwrap_or_default())).collect()
}

fn checkpoints(ops: &[Op]) -> Vec<Checkpoint> {
    ops.iter().filter_map(|op| if let Op::Checkpoint(one) = op { Some((**one).clone()) } else { None }).collect()
}

fn charges(ops: &[Op]) -> Vec<(u32, u32)> {
    let charge = |op: &Op| if let Op::Charge { index, attempts, .. } = op { Some((*index, *attempts)) } else { None };
    ops.iter().filter_map(charge).collect()
}

/// WF-80, WF-81: the list is written before the first instance, each output when it is there, each charge too.
#[test]
fn wf_81_a_list_outlives_its_owner_with_outputs_and_charges() {
    let mut table = Table::new(&listing("call"));
    table.rows(&[(1, "a")]);
    load(&mut table, &json!([10, 20, 30]));
    assert!(table.given.is_empty(), "not before the list is written");
    let mut kept = checkpoints(&table.commit());
    assert_eq!((kept.len(), &*kept[0].step, kept[0].index), (1, "each", OF_LIST));
    table.rows(&[(2, "a")]);
    let (batch, work) = table.next();
    assert_eq!(instances(&work), [(0, json!({ "n": 10 })), (1, json!({ "n": 20 }))]);
    let outcomes = vec![Outcome::Done(Some(Arc::new(json!("first")))), failed(Failure::reject("bad", "no"))];
    table.tell(Input::Outcomes { batch, outcomes });
    let ops = table.commit_all();
    assert_eq!(charges(&ops), [(1, 1)]);
    kept.extend(checkpoints(&ops));
    assert_eq!((kept.len(), kept[1].index), (2, 0));
    let charged = Charged {
        run: kept[0].run.clone(),
        step: "each".into(),
        index: 1,
        attempts: 1,
        due_in: std::time::Duration::ZERO,
        failure: Failure::reject("bad", "no"),
    };
    table.next_owner(Recovered { checkpoints: kept, failures: vec![charged], ..Recovered::default() });
    table.rows(&[(1, "a"), (2, "a")]);
    load(&mut table, &json!([70, 80]));
    let (batch, work) = table.next();
    let left = [(1, json!({ "n": 20 })), (2, json!({ "n": 30 }))];
    assert_eq!(instances(&work), left, "the elements that it began with, without the one that is done");
    let outcomes = vec![failed(Failure::reject("bad", "no")), Outcome::Done(Some(Arc::new(json!("third"))))];
    table.tell(Input::Outcomes { batch, outcomes });
    assert_eq!(charges(&table.commit_all()), [(1, 2)], "its second try, and there is a third");
    table.wait_for_batch();
    let (batch, work) = table.next();
    assert_eq!(instances(&work), [(1, json!({ "n": 20 }))]);
    table.answer(batch, 1, &Outcome::Done(Some(Arc::new(json!("second")))));
    table.commit_all();
    let items = table.done("index");
    assert_eq!(items[0].input.as_deref(), Some(&json!(["first", "second", "third"])));
    assert_eq!(settled(&table.commit()), [1], "exactly the rows that the list covers");
}

/// WF-80: all of them were done; the step is, too.
#[test]
fn wf_80_a_list_that_is_done_is_not_worked_on_again() {
    let mut table = Table::new(&listing("call"));
    table.rows(&[(1, "a")]);
    load(&mut table, &json!([10, 20]));
    let mut kept = checkpoints(&table.commit());
    table.done("each");
    kept.extend(checkpoints(&table.commit_all()));
    assert_eq!(kept.len(), 3);
    table.next_owner(Recovered { checkpoints: kept, ..Recovered::default() });
    table.rows(&[(1, "a")]);
    let mut again: Vec<String> = table.given.iter().map(|(_, work)| work.step.to_string()).collect();
    again.sort();
    assert_eq!(again, ["index", "load"]);
    let index = table.given.iter().position(|(_, work)| &*work.step == "index").expect("given");
    let (_, work) = table.given.remove(index).expect("there");
    assert_eq!(work.items[0].input.as_deref(), Some(&json!([{ "of": "each" }, { "of": "each" }])));
}

/// WF-82: what is not journaled is listed afresh.
#[test]
fn wf_82_a_list_that_can_be_made_again_is_not_written() {
    let mut table = Table::new(&listing("work"));
    table.rows(&[(1, "a")]);
    load(&mut table, &json!([10, 20, 30]));
    assert!(table.written.is_empty());
    assert_eq!(instances(&table.next().1).len(), 2);
}

/// RL-10: a sink is ahead, and the run begins anew under a higher epoch: the list is not decided again.
#[test]
fn rl_10_a_run_that_begins_anew_keeps_its_list() {
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
    table.answer(held, 1, &Outcome::Done(Some(Arc::new(json!("nobody hears it")))));
    assert!(table.written.is_empty(), "the attempt belongs to nobody any more");
    table.mint();
    load(&mut table, &json!([70, 80, 90]));
    let at = table.given.iter().position(|(_, work)| &*work.step == "each").expect("it goes on");
    let (_, work) = table.given.remove(at).expect("there");
    assert_eq!(instances(&work), [(1, json!(20))], "neither another list, nor what is done");
}

/// WF-8
#[test]
fn wf_8_a_list_above_the_limit_and_no_list_fail_the_step() {
    for list in [json!(7), json!((0..10_001).collect::<Vec<u32>>())] {
        let mut table = Table::new(&listing("call"));
        table.rows(&[(1, "a")]);
        load(&mut table, &list);
        let ops = table.commit_all();
        assert_eq!(parked(&ops).len(), 1);
        assert!(!ops.iter().any(|op| matches!(op, Op::Checkpoint(one) if one.outcome != Checkpointed::Skipped)));
    }
}

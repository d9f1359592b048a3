//! Runs that wait for an event: it may arrive before or after the wait begins, while no node owns the run, or never.

use std::sync::Arc;

use honeyflow_engine::core::{Input, plan::Limits};
use honeyflow_event::{Changes, Event, EventId, EventView, Target};
use honeyflow_runtime::Failure;
use honeyflow_source::Intake;
use honeyflow_store::{
    Op, RecoveredState,
    write::{Checkpoint, CheckpointOutcome},
};
use honeyflow_workflow::{
    Workflow,
    builder::{Step, step},
};
use serde_json::Value;

use crate::table::{Table, keys, leads_to, message, parked, settled, taken};

fn wait() -> Step {
    step("wait").needs(["load"]).set("name", "payment").set("timeout", "1h")
}

/// `load → wait → ship`
fn order(wait: Step) -> Vec<Workflow> {
    vec![
        Workflow::new("order")
            .on("shop", "book")
            .step("load", step("load"))
            .step("paid", wait)
            .step("ship", step("work").needs(["paid"])),
    ]
}

fn payment(id: EventId, key: &str, payload: &str) -> Arc<Event> {
    Arc::new(Event { entity: "payment".into(), ..Event::clone(&message(id, key, payload)) })
}

fn arrive(table: &mut Table, event: &Arc<Event>) {
    table.answer_poll(Intake { taken: vec![taken(event.clone(), leads_to(event))], ..Intake::default() });
}

/// Starts a run of this key that waits, and commits the beginning of the wait.
fn waiting(table: &mut Table, id: EventId, key: &str) -> Checkpoint {
    table.rows(&[(id, key)]);
    table.done("load");
    let ops = table.commit_all();
    let [checkpoint] = checkpoints(&ops)[..] else { panic!("{ops:?}") };
    assert!(matches!(checkpoint.outcome, CheckpointOutcome::Until(_)), "{checkpoint:?}");
    checkpoint.clone()
}

fn checkpoints(ops: &[Op]) -> Vec<&Checkpoint> {
    ops.iter().filter_map(|op| if let Op::Checkpoint(checkpoint) = op { Some(&**checkpoint) } else { None }).collect()
}

fn output(ops: &[Op]) -> Value {
    let [checkpoint] = checkpoints(ops)[..] else { panic!("{ops:?}") };
    match &checkpoint.outcome {
        CheckpointOutcome::Done(Some(output)) => (**output).clone(),
        other => panic!("{other:?}"),
    }
}

/// Commits until an outcome is written; until then no row may be deleted.
fn ended(table: &mut Table) -> Vec<Op> {
    loop {
        let ops = table.commit();
        if !checkpoints(&ops).is_empty() {
            return ops;
        }
        assert_eq!(settled(&ops), [0_i64; 0], "{ops:?}");
    }
}

/// WF-51: the run holds no worker meanwhile. WF-117: it gives the reason why it waits.
#[test]
fn wf_35_a_run_waits_for_the_event_of_its_key() {
    let mut table = Table::new(&order(wait()));
    waiting(&mut table, 1, "a");
    assert_eq!((table.reason(), table.status().held_by_workers, table.status().dormant_runs), ("awaiting", 0, 1));
    arrive(&mut table, &payment(2, "b", "{}"));
    assert_eq!(settled(&table.commit_all()), [2], "it has another key, but does not count as unmatched");
    assert_eq!((table.reason(), table.status().unmatched), ("awaiting", 0));
    arrive(&mut table, &payment(3, "a", r#"{"amount":7}"#));
    let ops = ended(&mut table);
    assert_eq!(output(&ops)["payload"]["amount"], 7);
    assert_eq!(settled(&ops), [3], "its row is deleted with the outcome of the wait, not before");
    let items = table.done("ship");
    assert_eq!(items[0].input.as_deref().map(|event| event["key"].clone()), Some("a".into()));
    assert_eq!(settled(&table.commit_all()), [1]);
    assert_eq!((table.open_runs(), table.status().dormant_runs, table.status().rows_in_flight), (0, 0, 0));
}

#[test]
fn wf_35_match_before_wait() {
    let mut table = Table::new(&order(wait()));
    arrive(&mut table, &payment(1, "a", r#"{"amount":7}"#));
    let ops = table.commit();
    assert!(
        matches!(&ops[..], [Op::Signal { .. }, Op::Settle { .. }]),
        "stored as a signal when its row is deleted: {ops:?}"
    );
    table.rows(&[(2, "a")]);
    table.done("load");
    table.commit();
    assert_eq!(output(&table.commit())["id"], 1);
    table.done("ship");
}

/// The event's signal is being written when the wait begins: the event was not checked on arrival, and is still found.
#[test]
fn wf_35_an_event_that_arrives_while_the_wait_begins_is_found() {
    let mut table = Table::new(&order(wait()));
    table.rows(&[(1, "a")]);
    table.done("load");
    arrive(&mut table, &payment(2, "a", "{}"));
    assert_eq!(table.written.len(), 1, "the beginning is being written");
    table.commit_all();
    assert_eq!(keys(&table.done("ship")), ["a"]);
    let mut table = Table::new(&order(wait()));
    table.rows(&[(1, "a")]);
    let (batch, _) = table.next();
    arrive(&mut table, &payment(2, "a", "{}"));
    table.answer(batch, 1, &honeyflow_step::Outcome::Done(Some(Arc::new(serde_json::json!({})))));
    table.commit_all();
    assert_eq!(keys(&table.done("ship")), ["a"]);
}

#[test]
fn wf_35_a_match_sees_event_steps_and_run() {
    let matches = "$event.payload.order == $run.key and $steps.load.of == \"load\" and .payload.amount > 5";
    let mut table = Table::new(&order(wait().set("match", matches)));
    waiting(&mut table, 1, "a");
    for (id, payload) in [(2, r#"{"order":"b","amount":9}"#), (3, r#"{"order":"a","amount":1}"#), (4, "{}")] {
        arrive(&mut table, &payment(id, "any", payload));
        assert!(checkpoints(&table.commit_all()).is_empty(), "{payload}");
    }
    arrive(&mut table, &payment(5, "other", r#"{"order":"a","amount":9}"#));
    assert_eq!(output(&ended(&mut table))["id"], 5);
}

#[test]
fn wf_35_a_key_is_computed_from_the_run() {
    let mut table = Table::new(&order(wait().set("key", "\"p-\" + $run.key").set("match", ".payload.ok")));
    waiting(&mut table, 1, "a");
    for (id, key, payload) in [(2, "a", r#"{"ok":true}"#), (3, "p-a", r#"{"ok":false}"#)] {
        arrive(&mut table, &payment(id, key, payload));
        assert!(checkpoints(&table.commit_all()).is_empty(), "{key} {payload}");
    }
    arrive(&mut table, &payment(4, "p-a", r#"{"ok":true}"#));
    assert_eq!(output(&ended(&mut table))["id"], 4);
}

/// An event ends all waits that it matches; an event that begins a run can end a wait too.
#[test]
fn wf_35_one_event_ends_every_wait_that_it_matches() {
    let mut table = Table::new(&order(wait().set("match", "true")));
    waiting(&mut table, 1, "a");
    waiting(&mut table, 2, "b");
    arrive(&mut table, &payment(3, "x", "{}"));
    let ops = table.commit_all();
    assert_eq!(checkpoints(&ops).len(), 2);
    assert_eq!(keys(&table.done("ship")), ["a", "b"]);
    let mut table = Table::new(&order(wait().set("name", "book").set("match", "$event.id > 1")));
    waiting(&mut table, 1, "a");
    table.rows(&[(2, "b")]);
    let ops = ended(&mut table);
    assert_eq!((output(&ops)["id"].clone(), settled(&ops)), (2.into(), vec![]), "its own run is still owed");
    assert_eq!(keys(&table.done("load")), ["b"]);
}

#[test]
fn wf_35_a_wait_without_an_event_fails_at_its_time_out() {
    let mut table = Table::new(&order(wait()));
    waiting(&mut table, 1, "a");
    table.pass(3_599_000);
    assert_eq!(table.reason(), "awaiting");
    table.pass(1_500);
    let ops = table.commit();
    let [checkpoint] = checkpoints(&ops)[..] else { panic!("{ops:?}") };
    assert!(matches!(&checkpoint.outcome, CheckpointOutcome::Failed(failure) if failure.code == "wait-timeout"));
    let ops = table.commit_all();
    let [failed] = parked(&ops)[..] else { panic!("{ops:?}") };
    assert_eq!((&*failed.failure.code, &*failed.step, &failed.events[..]), ("wait-timeout", "paid", &[1][..]));
    arrive(&mut table, &payment(2, "a", "{}"));
    table.commit_all();
    assert_eq!((table.open_runs(), table.given.len()), (0, 0), "too late");
}

#[test]
fn wf_35_a_wait_without_an_event_is_skipped_if_the_step_says_so() {
    let mut workflow = order(wait().set("on-timeout", "skip").set("timeout", "10s")).remove(0);
    workflow = workflow.step("remind", step("work").needs(["paid", "load"]).set("trigger", "none-failed"));
    let mut table = Table::new(&[workflow]);
    waiting(&mut table, 1, "a");
    table.pass(11_000);
    assert!(table.given.is_empty(), "the outcome is written before the next step starts");
    let ops = table.commit();
    assert!(matches!(checkpoints(&ops)[..], [Checkpoint { outcome: CheckpointOutcome::Skipped, .. }]), "{ops:?}");
    table.done("remind");
    assert_eq!(settled(&table.commit_all()), [1], "ship is skipped because its need was");
}

/// The node dies while the run waits: the next owner executes the steps that the wait needs again, and waits for the
/// rest of the time.
#[test]
fn wf_35_a_wait_survives_its_owner() {
    let mut table = Table::new(&order(wait().set("match", "$steps.load.of == \"load\"")));
    let began = waiting(&mut table, 1, "a");
    let left = RecoveredState { checkpoints: vec![began.clone()], ..RecoveredState::default() };
    table.next_owner(left.clone());
    table.rows(&[(1, "a")]);
    table.done("load");
    assert_eq!(table.reason(), "awaiting");
    assert!(table.written.is_empty(), "the wait has begun before");
    arrive(&mut table, &payment(2, "a", "{}"));
    assert_eq!(output(&ended(&mut table))["id"], 2);
    // The wait has ended, then the node dies: the next owner does not wait a second time.
    let target = Target { entity: "payment".into(), key: "a".into() };
    let met = EventView::new(payment(2, "a", "{}"), target, Changes::UNKNOWN).as_json();
    let done = Checkpoint { outcome: CheckpointOutcome::Done(Some(Arc::new(met))), ..began };
    table.next_owner(RecoveredState { checkpoints: vec![done], ..RecoveredState::default() });
    table.rows(&[(1, "a")]);
    let shipped = table.given.iter().position(|(_, work)| &*work.step == "ship").expect("ship is given out");
    let (_, work) = table.given.remove(shipped).expect("there");
    assert_eq!(work.items[0].input.as_deref().map(|event| event["id"].clone()), Some(2.into()));
}

#[test]
fn wf_35_the_deadline_survives_its_owner() {
    let mut table = Table::new(&order(wait().set("timeout", "60s")));
    let began = waiting(&mut table, 1, "a");
    let CheckpointOutcome::Until(until) = began.outcome else { panic!("it waits") };
    let left = RecoveredState { checkpoints: vec![began], ..RecoveredState::default() };
    table.next_owner(left.clone());
    // By the store's clock, which the poll reports, 20 s are left.
    let row = crate::table::row(1, "a", 4);
    let intake =
        Intake { taken: vec![taken(row.clone(), leads_to(&row))], store_ms: until - 20_000, ..Intake::default() };
    table.answer_poll(intake.clone());
    table.done("load");
    table.pass(19_000);
    assert_eq!(table.reason(), "awaiting");
    table.pass(1_500);
    assert_eq!(checkpoints(&table.commit()).len(), 1, "the time it began with, not a new hour");
    // The time ran out while no node owned the run: events that arrived meanwhile are read before the wait ends.
    table.next_owner(left);
    table.answer_poll(Intake { store_ms: until + 1_000_000, ..intake });
    table.done("load");
    arrive(&mut table, &payment(2, "a", "{}"));
    assert_eq!(output(&ended(&mut table))["id"], 2);
}

/// An event that a run of an earlier owner waits for stays in the table until that run is resumed.
#[test]
fn wf_35_an_event_that_arrives_before_its_wait_is_resumed_is_not_lost() {
    let mut table = Table::new(&order(wait()));
    let began = waiting(&mut table, 1, "a");
    table.next_owner(RecoveredState { checkpoints: vec![began], ..RecoveredState::default() });
    arrive(&mut table, &payment(2, "a", "{}"));
    assert!(table.written.is_empty(), "the event is left in the table: its wait is not resumed yet");
    table.rows(&[(1, "a")]);
    table.done("load");
    arrive(&mut table, &payment(2, "a", "{}"));
    assert_eq!(output(&ended(&mut table))["id"], 2);
}

/// The event arrives while the steps before the resumed wait are executed again; its signal is not stored yet when the
/// wait looks for it.
#[test]
fn wf_35_an_event_whose_signal_is_being_written_is_not_lost() {
    let mut table = Table::new(&order(wait()));
    let began = waiting(&mut table, 1, "a");
    table.next_owner(RecoveredState { checkpoints: vec![began], ..RecoveredState::default() });
    table.rows(&[(1, "a")]);
    arrive(&mut table, &payment(2, "a", "{}"));
    assert_eq!(table.written.len(), 1, "its signal is under way");
    table.done("load");
    let mut ops = table.commit_all();
    ops.retain(|op| matches!(op, Op::Checkpoint(_)));
    assert_eq!(output(&ops)["id"], 2);
}

/// A wait does not time out while an event that arrived in time is being checked.
#[test]
fn wf_35_a_pending_check_delays_the_time_out() {
    let mut table = Table::new(&order(wait().set("match", ".payload.ok").set("timeout", "10s")));
    waiting(&mut table, 1, "a");
    table.holds_checks = true;
    arrive(&mut table, &payment(2, "a", r#"{"ok":true}"#));
    table.commit_all();
    table.pass(60_000);
    assert!(table.written.is_empty(), "the event may match");
    let (check, _) = table.checks.pop_front().expect("asked");
    table.send(Input::EventsChecked { check, results: vec![Ok(true)] });
    assert_eq!(output(&ended(&mut table))["id"], 2);
    // The same for a pending lookup in the store.
    let mut table = Table::new(&order(wait().set("timeout", "10s")));
    table.holds_lookups = true;
    waiting(&mut table, 1, "a");
    table.pass(60_000);
    assert!(table.written.is_empty());
    let (lookup, wanted) = table.lookups.pop_front().expect("looked up");
    table.send(Input::SignalsFound { source: 0, lookup, result: Err(Failure::retry("down", "not now")) });
    assert_eq!(table.lookups.len(), 1, "asked again");
    let (lookup, _) = table.lookups.pop_front().expect("again");
    let found = table.found(lookup, &wanted);
    table.send(found);
    let ops = table.commit();
    assert!(matches!(checkpoints(&ops)[..], [Checkpoint { outcome: CheckpointOutcome::Failed(_), .. }]), "{ops:?}");
}

/// A malformed event must not fail the waiting runs; a later time-out mentions it.
#[test]
fn wf_35_an_event_whose_check_fails_is_no_match() {
    let mut table = Table::new(&order(wait().set("match", ".payload.ok").set("timeout", "10s")));
    waiting(&mut table, 1, "a");
    arrive(&mut table, &payment(2, "a", "\"a text\""));
    assert_eq!((settled(&table.commit_all()), table.reason()), (vec![2], "awaiting"));
    table.pass(11_000);
    let ops = table.commit_all();
    let [failed] = parked(&ops)[..] else { panic!("{ops:?}") };
    assert!(failed.failure.message.contains("the check of event 2 failed: "), "{}", failed.failure.message);
}

#[test]
fn wf_35_stored_signals_are_read_page_by_page() {
    let mut table = Table::new(&order(wait().set("match", ".id == 250")));
    for id in 1..=260 {
        arrive(&mut table, &payment(id, "x", "{}"));
        table.commit_all();
    }
    table.rows(&[(1000, "a")]);
    table.done("load");
    table.commit();
    assert_eq!(output(&table.commit())["id"], 250);
}

/// WF-51: runs that only wait take no room from runs that work, up to a separate bound.
#[test]
fn wf_51_waiting_runs_take_no_room() {
    let limits = Limits { runs_max: 4, waiting_runs_max: 6, ..Limits::default() };
    let mut table = Table::with_limits(&order(wait()), limits);
    for id in 1..=9 {
        waiting(&mut table, id, &id.to_string());
    }
    assert_eq!((table.open_runs(), table.status().dormant_runs), (9, 9));
    table.rows(&[(10, "10")]);
    table.done("load");
    table.commit_all();
    table.pass(10_000);
    assert!(!table.is_polling(), "four runs more than may wait without taking room");
}

/// A run that has ended leaves no timer or wait behind.
#[test]
fn wf_35_a_cancelled_or_lost_run_waits_no_more() {
    let mut table = Table::new(&order(wait().set("timeout", "10s")));
    waiting(&mut table, 1, "a");
    table.send(Input::Cancel { workflow: "order".into(), entity: "book".into(), key: "a".into() });
    let ops = table.commit_all();
    assert_eq!(&*parked(&ops)[0].failure.code, "cancelled");
    arrive(&mut table, &payment(2, "a", "{}"));
    assert!(checkpoints(&table.commit_all()).is_empty());
    table.pass(20_000);
    assert!(table.written.is_empty());
    waiting(&mut table, 3, "b");
    table.send(Input::Lost { lease: "shard/shop/0".into() });
    assert_eq!((table.open_runs(), table.status().dormant_runs), (0, 0));
    table.pass(20_000);
    assert!(table.written.is_empty());
}

//! Runs that wait for an event: it may come before or after, while nobody is there, or never.

use std::sync::Arc;

use honeyflow_engine::core::{Input, plan::Limits};
use honeyflow_event::{Event, EventId};
use honeyflow_runtime::Failure;
use honeyflow_source::Intake;
use honeyflow_store::{
    Op, Recovered,
    write::{Checkpoint, Checkpointed},
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
    table.harvest(Intake { taken: vec![taken(event.clone(), leads_to(event))], ..Intake::default() });
}

/// A run of this key that waits, its beginning committed.
fn waiting(table: &mut Table, id: EventId, key: &str) -> Checkpoint {
    table.rows(&[(id, key)]);
    table.done("load");
    let ops = table.commit_all();
    let [checkpoint] = checkpoints(&ops)[..] else { panic!("{ops:?}") };
    assert!(matches!(checkpoint.outcome, Checkpointed::Until(_)), "{checkpoint:?}");
    checkpoint.clone()
}

fn checkpoints(ops: &[Op]) -> Vec<&Checkpoint> {
    ops.iter().filter_map(|op| if let Op::Checkpoint(checkpoint) = op { Some(&**checkpoint) } else { None }).collect()
}

fn output(ops: &[Op]) -> Value {
    let [checkpoint] = checkpoints(ops)[..] else { panic!("{ops:?}") };
    match &checkpoint.outcome {
        Checkpointed::Done(Some(output)) => (**output).clone(),
        other => panic!("{other:?}"),
    }
}

/// Commits until an outcome is written; until then no row may go.
fn ended(table: &mut Table) -> Vec<Op> {
    loop {
        let ops = table.commit();
        if !checkpoints(&ops).is_empty() {
            return ops;
        }
        assert_eq!(settled(&ops), [0_i64; 0], "{ops:?}");
    }
}

/// WF-51: it holds no worker meanwhile. WF-117: and says why it waits.
#[test]
fn wf_35_a_run_waits_for_the_event_of_its_key() {
    let mut table = Table::new(&order(wait()));
    waiting(&mut table, 1, "a");
    assert_eq!((table.reason(), table.status().held_by_workers, table.status().dormant_runs), ("awaiting", 0, 1));
    arrive(&mut table, &payment(2, "b", "{}"));
    assert_eq!(settled(&table.commit_all()), [2], "it is of another key, and not unmatched");
    assert_eq!((table.reason(), table.status().unmatched), ("awaiting", 0));
    arrive(&mut table, &payment(3, "a", r#"{"amount":7}"#));
    let ops = ended(&mut table);
    assert_eq!(output(&ops)["payload"]["amount"], 7);
    assert_eq!(settled(&ops), [3], "its row goes with what it has led to, not before");
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
    assert!(matches!(&ops[..], [Op::Signal { .. }, Op::Settle { .. }]), "kept when its row goes: {ops:?}");
    table.rows(&[(2, "a")]);
    table.done("load");
    table.commit();
    assert_eq!(output(&table.commit())["id"], 1);
    table.done("ship");
}

/// The event's own write is under way when the wait begins: it was not judged on arrival, and is found all the same.
#[test]
fn wf_35_what_arrives_while_the_wait_begins_is_found() {
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

/// Everyone who waits for it gets it, and an event that begins a run may be waited for as well.
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
fn wf_35_without_an_event_it_fails_at_its_time() {
    let mut table = Table::new(&order(wait()));
    waiting(&mut table, 1, "a");
    table.pass(3_599_000);
    assert_eq!(table.reason(), "awaiting");
    table.pass(1_500);
    let ops = table.commit();
    let [checkpoint] = checkpoints(&ops)[..] else { panic!("{ops:?}") };
    assert!(matches!(&checkpoint.outcome, Checkpointed::Failed(failure) if failure.code == "wait-timeout"));
    let ops = table.commit_all();
    let [failed] = parked(&ops)[..] else { panic!("{ops:?}") };
    assert_eq!((&*failed.failure.code, &*failed.step, &failed.events[..]), ("wait-timeout", "paid", &[1][..]));
    arrive(&mut table, &payment(2, "a", "{}"));
    table.commit_all();
    assert_eq!((table.open_runs(), table.given.len()), (0, 0), "too late");
}

#[test]
fn wf_35_without_an_event_it_is_skipped_if_so_set() {
    let mut workflow = order(wait().set("on-timeout", "skip").set("timeout", "10s")).remove(0);
    workflow = workflow.step("remind", step("work").needs(["paid", "load"]).set("trigger", "none-failed"));
    let mut table = Table::new(&[workflow]);
    waiting(&mut table, 1, "a");
    table.pass(11_000);
    assert!(table.given.is_empty(), "written before anything follows");
    let ops = table.commit();
    assert!(matches!(checkpoints(&ops)[..], [Checkpoint { outcome: Checkpointed::Skipped, .. }]), "{ops:?}");
    table.done("remind");
    assert_eq!(settled(&table.commit_all()), [1], "ship is skipped with what it needs");
}

/// Killed while it waits: the next owner does what the wait needs once more, and waits as long as it still may.
#[test]
fn wf_35_a_wait_survives_its_owner() {
    let mut table = Table::new(&order(wait().set("match", "$steps.load.of == \"load\"")));
    let began = waiting(&mut table, 1, "a");
    let left = Recovered { checkpoints: vec![began.clone()], ..Recovered::default() };
    table.next_owner(left.clone());
    table.rows(&[(1, "a")]);
    table.done("load");
    assert_eq!(table.reason(), "awaiting");
    assert!(table.written.is_empty(), "it has begun before");
    arrive(&mut table, &payment(2, "a", "{}"));
    assert_eq!(output(&ended(&mut table))["id"], 2);
    // Ended, and killed again: it is not waited for a second time.
    let done = Checkpoint { outcome: Checkpointed::Done(Some(Arc::new(payment(2, "a", "{}").as_json()))), ..began };
    table.next_owner(Recovered { checkpoints: vec![done], ..Recovered::default() });
    table.rows(&[(1, "a")]);
    let shipped = table.given.iter().position(|(_, work)| &*work.step == "ship").expect("ship goes on");
    let (_, work) = table.given.remove(shipped).expect("there");
    assert_eq!(work.items[0].input.as_deref().map(|event| event["id"].clone()), Some(2.into()));
}

#[test]
fn wf_35_the_deadline_survives_its_owner() {
    let mut table = Table::new(&order(wait().set("timeout", "60s")));
    let began = waiting(&mut table, 1, "a");
    let Checkpointed::Until(until) = began.outcome else { panic!("it waits") };
    let left = Recovered { checkpoints: vec![began], ..Recovered::default() };
    table.next_owner(left.clone());
    // Store's clock, as the poll tells it: 20 s are left.
    let row = crate::table::row(1, "a", 4);
    let intake =
        Intake { taken: vec![taken(row.clone(), leads_to(&row))], store_ms: until - 20_000, ..Intake::default() };
    table.harvest(intake.clone());
    table.done("load");
    table.pass(19_000);
    assert_eq!(table.reason(), "awaiting");
    table.pass(1_500);
    assert_eq!(checkpoints(&table.commit()).len(), 1, "the time it began with, not a new hour");
    // Over while nobody was there: what came meanwhile is read before that is decided.
    table.next_owner(left);
    table.harvest(Intake { store_ms: until + 1_000_000, ..intake });
    table.done("load");
    arrive(&mut table, &payment(2, "a", "{}"));
    assert_eq!(output(&ended(&mut table))["id"], 2);
}

/// An event that a run of an earlier owner waits for is left in the table until that run goes on.
#[test]
fn wf_35_an_event_that_comes_before_its_resumed_wait_is_not_lost() {
    let mut table = Table::new(&order(wait()));
    let began = waiting(&mut table, 1, "a");
    table.next_owner(Recovered { checkpoints: vec![began], ..Recovered::default() });
    arrive(&mut table, &payment(2, "a", "{}"));
    assert!(table.written.is_empty(), "it is not taken: nobody could be asked");
    table.rows(&[(1, "a")]);
    table.done("load");
    arrive(&mut table, &payment(2, "a", "{}"));
    assert_eq!(output(&ended(&mut table))["id"], 2);
}

/// Taken while what the resumed wait needs is done once more, and not yet kept when it is looked for.
#[test]
fn wf_35_an_event_whose_signal_is_being_written_is_not_lost() {
    let mut table = Table::new(&order(wait()));
    let began = waiting(&mut table, 1, "a");
    table.next_owner(Recovered { checkpoints: vec![began], ..Recovered::default() });
    table.rows(&[(1, "a")]);
    arrive(&mut table, &payment(2, "a", "{}"));
    assert_eq!(table.written.len(), 1, "its signal is under way");
    table.done("load");
    let mut ops = table.commit_all();
    ops.retain(|op| matches!(op, Op::Checkpoint(_)));
    assert_eq!(output(&ops)["id"], 2);
}

/// Nothing is decided while an event that came in time is being judged.
#[test]
fn wf_35_an_open_question_puts_the_time_out_off() {
    let mut table = Table::new(&order(wait().set("match", ".payload.ok").set("timeout", "10s")));
    waiting(&mut table, 1, "a");
    table.keeps_questions = true;
    arrive(&mut table, &payment(2, "a", r#"{"ok":true}"#));
    table.commit_all();
    table.pass(60_000);
    assert!(table.written.is_empty(), "it may be the one");
    let (judge, _) = table.questions.pop_front().expect("asked");
    table.tell(Input::Judged { judge, results: vec![Ok(true)] });
    assert_eq!(output(&ended(&mut table))["id"], 2);
    // The same for what is looked up in the store.
    let mut table = Table::new(&order(wait().set("timeout", "10s")));
    table.keeps_looks = true;
    waiting(&mut table, 1, "a");
    table.pass(60_000);
    assert!(table.written.is_empty());
    let (look, wanted) = table.looks.pop_front().expect("looked up");
    table.tell(Input::Found { source: 0, look, result: Err(Failure::retry("down", "not now")) });
    assert_eq!(table.looks.len(), 1, "asked again");
    let (look, _) = table.looks.pop_front().expect("again");
    let found = table.found(look, &wanted);
    table.tell(found);
    let ops = table.commit();
    assert!(matches!(checkpoints(&ops)[..], [Checkpoint { outcome: Checkpointed::Failed(_), .. }]), "{ops:?}");
}

/// A strange event must not fail everyone who waits; but it is told why nothing matched.
#[test]
fn wf_35_an_event_that_cannot_be_judged_is_no_match() {
    let mut table = Table::new(&order(wait().set("match", ".payload.ok").set("timeout", "10s")));
    waiting(&mut table, 1, "a");
    arrive(&mut table, &payment(2, "a", "\"a text\""));
    assert_eq!((settled(&table.commit_all()), table.reason()), (vec![2], "awaiting"));
    table.pass(11_000);
    let ops = table.commit_all();
    let [failed] = parked(&ops)[..] else { panic!("{ops:?}") };
    assert!(failed.failure.message.contains("event 2 could not be judged: "), "{}", failed.failure.message);
}

#[test]
fn wf_35_kept_events_are_looked_through_page_by_page() {
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

/// WF-51: runs that only wait take no room of those that work, up to a bound of their own.
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
    assert!(!table.is_asking(), "four more than may wait for free: there is no room");
}

/// What is over leaves nothing behind that could wake up.
#[test]
fn wf_35_a_cancelled_or_lost_run_waits_no_more() {
    let mut table = Table::new(&order(wait().set("timeout", "10s")));
    waiting(&mut table, 1, "a");
    table.tell(Input::Cancel { workflow: "order".into(), entity: "book".into(), key: "a".into() });
    let ops = table.commit_all();
    assert_eq!(&*parked(&ops)[0].failure.code, "cancelled");
    arrive(&mut table, &payment(2, "a", "{}"));
    assert!(checkpoints(&table.commit_all()).is_empty());
    table.pass(20_000);
    assert!(table.written.is_empty());
    waiting(&mut table, 3, "b");
    table.tell(Input::Lost { lease: "shard/shop/0".into() });
    assert_eq!((table.open_runs(), table.status().dormant_runs), (0, 0));
    table.pass(20_000);
    assert!(table.written.is_empty());
}

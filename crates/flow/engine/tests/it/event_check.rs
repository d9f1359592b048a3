//! Which events begin a run: the `when` of an `on` is checked for each event before a run exists.

use std::sync::Arc;

use honeyflow_engine::core::Input;
use honeyflow_event::Event;
use honeyflow_runtime::Failure;
use honeyflow_source::Intake;
use honeyflow_store::{Op, RecoveredState};
use honeyflow_workflow::{Workflow, builder::step};
use serde_json::json;

use crate::table::{Table, keys, leads_to, message, parked, plain, row, settled, taken};

fn paid(name: &str) -> Workflow {
    Workflow::new(name)
        .set("on", json!([{ "source": "shop", "entity": "book", "when": "$event.payload.paid and .priority < 9" }]))
        .step("send", step("call"))
}

fn arrive(table: &mut Table, events: &[Arc<Event>]) {
    let taken = events.iter().map(|event| taken(event.clone(), leads_to(event))).collect();
    table.answer_poll(Intake { taken, ..Intake::default() });
}

#[test]
fn wf_23_only_what_passes_begins_a_run() {
    let mut table = Table::new(&[paid("mail")]);
    arrive(
        &mut table,
        &[message(1, "a", r#"{"paid":true}"#), message(2, "b", r#"{"paid":false}"#), message(3, "c", r#"{}"#)],
    );
    assert_eq!(keys(&table.done("send")), ["a"]);
    assert_eq!(settled(&table.commit_all()), [2, 3, 1], "events that no workflow wants are acknowledged and counted");
    assert_eq!((table.status().unmatched, table.open_runs(), table.status().rows_in_flight), (2, 0, 0));
}

/// An error does not count as `false`: the event is parked for that workflow; other events are not affected.
#[test]
fn wf_23_an_error_parks_the_event_for_that_workflow() {
    let mut table = Table::new(&[paid("mail"), plain().remove(0)]);
    arrive(&mut table, &[message(1, "a", r#""a text""#), message(2, "b", r#"{"paid":true}"#)]);
    table.done("load");
    table.done("index");
    let ops = table.commit_all();
    let [bad] = parked(&ops)[..] else { panic!("{ops:?}") };
    assert_eq!((&*bad.run.workflow, &*bad.run.key, &*bad.failure.code), ("mail", "a", "bad-expression"));
    assert!(bad.failure.message.starts_with("on.when: "), "{}", bad.failure.message);
    assert_eq!((bad.message, &bad.events[..]), (Some(1), &[1][..]), "its row is deleted with its last obligation");
    assert_eq!(keys(&table.done("send")), ["b"]);
    assert_eq!(settled(&table.commit_all()), [2]);
}

/// A run starts if any of its rows passes; a row that does not pass never joins it.
#[test]
fn wf_23_rows_of_a_key_are_checked_one_by_one() {
    let fresh = Workflow::new("fresh")
        .set("on", json!([{ "source": "shop", "entity": "book", "when": "$event.id > 2" }]))
        .step("load", step("load"));
    let mut table = Table::new(&[fresh]);
    table.rows(&[(1, "a"), (2, "b"), (3, "a"), (4, "a")]);
    let items = table.done("load");
    assert_eq!((keys(&items), items[0].event.id), (vec!["a"], 4));
    let mut gone = settled(&table.commit_all());
    gone.sort_unstable();
    assert_eq!(gone, [1, 2, 3, 4]);
}

#[test]
fn wf_23_one_matching_on_is_enough_and_an_on_without_when_takes_all() {
    let on = |whens: &[Option<&str>]| {
        let one = |when: &Option<&str>| {
            let mut on = json!({ "source": "shop", "entity": "book" });
            if let Some(when) = when {
                on["when"] = (*when).into();
            }
            on
        };
        Workflow::new("some").set("on", whens.iter().map(one).collect::<Vec<_>>()).step("send", step("work"))
    };
    for (whens, begins) in [
        (vec![Some("false == true"), Some("$event.key == \"a\"")], true),
        (vec![Some("error(\"bad\")"), Some("true")], true),
        (vec![Some("false == true"), Some("$event.payload")], false),
        (vec![Some("error(\"bad\")"), None], true),
    ] {
        let mut table = Table::new(&[on(&whens)]);
        table.rows(&[(1, "a")]);
        assert_eq!(table.given.len(), usize::from(begins), "{whens:?}");
    }
}

#[test]
fn wf_23_an_unmatched_event_is_parked_if_the_workflow_says_so() {
    let strict = paid("mail").set("unmatched", "park");
    let mut table = Table::new(std::slice::from_ref(&strict));
    arrive(&mut table, &[message(1, "a", r#"{"paid":false}"#)]);
    let ops = table.commit_all();
    let [Op::ParkRow { event: 1, failure }] = &ops[..] else { panic!("{ops:?}") };
    assert_eq!((&*failure.code, table.status().rows_in_flight), ("unmatched", 0));
    // If another workflow wants the event, it is not unmatched.
    let mut table = Table::new(&[strict, plain().remove(0)]);
    table.rows(&[(1, "a")]);
    table.done("load");
    table.done("index");
    assert_eq!(settled(&table.commit_all()), [1]);
}

/// The row stays until the check is answered, even if the other workflow ends first.
#[test]
fn wf_23_a_row_is_kept_until_its_check_is_answered() {
    let mut table = Table::new(&[paid("mail"), plain().remove(0)]);
    table.holds_checks = true;
    arrive(&mut table, &[message(1, "a", r#"{"paid":false}"#)]);
    table.done("load");
    table.done("index");
    assert_eq!(settled(&table.commit_all()), [0_i64; 0], "mail may still want it");
    let (check, items) = table.checks.pop_front().expect("asked");
    table.send(Input::EventsChecked { check, results: vec![Ok(false); items.len()] });
    assert_eq!(settled(&table.commit_all()), [1]);
    assert_eq!(table.status().rows_in_flight, 0);
    table.send(Input::EventsChecked { check, results: vec![Ok(true)] });
    assert_eq!((table.open_runs(), table.status().stale_answers), (0, 1), "an answer counts once");
}

/// Each workflow has one request under way: its events keep their order, and other workflows continue meanwhile.
#[test]
fn wf_23_checks_keep_the_order_of_the_events() {
    let mut table = Table::new(&[paid("first"), paid("second")]);
    table.holds_checks = true;
    arrive(&mut table, &[message(1, "a", r#"{"paid":true}"#)]);
    arrive(&mut table, &[message(2, "a", r#"{"paid":true}"#)]);
    assert_eq!(table.checks.len(), 2, "one for each workflow");
    let (check, _) = table.checks.remove(1).expect("second");
    table.send(Input::EventsChecked { check, results: vec![Ok(true)] });
    assert_eq!(table.done("send")[0].event.id, 1);
    let (_, items) = &table.checks[1];
    assert_eq!(items[0].event.newest.id, 2);
}

/// WF-16: a check that was not reached is sent again; too many slow ones stop the workflow, and its events stay.
#[test]
fn wf_16_a_check_without_an_answer_is_sent_again() {
    let mut table = Table::new(&[paid("mail")]);
    table.holds_checks = true;
    arrive(&mut table, &[message(1, "a", r#"{"paid":true}"#)]);
    let (check, _) = table.checks.pop_front().expect("asked");
    table.send(Input::EventsChecked { check, results: vec![Err(Failure::retry("not-reached", "later"))] });
    assert!(table.checks.is_empty(), "not at once");
    table.pass(500);
    let (check, _) = table.checks.pop_front().expect("asked again");
    table.send(Input::EventsChecked { check, results: vec![Err(Failure::fatal("too-slow", "three of them"))] });
    assert_eq!(table.alarms, ["workflow-stopped"]);
    table.pass(30_000);
    assert!(table.checks.is_empty() && table.written.is_empty());
    table.pass(31_000);
    let (check, _) = table.checks.pop_front().expect("tried again after a while");
    table.send(Input::EventsChecked { check, results: vec![Ok(true)] });
    assert_eq!(keys(&table.done("send")), ["a"]);
}

/// A run that has begun is not checked again, even if its condition has changed.
#[test]
fn wf_21_a_run_that_has_begun_continues_without_another_check() {
    let long = |when: &str| {
        Workflow::new("long")
            .set("on", json!([{ "source": "shop", "entity": "book", "when": when }]))
            .step("call", step("call"))
            .step("index", step("index").needs(["call"]))
    };
    let mut before = Table::new(&[long("$event.key == \"a\"")]);
    before.rows(&[(1, "a")]);
    before.done("call");
    let ops = before.commit();
    let checkpoints = ops.iter().filter_map(|op| if let Op::Checkpoint(c) = op { Some((**c).clone()) } else { None });
    let left = RecoveredState { checkpoints: checkpoints.collect(), ..RecoveredState::default() };
    let mut after = Table::new(&[long("$event.key == \"b\"")]);
    after.next_owner(left);
    arrive(&mut after, &[row(1, "a", 4)]);
    after.done("index");
    assert_eq!(settled(&after.commit_all()), [1]);
}

/// WF-94: each event that is being checked may become a run, and counts towards the room.
#[test]
fn wf_94_events_that_are_being_checked_take_room() {
    let limits = honeyflow_engine::core::plan::Limits { runs_max: 4, ..Default::default() };
    let mut table = Table::with_limits(&[paid("mail")], limits);
    table.holds_checks = true;
    let pay = |id| message(id, &id.to_string(), r#"{"paid":true}"#);
    arrive(&mut table, &[pay(1), pay(2), pay(3), pay(4), pay(5), pay(6)]);
    assert_eq!(table.status().rows_in_flight, 4, "the others stay in the table");
}

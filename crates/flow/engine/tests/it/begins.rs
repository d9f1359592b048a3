//! Which events begin a run: `when` of an `on`, judged for each event before runs exist.

use std::sync::Arc;

use honeyflow_engine::core::Input;
use honeyflow_event::Event;
use honeyflow_runtime::Failure;
use honeyflow_source::Intake;
use honeyflow_store::{Op, Recovered};
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
    table.harvest(Intake { taken, ..Intake::default() });
}

#[test]
fn wf_23_only_what_passes_begins_a_run() {
    let mut table = Table::new(&[paid("mail")]);
    arrive(
        &mut table,
        &[message(1, "a", r#"{"paid":true}"#), message(2, "b", r#"{"paid":false}"#), message(3, "c", r#"{}"#)],
    );
    assert_eq!(keys(&table.done("send")), ["a"]);
    assert_eq!(settled(&table.commit_all()), [2, 3, 1], "what nothing wants is acknowledged, and counted");
    assert_eq!((table.status().unmatched, table.open_runs(), table.status().rows_in_flight), (2, 0, 0));
}

/// An error is no `false`: that event is parked for that workflow, and its neighbours do not notice.
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
    assert_eq!((bad.message, &bad.events[..]), (Some(1), &[1][..]), "its row goes with what it still owed");
    assert_eq!(keys(&table.done("send")), ["b"]);
    assert_eq!(settled(&table.commit_all()), [2]);
}

/// A run starts if any of its rows passes; what does not pass never joins it.
#[test]
fn wf_23_rows_of_a_key_are_judged_one_by_one() {
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
fn wf_23_one_of_several_is_enough_and_one_without_a_condition_takes_all() {
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
fn wf_23_an_unmatched_event_is_parked_if_so_set() {
    let strict = paid("mail").set("unmatched", "park");
    let mut table = Table::new(std::slice::from_ref(&strict));
    arrive(&mut table, &[message(1, "a", r#"{"paid":false}"#)]);
    let ops = table.commit_all();
    let [Op::ParkRow { event: 1, failure }] = &ops[..] else { panic!("{ops:?}") };
    assert_eq!((&*failure.code, table.status().rows_in_flight), ("unmatched", 0));
    // Wanted by another one it is not unmatched.
    let mut table = Table::new(&[strict, plain().remove(0)]);
    table.rows(&[(1, "a")]);
    table.done("load");
    table.done("index");
    assert_eq!(settled(&table.commit_all()), [1]);
}

/// The row is there until the last word is spoken, in whichever order.
#[test]
fn wf_23_a_row_is_kept_until_it_has_been_judged() {
    let mut table = Table::new(&[paid("mail"), plain().remove(0)]);
    table.keeps_questions = true;
    arrive(&mut table, &[message(1, "a", r#"{"paid":false}"#)]);
    table.done("load");
    table.done("index");
    assert_eq!(settled(&table.commit_all()), [0_i64; 0], "mail may still want it");
    let (judge, items) = table.questions.pop_front().expect("asked");
    table.tell(Input::Judged { judge, results: vec![Ok(false); items.len()] });
    assert_eq!(settled(&table.commit_all()), [1]);
    assert_eq!(table.status().rows_in_flight, 0);
    table.tell(Input::Judged { judge, results: vec![Ok(true)] });
    assert_eq!((table.open_runs(), table.status().stale_answers), (0, 1), "an answer counts once");
}

/// Each workflow has one question under way: its events keep their order, and the others go on meanwhile.
#[test]
fn wf_23_questions_are_answered_in_the_order_of_the_events() {
    let mut table = Table::new(&[paid("first"), paid("second")]);
    table.keeps_questions = true;
    arrive(&mut table, &[message(1, "a", r#"{"paid":true}"#)]);
    arrive(&mut table, &[message(2, "a", r#"{"paid":true}"#)]);
    assert_eq!(table.questions.len(), 2, "one for each workflow");
    let (judge, _) = table.questions.remove(1).expect("second");
    table.tell(Input::Judged { judge, results: vec![Ok(true)] });
    assert_eq!(table.done("send")[0].event.id, 1);
    let (_, items) = &table.questions[1];
    assert_eq!(items[0].event.id, 2);
}

/// WF-16: what was not reached is asked again; too many slow ones stop the workflow, and its events stay.
#[test]
fn wf_16_a_question_without_an_answer_is_asked_again() {
    let mut table = Table::new(&[paid("mail")]);
    table.keeps_questions = true;
    arrive(&mut table, &[message(1, "a", r#"{"paid":true}"#)]);
    let (judge, _) = table.questions.pop_front().expect("asked");
    table.tell(Input::Judged { judge, results: vec![Err(Failure::retry("not-reached", "later"))] });
    assert!(table.questions.is_empty(), "not at once");
    table.pass(500);
    let (judge, _) = table.questions.pop_front().expect("asked again");
    table.tell(Input::Judged { judge, results: vec![Err(Failure::fatal("too-slow", "three of them"))] });
    assert_eq!(table.alarms, ["workflow-stopped"]);
    table.pass(30_000);
    assert!(table.questions.is_empty() && table.written.is_empty());
    table.pass(31_000);
    let (judge, _) = table.questions.pop_front().expect("tried again after a while");
    table.tell(Input::Judged { judge, results: vec![Ok(true)] });
    assert_eq!(keys(&table.done("send")), ["a"]);
}

/// A run that has begun is not decided again, whatever its condition says by now.
#[test]
fn wf_21_what_was_begun_goes_on_without_being_judged_again() {
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
    let left = Recovered { checkpoints: checkpoints.collect(), ..Recovered::default() };
    let mut after = Table::new(&[long("$event.key == \"b\"")]);
    after.next_owner(left);
    arrive(&mut after, &[row(1, "a", 4)]);
    after.done("index");
    assert_eq!(settled(&after.commit_all()), [1]);
}

/// WF-94: events that are being judged may all become runs, and take their room.
#[test]
fn wf_94_what_is_being_judged_takes_room() {
    let limits = honeyflow_engine::core::plan::Limits { runs_max: 4, ..Default::default() };
    let mut table = Table::with_limits(&[paid("mail")], limits);
    table.keeps_questions = true;
    let pay = |id| message(id, &id.to_string(), r#"{"paid":true}"#);
    arrive(&mut table, &[pay(1), pay(2), pay(3), pay(4), pay(5), pay(6)]);
    assert_eq!(table.status().rows_in_flight, 4, "the others stay in the table");
}

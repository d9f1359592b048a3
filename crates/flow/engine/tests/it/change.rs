//! What changed: which changes begin a run, and what the expressions of a run see of them.

use std::sync::Arc;

use honeyflow_event::{Changes, Event, EventId};
use honeyflow_source::{Intake, Lead, Leads};
use honeyflow_store::{
    KeyType, Op, RecoveredState,
    write::{Checkpoint, CheckpointOutcome},
};
use honeyflow_workflow::{
    Workflow,
    builder::{Step, step},
};
use serde_json::{Value, json};
use smallvec::smallvec;

use crate::table::{Table, keys, leads_to, parked, plan, row, settled, taken};

/// A workflow that begins for these changes and columns.
fn placed(change: &[&str], columns: &[&str]) -> Workflow {
    let mut on = json!({ "source": "shop", "entity": "book" });
    if !change.is_empty() {
        on["change"] = json!(change);
    }
    if !columns.is_empty() {
        on["columns"] = json!(columns);
    }
    Workflow::new("placed").set("on", json!([on])).step("send", step("call"))
}

fn changed(id: EventId, key: &str, change: Changes, columns: Option<&str>) -> Arc<Event> {
    Arc::new(Event { change, columns: columns.map(Into::into), ..Event::clone(&row(id, key, 4)) })
}

fn arrive(table: &mut Table, events: &[Arc<Event>]) {
    let taken = events.iter().map(|event| taken(event.clone(), leads_to(event))).collect();
    table.answer_poll(Intake { taken, ..Intake::default() });
}

/// The event of a line, which leads to the book `a` by an edge.
fn line(id: EventId) -> Arc<Event> {
    Arc::new(Event {
        entity: "line".into(),
        key: "a|2".into(),
        change: Changes::INSERT,
        ..Event::clone(&row(id, "", 4))
    })
}

/// Hands over the event of the line and, in the same poll, others.
fn arrive_by_edge(table: &mut Table, event: &Arc<Event>, others: &[Arc<Event>]) {
    let target = honeyflow_event::Target { entity: "book".into(), key: "a".into() };
    let leads = Leads::To(smallvec![Lead { target, change: Changes::RELATED }]);
    let others = others.iter().map(|event| taken(event.clone(), leads_to(event)));
    let taken = std::iter::once(taken(event.clone(), leads)).chain(others).collect();
    table.answer_poll(Intake { taken, ..Intake::default() });
}

#[test]
fn wf_142_only_the_named_changes_begin_a_run() {
    let mut table = Table::new(&[placed(&["insert"], &[])]);
    let all = [Changes::INSERT, Changes::UPDATE, Changes::DELETE, Changes::RELATED, Changes::UNKNOWN];
    let events: Vec<_> = (1..).zip(all).map(|(id, change)| changed(id, &format!("k{id}"), change, None)).collect();
    arrive(&mut table, &events);
    assert_eq!(keys(&table.done("send")), ["k1"]);
    let mut gone = settled(&table.commit_all());
    gone.sort_unstable();
    assert_eq!(gone, [1, 2, 3, 4, 5], "a row that no workflow asks for is acknowledged");
    assert_eq!((table.status().unknown_changes, table.open_runs()), (1, 0));
}

#[test]
fn wf_142_columns_narrow_updates_alone() {
    let mut table = Table::new(&[placed(&["insert", "update"], &["state"])]);
    arrive(
        &mut table,
        &[
            changed(1, "a", Changes::INSERT, None),
            changed(2, "b", Changes::UPDATE, Some(r#"["note","State"]"#)),
            changed(3, "c", Changes::UPDATE, Some("[]")),
            changed(4, "d", Changes::UPDATE, None),
            changed(5, "e", Changes::DELETE, None),
        ],
    );
    assert_eq!(keys(&table.done("send")), ["a", "b"]);
    assert_eq!(table.status().unknown_changes, 1, "of event 4 it is unknown which columns changed");
    // `columns` alone means updates.
    let mut table = Table::new(&[placed(&[], &["state"])]);
    arrive(
        &mut table,
        &[changed(1, "a", Changes::INSERT, None), changed(2, "b", Changes::UPDATE, Some(r#"["state"]"#))],
    );
    assert_eq!(keys(&table.done("send")), ["b"]);
}

/// A row is judged before it merges: one that does not pass never joins the run of one that does.
#[test]
fn wf_142_a_row_is_judged_before_it_merges() {
    let mut table = Table::new(&[placed(&["insert"], &[])]);
    arrive(&mut table, &[changed(1, "a", Changes::UPDATE, None), changed(2, "a", Changes::INSERT, None)]);
    let items = table.done("send");
    assert_eq!((keys(&items), items[0].event.id), (vec!["a"], 2));
    // Inserted, then deleted before a poll: both rows are judged, and the insert begins the run.
    let mut table = Table::new(&[placed(&["insert"], &[])]);
    arrive(&mut table, &[changed(1, "a", Changes::INSERT, None), changed(2, "a", Changes::DELETE, None)]);
    assert_eq!(table.done("send")[0].event.id, 1);
}

/// A retry, a replay and a fill name their workflow: whether the change counts was decided before, or does not matter.
#[test]
fn wf_142_a_row_that_names_its_workflow_is_not_judged() {
    let mut table = Table::new(&[placed(&["insert"], &[])]);
    let named = Event { workflow: Some("placed".into()), ..Event::clone(&changed(1, "a", Changes::UPDATE, None)) };
    arrive(&mut table, &[Arc::new(named)]);
    assert_eq!(keys(&table.done("send")), ["a"]);
}

/// A run that has stored an output goes on, even if the configuration asks for other changes by now.
#[test]
fn wf_142_a_row_of_a_begun_run_is_not_judged_again() {
    let mut table = Table::new(&[placed(&["update"], &[]).step("then", step("call").needs(["send"]))]);
    arrive(&mut table, &[changed(1, "a", Changes::UPDATE, None)]);
    table.done("send");
    let ops = table.commit_all();
    let begun = ops.iter().find_map(|op| match op {
        Op::Checkpoint(checkpoint) => Some(Checkpoint::clone(checkpoint)),
        _ => None,
    });
    let left = RecoveredState { checkpoints: vec![begun.expect("the call is stored")], ..RecoveredState::default() };
    assert!(matches!(left.checkpoints[0].outcome, CheckpointOutcome::Done(_)));
    let inserts = placed(&["insert"], &[]).step("then", step("call").needs(["send"]));
    table.next_owner_with(plan(&[inserts], Default::default()), left);
    arrive(&mut table, &[changed(1, "a", Changes::UPDATE, None)]);
    assert_eq!(keys(&table.done("then")), ["a"]);
}

/// The expression's value is the input of the next step.
fn shows(expression: &str) -> Workflow {
    let shape: Step = step("call").set("input", expression);
    Workflow::new("index").on("shop", "book").step("load", step("load")).step("call", shape.needs(["load"]))
}

fn shown(table: &mut Table) -> Value {
    table.done("load");
    let items = table.done("call");
    items[0].input.as_deref().cloned().expect("an input")
}

#[test]
fn wf_143_event_shows_the_union_of_the_changes_of_a_run() {
    let mut table = Table::new(&[shows("[$event.change, $event.columns]")]);
    arrive(
        &mut table,
        &[
            changed(1, "a", Changes::INSERT, None),
            changed(2, "a", Changes::UPDATE, Some(r#"["state"]"#)),
            changed(3, "a", Changes::UPDATE, Some(r#"["note","state"]"#)),
        ],
    );
    let mut shown = shown(&mut table);
    shown[1].as_array_mut().expect("a list").sort_by_key(Value::to_string);
    assert_eq!(shown, json!([["insert", "update"], ["note", "state"]]));
    let mut table = Table::new(&[shows("[$event.change, $event.columns]")]);
    arrive(&mut table, &[changed(1, "a", Changes::UNKNOWN, None)]);
    assert_eq!(self::shown(&mut table), json!([[], []]));
}

/// If a row merged after an expression was evaluated, `when` and body of a step could differ.
#[test]
fn wf_143_a_run_takes_no_row_after_its_first_expression() {
    let call = step("call").when("$event.change == [\"insert\"]").set("input", "$event.change");
    let mut table = Table::new(&[Workflow::new("index").on("shop", "book").step("call", call)]);
    table.holds_evaluations = true;
    arrive(&mut table, &[changed(1, "a", Changes::INSERT, None)]);
    assert_eq!(table.evaluations.len(), 1);
    table.holds_evaluations = false;
    arrive(&mut table, &[changed(2, "a", Changes::UPDATE, None)]);
    assert_eq!(table.status().merged, 0, "the second row waits for a run of its own");
}

/// OB-30, WF-15
#[test]
fn wf_143_an_event_of_another_table_shows_the_key_of_the_run_and_its_cause() {
    let mut table = Table::new(&[shows("$event | {entity, key, change, cause, payload}")]);
    arrive_by_edge(&mut table, &line(7), &[]);
    let cause = json!({ "entity": "line", "key": "a|2", "id": 7 });
    let expected = json!({ "entity": "book", "key": "a", "change": ["related"], "cause": cause, "payload": null });
    assert_eq!(shown(&mut table), expected);
    // The newest row decides: if it is of the entity itself, there is no cause.
    let mut table = Table::new(&[shows("$event | {change, cause}")]);
    arrive_by_edge(&mut table, &line(7), &[changed(8, "a", Changes::UPDATE, None)]);
    assert_eq!(shown(&mut table), json!({ "change": ["update", "related"], "cause": null }));
}

#[test]
fn wf_143_when_of_on_sees_the_key_of_the_document() {
    let on = json!([{ "source": "shop", "entity": "book", "change": ["related"],
        "when": "$event.key == \"a\" and $event.cause.key == \"a|2\"" }]);
    let mut table = Table::new(&[Workflow::new("index").set("on", on).step("call", step("call"))]);
    arrive_by_edge(&mut table, &line(7), &[]);
    let items = table.done("call");
    let input = items[0].input.as_deref().expect("the event");
    assert_eq!((&input["key"], &input["cause"]["id"]), (&json!("a"), &json!(7)), "the input of a root is the event");
}

/// A key with the wrong number of parts, or a text for an integer, would make an event that leads to no row.
#[test]
fn wf_144_emit_refuses_a_key_that_no_row_can_have() {
    let emit = |input: &str| {
        let workflow =
            Workflow::new("index").on("shop", "book").step("tell", step("emit").set("input", input).set("tries", 1));
        let mut plan = plan(&[workflow], Default::default());
        plan.sources[0].entities.get_mut("book").expect("there").key = vec![KeyType::Integer];
        let mut table = Table::with_plan(plan);
        table.rows(&[(1, "1")]);
        table.commit_all()
    };
    for key in [r#""1|2""#, r#""x""#, r#""007""#, "1.5"] {
        let ops = emit(&format!(r#"{{ entity: "book", key: {key} }}"#));
        let [bad] = parked(&ops)[..] else { panic!("{key}: {ops:?}") };
        assert_eq!(&*bad.failure.code, "bad-event", "{key}");
        assert!(bad.failure.message.contains("`book` cannot have"), "{}", bad.failure.message);
    }
    for input in
        [r#"{ entity: "book", key: 7 }"#, r#"{ entity: "book", key: "-7" }"#, r#"{ entity: "other", key: "1|2" }"#]
    {
        assert_eq!(parked(&emit(input)).len(), 0, "{input}");
    }
}

use std::sync::Arc;

use honeyflow_conformance::step::{self, Subject, item, outcomes};
use honeyflow_runtime::Class;
use honeyflow_step::Item;
use serde_json::json;

use super::*;

fn transform(expression: &str) -> TransformStep {
    TransformStep::new(Expression::parse(expression).unwrap())
}

fn keyed(key: &str) -> Item {
    item(0, key, json!({}))
}

async fn one(expression: &str, input: Value) -> Outcome {
    outcomes(&transform(expression), vec![item(0, "a", input)]).await.remove(0)
}

fn failure(outcome: &Outcome) -> (Class, &str) {
    match outcome {
        Outcome::Failed(failure) => (failure.class, &failure.code),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn wf_25_transform_keeps_the_step_contract() {
    let subject = Subject {
        step: Arc::new(transform("if .number < 0 then error(\"negative\") else {twice: (.number * 2)} end")),
        good: |n| item(n, &format!("k{n}"), json!({ "number": n })),
        output: |n| Some(Arc::new(json!({ "twice": n * 2 }))),
        poison: |n| item(n, &format!("bad{n}"), json!({ "number": -1 })),
    };
    step::suite(&subject).await;
}

#[tokio::test]
async fn wf_28_an_expression_sees_input_and_event() {
    let given = one("{title, key: $event.key, entity: $event.entity}", json!({"title": "Ulysses"})).await;
    assert_eq!(given, Outcome::Done(Some(Arc::new(json!({"title": "Ulysses", "key": "a", "entity": "book"})))));
    assert_eq!(one("empty", json!(1)).await, Outcome::Done(None));
    assert_eq!(one("null", json!(1)).await, Outcome::Done(None));
    assert_eq!(one(". == null", Value::Null).await, Outcome::Done(Some(Arc::new(json!(true)))));
    assert_eq!(failure(&one(".a.b", json!({"a": 1})).await), (Class::Reject, "expression-failed"));
}

/// WF-15: it sees the same variables as every other expression of the workflow.
#[tokio::test]
async fn wf_15_an_expression_sees_run_steps_item_and_index() {
    let step = transform("[$run.key, $steps.load.title, $item, $index]");
    let context = honeyflow_step::Context {
        event: None,
        run: Some(Arc::new(json!({ "key": "a" }))),
        steps: vec![("load".into(), Some(Arc::new(json!({ "title": "Ulysses" }))))],
        item: Some(Arc::new(json!(7))),
    };
    let given =
        outcomes(&step, vec![Item { context: Some(Arc::new(context)), index: 3, ..keyed("a") }, keyed("b")]).await;
    assert_eq!(given[0], Outcome::Done(Some(Arc::new(json!(["a", "Ulysses", 7, 3])))));
    assert_eq!(given[1], Outcome::Done(Some(Arc::new(json!([null, null, null, 0])))));
}

#[tokio::test]
async fn wf_28_a_payload_is_json_or_text() {
    let step = transform("$event.payload");
    let with = |payload: &str| {
        let item = keyed("a");
        let event = honeyflow_event::Event { payload: Some(payload.into()), ..(*item.event).clone() };
        Item { event: Arc::new(event), ..item }
    };
    let given = outcomes(&step, vec![with("{\"a\": 1}"), with("{broken"), keyed("none")]).await;
    assert_eq!(given[0], Outcome::Done(Some(Arc::new(json!({"a": 1})))));
    assert_eq!(given[1], Outcome::Done(Some(Arc::new(json!("{broken")))));
    assert_eq!(given[2], Outcome::Done(None));
}

#[tokio::test]
async fn wf_14_a_large_output_is_rejected_alone() {
    let step = transform("if .many then [range(100000)] | map(\"12345678901234567890\") else . end");
    let given = outcomes(&step, vec![item(0, "a", json!({"many": true})), item(1, "b", json!({"many": false}))]).await;
    assert_eq!(failure(&given[0]), (Class::Reject, "output-too-large"));
    assert_eq!(given[1], Outcome::Done(Some(Arc::new(json!({"many": false})))));
}

#[tokio::test]
async fn se_26_hostile_expressions_fail_their_item_only() {
    for hostile in [
        "reduce range(100000) as $n (null; [.])",
        "reduce range(100000) as $n (null; {a: .})",
        "[range(100000)] | map(tostring * 1) | add | . + . + . + . + . + . | [., ., .]",
    ] {
        // the language may also refuse it
        let Ok(expression) = Expression::parse(hostile) else { continue };
        let given = outcomes(&TransformStep::new(expression), vec![keyed("a")]).await;
        assert_eq!(failure(&given[0]).0, Class::Reject, "{hostile}");
    }
}

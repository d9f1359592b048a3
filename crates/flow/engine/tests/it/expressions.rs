//! Expressions of steps: which values they see, what happens if they take too long, and what they may emit.

use std::{
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use honeyflow_engine::{
    codes,
    core::{Evaluation, Input},
};
use honeyflow_evaluate::{Evaluator, Pool, Subject};
use honeyflow_event::{Key, Name};
use honeyflow_runtime::{Class, Failure};
use honeyflow_source::Intake;
use honeyflow_store::{Op, write::CheckpointOutcome};
use honeyflow_workflow::{Workflow, builder::step};
use serde_json::{Value, json};

use crate::{
    engine::Engine,
    table::{Table, keys, leads_to, message, parked, plain, taken},
};

/// WF-15: an expression that the step itself evaluates sees the same values as any other, but only those that it names.
#[test]
fn wf_15_expressions_of_a_step_see_run_steps_and_item() {
    let shape = |expression: &str| step("shape").needs(["load"]).set("expression", expression);
    let workflow = Workflow::new("shape")
        .on("shop", "book")
        .step("load", step("load"))
        .step(
            "each",
            shape("[$steps.load, $run.key, $item, $index]").set("for-each", "[7, 8]").set("input", "$item + 1"),
        )
        .step("plain", shape(". + {a: 1}"));
    let mut table = Table::new(&[workflow]);
    table.rows(&[(1, "a")]);
    table.done("load");
    let each = table.given.iter().position(|(_, work)| &*work.step == "each").expect("given");
    let (_, each) = table.given.remove(each).expect("given");
    let seen: Vec<_> = each.items.iter().map(|item| item.context.clone().expect("a context")).collect();
    assert_eq!(seen[0].steps, [("load".into(), Some(Arc::new(json!({ "of": "load" }))))]);
    let run = seen[0].run.as_deref().expect("the run");
    assert_eq!((&run["workflow"], &run["entity"], &run["key"]), (&json!("shape"), &json!("book"), &json!("a")));
    assert_eq!(seen.iter().map(|seen| seen.item.as_deref()).collect::<Vec<_>>(), [Some(&json!(7)), Some(&json!(8))]);
    assert_eq!(each.items[1].input.as_deref(), Some(&json!(9)), "`input` is evaluated before");
    let (_, plain) = table.next();
    assert_eq!((&*plain.step, plain.items[0].context.is_none()), ("plain", true));
}

fn conditional() -> Vec<Workflow> {
    let when = step("work").set("when", "$event.priority < 9").set("tries", 1);
    vec![Workflow::new("some").on("shop", "book").step("do", when)]
}

/// WF-16: an item that was not reached is evaluated again, one that is too slow has failed; other items are not
/// affected.
#[test]
fn wf_16_the_class_of_a_failed_evaluation_decides() {
    let mut table = Table::new(&conditional());
    table.holds_evaluations = true;
    table.rows(&[(1, "a"), (2, "b"), (3, "c")]);
    let (batch, 3) = table.evaluations.pop_front().expect("given") else { panic!("three together") };
    let results = vec![
        Evaluation::Failed(Failure::retry("not-reached", "later")),
        Evaluation::Failed(Failure::reject("too-slow", "twice")),
        Evaluation::Go(None),
    ];
    table.send(Input::Evaluated { batch, results });
    assert_eq!(keys(&table.done("do")), ["c"]);
    let ops = table.commit_all();
    let [slow] = parked(&ops)[..] else { panic!("{ops:?}") };
    assert_eq!((&*slow.run.key, &*slow.failure.code), ("b", "too-slow"));
    assert!(table.evaluations.is_empty(), "not at once");
    table.pass(500);
    let (batch, 1) = table.evaluations.pop_front().expect("again") else { panic!("it alone") };
    table.send(Input::Evaluated { batch, results: vec![Evaluation::Go(None)] });
    assert_eq!(keys(&table.done("do")), ["a"]);
}

/// WF-16: three distinct slow items mean that the expression is bad: the workflow stops, its events stay.
#[test]
fn wf_16_a_fatal_evaluation_stops_the_workflow() {
    let mut table = Table::new(&conditional());
    table.holds_evaluations = true;
    table.rows(&[(1, "a")]);
    let (batch, _) = table.evaluations.pop_front().expect("given");
    let fatal = Evaluation::Failed(Failure::fatal("too-slow", "three of them"));
    table.send(Input::Evaluated { batch, results: vec![fatal] });
    assert_eq!((&table.alarms[..], table.reason()), (&["workflow-stopped"][..], "fatal"));
    table.pass(30_000);
    assert!(table.evaluations.is_empty() && table.written.is_empty());
    table.pass(31_000);
    assert_eq!(table.evaluations.len(), 1, "tried again after a while");
}

struct TestSubject(Name, Key);

impl Subject for TestSubject {
    fn entity(&self) -> &Name {
        &self.0
    }

    fn key(&self) -> &Key {
        &self.1
    }
}

/// WF-16: abandoned threads hold cores; with eight of them the process must restart.
#[tokio::test]
async fn wf_16_eight_abandoned_threads_end_the_engine() {
    let engine = Engine::new(&plain(), 0, 1);
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let leave_behind = |items: usize| {
        let items: Vec<_> = (0..items).map(|n| TestSubject("book".into(), n.to_string().into())).collect();
        let (pool, gate): (Arc<Pool>, _) = (Arc::new(engine.pool.beside(1)), gate.clone());
        async move {
            let hang = move |_: &TestSubject| {
                let open = gate.0.lock().expect("a gate");
                drop(gate.1.wait_while(open, |open| !*open).expect("a gate"));
                Ok(())
            };
            // Each item hangs twice: once among others and once alone.
            for item in items {
                let work = Arc::new(hang.clone());
                Evaluator::new(pool.clone()).run(Arc::new(vec![item]), Duration::from_secs(1), work).await;
            }
        }
    };
    let running = engine.start();
    leave_behind(3).await;
    assert!(engine.pool.abandoned_in_all() == 6 && !running.is_finished());
    leave_behind(1).await;
    let ended = tokio::time::timeout(Duration::from_secs(30), running).await.expect("it ends").expect("no panic");
    let failure = ended.expect_err("it cannot go on");
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, codes::STUCK_EXPRESSIONS));
    *gate.0.lock().expect("a gate") = true;
    gate.1.notify_all();
}

fn emits(input: &Value) -> (Vec<Op>, Option<Failure>) {
    let emit = step("emit").set("input", "$event.payload").set("tries", 5);
    let mut table = Table::new(&[Workflow::new("tell").on("shop", "book").step("tell", emit)]);
    let event = message(1, "a", &input.to_string());
    table.answer_poll(Intake { taken: vec![taken(event.clone(), leads_to(&event))], ..Intake::default() });
    let ops = table.commit_all();
    let failure = parked(&ops).first().map(|parked| parked.failure.clone());
    (ops, failure)
}

/// WF-33: an event that no source could read is refused by the step that emits it, at once and with the reason.
#[test]
fn wf_33_emitted_events_are_bounded() {
    let event = |key: Value, payload: Value| json!({ "entity": "note", "key": key, "payload": payload });
    let fine = event("k".repeat(1024).into(), "x".repeat((1 << 20) - 2).into());
    let (ops, failure) = emits(&json!([fine, { "entity": "note", "key": 7 }]));
    assert_eq!(failure, None);
    let emitted = ops.iter().find_map(|op| match op {
        Op::Checkpoint(checkpoint) if checkpoint.outcome == CheckpointOutcome::Done(None) => {
            Some(checkpoint.emit.len())
        }
        _ => None,
    });
    assert_eq!(emitted, Some(2));
    let many: Vec<Value> = (0..1001).map(|n| event(n.into(), Value::Null)).collect();
    for (input, code, said) in [
        (
            event("k".repeat(1025).into(), json!(1)),
            "key-too-long",
            "the key of event 0 has 1025 bytes, the limit is 1024",
        ),
        (event("k".into(), "x".repeat(1 << 20).into()), "payload-too-large", "has 1048578 bytes, the limit is 1048576"),
        (many.into(), "too-many-events", "1001 events, the limit is 1000"),
        (json!({ "entity": "", "key": "k" }), "bad-event", "needs `entity` and `key`"),
        (event("a\0b".into(), json!(1)), "bad-event", "contains a NUL character"),
        (json!({ "entity": "a\0b", "key": "k" }), "bad-event", "contains a NUL character"),
    ] {
        let (_, failure) = emits(&input);
        let failure = failure.expect("parked at once");
        assert_eq!((failure.class, &*failure.code), (Class::Reject, code));
        assert!(failure.message.contains(said), "{}", failure.message);
    }
}

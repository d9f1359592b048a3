//! What every kind of step promises: one outcome per item, in order, whatever the items contain; a bad item fails
//! alone.
//!
//! A kind describes itself by a [`Subject`] and calls [`suite`].

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use honeyflow_event::{Changes, Document, Epoch, Event, Kind, Stamp};
use honeyflow_runtime::Class;
use honeyflow_step::{Batch, Item, Outcome, Step};
use serde_json::{Value, json};

/// A generous limit: it only keeps a broken step from hanging the tests.
const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Subject {
    pub step: Arc<dyn Step>,
    /// Makes the n-th item that succeeds.
    pub good: fn(u32) -> Item,
    /// The output of the n-th good item.
    pub output: fn(u32) -> Document,
    /// Makes the n-th item that is rejected.
    pub poison: fn(u32) -> Item,
}

pub async fn suite(subject: &Subject) {
    an_empty_batch_has_no_outcomes(subject).await;
    outcomes_are_in_the_order_of_the_items(subject).await;
    hundreds_of_items_fit_one_batch(subject).await;
    a_bad_item_fails_alone(subject).await;
    only_bad_items_all_fail(subject).await;
    the_same_item_twice_gives_two_outcomes(subject).await;
    a_missing_document_is_handled(subject).await;
    odd_documents_and_keys_are_handled(subject).await;
    batches_at_once_do_not_mix(subject).await;
}

/// An item as a row event makes it, with the given key and document.
pub fn item(n: u32, key: &str, input: Value) -> Item {
    let event = Event {
        id: i64::from(n) + 1,
        format: 1,
        kind: Kind::Row,
        tenant: "".into(),
        entity: "book".into(),
        key: key.into(),
        priority: honeyflow_event::PRIORITY_DEFAULT,
        workflow: None,
        created_ms: 1_700_000_000_000,
        dedupe: None,
        traceparent: None,
        root: None,
        change: Changes::UNKNOWN,
        columns: None,
        payload: None,
    };
    Item {
        install_id: 1,
        entity: "book".into(),
        key: key.into(),
        stamp: Stamp::new(Epoch(7), n),
        event: Arc::new(event),
        input: (!input.is_null()).then(|| Arc::new(input)),
        context: None,
        phase: 0,
        index: 0,
        attempt: 1,
    }
}

pub fn batch(items: Vec<Item>) -> Batch {
    Batch { workflow: "book".into(), step: "subject".into(), items, timeout: TIMEOUT }
}

/// Runs a batch and asserts one outcome per item.
pub async fn outcomes(step: &dyn Step, items: Vec<Item>) -> Vec<Outcome> {
    let count = items.len();
    let outcomes = tokio::time::timeout(TIMEOUT * 2, step.execute(batch(items))).await.expect("the step hangs");
    assert_eq!(outcomes.len(), count, "one outcome per item");
    outcomes
}

pub async fn an_empty_batch_has_no_outcomes(subject: &Subject) {
    assert_eq!(outcomes(&*subject.step, Vec::new()).await, []);
}

pub async fn outcomes_are_in_the_order_of_the_items(subject: &Subject) {
    let numbers = [5, 3, 9, 0, 7, 1];
    let given = outcomes(&*subject.step, numbers.map(subject.good).to_vec()).await;
    assert_eq!(given, numbers.map(|n| Outcome::Done((subject.output)(n))));
}

pub async fn hundreds_of_items_fit_one_batch(subject: &Subject) {
    let given = outcomes(&*subject.step, (0..500).map(subject.good).collect()).await;
    for (n, outcome) in (0..).zip(&given) {
        assert_eq!(*outcome, Outcome::Done((subject.output)(n)), "item {n}");
    }
}

pub async fn a_bad_item_fails_alone(subject: &Subject) {
    for position in [0, 8, 15] {
        let number = |n: u32| if n == position { (subject.poison)(n) } else { (subject.good)(n) };
        let given = outcomes(&*subject.step, (0..16).map(number).collect()).await;
        for (n, outcome) in (0..).zip(&given) {
            if n == position {
                assert_rejected(outcome);
            } else {
                assert_eq!(*outcome, Outcome::Done((subject.output)(n)), "item {n} beside bad item {position}");
            }
        }
    }
}

pub async fn only_bad_items_all_fail(subject: &Subject) {
    outcomes(&*subject.step, (0..20).map(subject.poison).collect()).await.iter().for_each(assert_rejected);
}

pub async fn the_same_item_twice_gives_two_outcomes(subject: &Subject) {
    let given = outcomes(&*subject.step, vec![(subject.good)(4), (subject.good)(4)]).await;
    assert_eq!(given, vec![Outcome::Done((subject.output)(4)); 2]);
}

pub async fn a_missing_document_is_handled(subject: &Subject) {
    let missing = |n| Item { input: None, ..(subject.good)(n) };
    let given = outcomes(&*subject.step, vec![(subject.good)(0), missing(1), (subject.good)(2)]).await;
    assert_done_or_rejected(&given[1]);
    assert_eq!(given[0], Outcome::Done((subject.output)(0)));
    assert_eq!(given[2], Outcome::Done((subject.output)(2)));
}

pub async fn odd_documents_and_keys_are_handled(subject: &Subject) {
    let mut items: Vec<Item> =
        (0..).zip(odd_values()).map(|(n, value)| Item { input: Some(Arc::new(value)), ..(subject.good)(n) }).collect();
    items.extend((0..).zip(odd_keys()).map(|(n, key)| Item { key: key.as_str().into(), ..(subject.good)(n) }));
    let count = u32::try_from(items.len()).expect("a few dozen");
    items.push((subject.good)(count));
    let given = outcomes(&*subject.step, items).await;
    given.iter().for_each(assert_done_or_rejected);
    assert_eq!(given.last(), Some(&Outcome::Done((subject.output)(count))), "the good item among them");
}

pub async fn batches_at_once_do_not_mix(subject: &Subject) {
    let batches = (0..8).map(|part| {
        let numbers: Vec<u32> = (part * 40..part * 40 + 40).collect();
        async move {
            let given = outcomes(&*subject.step, numbers.iter().copied().map(subject.good).collect()).await;
            for (n, outcome) in numbers.into_iter().zip(given) {
                assert_eq!(outcome, Outcome::Done((subject.output)(n)), "item {n}");
            }
        }
    });
    join_all(batches).await;
}

fn assert_rejected(outcome: &Outcome) {
    match outcome {
        Outcome::Failed(failure) => {
            assert_eq!(failure.class, Class::Reject, "{failure:?}");
            assert!(!failure.code.is_empty() && !failure.message.is_empty(), "{failure:?}");
        }
        other => panic!("a bad item gave {other:?}"),
    }
}

/// The outcome is done or rejected, but neither a panic nor a reason to stop the workflow or to retry for ever.
fn assert_done_or_rejected(outcome: &Outcome) {
    if let Outcome::Failed(failure) = outcome {
        assert_eq!(failure.class, Class::Reject, "{failure:?}");
        assert_ne!(failure.code, "panic", "{failure:?}");
    }
}

fn odd_values() -> Vec<Value> {
    let nested = (0..60).fold(json!(1), |inside, _| json!([inside]));
    let wide: serde_json::Map<_, _> = (0..5_000).map(|n| (format!("field {n}"), json!(n))).collect();
    vec![
        json!(false),
        json!(0),
        json!(-0.0),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(f64::MAX),
        json!(5e-324),
        json!(""),
        json!("\0\r\n\t\u{1b}[31m\u{202e}\u{feff}"),
        json!("{.id}%2e%2e/../\\"),
        json!("x".repeat(100_000)),
        json!([]),
        json!({}),
        json!([[[]], {}, null]),
        json!({"": {"": null}}),
        json!({"id": null}),
        json!({"id": {"id": []}}),
        json!({"__proto__": 1, "$event": 2, "a\nb": 3}),
        nested,
        Value::Object(wide),
    ]
}

fn odd_keys() -> Vec<String> {
    let fixed =
        ["", " ", "a\r\nX-Injected: 1", "\0", "../..", "..", "?a=b#c", "'; drop table book; --", "ключ", "a|b\\|c"];
    fixed
        .into_iter()
        .map(str::to_owned)
        .chain([String::from("k").repeat(honeyflow_event::key::KEY_BYTES_MAX)])
        .collect()
}

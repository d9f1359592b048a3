//! Tests of the step on a store that answers by script.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use honeyflow_conformance::step::{self, Subject, item, outcomes};
use honeyflow_runtime::{Class, Failure};
use honeyflow_step::{Batch, Outcome};
use honeyflow_store::{KeyColumn, KeyType, Load, LoadResult, Reply};
use serde_json::json;

use super::*;

type Answer = Box<dyn Fn(&Load) -> Result<Reply, Failure> + Send + Sync>;

struct ScriptedStore {
    answer: Answer,
    calls: Mutex<Vec<Vec<Key>>>,
}

impl Store for ScriptedStore {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        let Request::Load(load) = request else { panic!("a load step asked for {request:?}") };
        assert!(load.expand.is_none());
        self.calls.lock().unwrap().push(load.keys.clone());
        let reply = (self.answer)(&load);
        Box::pin(async move { reply })
    }
}

fn scripted(
    answer: impl Fn(&Load) -> Result<Reply, Failure> + Send + Sync + 'static,
) -> (Arc<ScriptedStore>, LoadStep) {
    let store = Arc::new(ScriptedStore { answer: Box::new(answer), calls: Mutex::default() });
    let id = KeyColumn { name: "id".to_owned(), kind: KeyType::Text };
    let statement = Statement {
        place: "entity.book.document".to_owned(),
        text: "select id, title from book where id in $keys".to_owned(),
        key: vec![id.clone()],
        result_key: vec![id],
        json: Vec::new(),
    };
    let step = LoadStep::new(Arc::clone(&store) as Arc<dyn Store>, Arc::new(statement));
    (store, step)
}

/// `bad…` is rejected, `gone…` has no row, others have a document.
fn by_key(load: &Load) -> Result<Reply, Failure> {
    let loaded = load.keys.iter().map(|key| match &**key {
        bad if bad.starts_with("bad") => LoadResult::Rejected(Failure::reject("two-rows", "two rows of one key")),
        gone if gone.starts_with("gone") => LoadResult::Document(None),
        key => LoadResult::Document(Some(Arc::new(json!({ "id": key })))),
    });
    Ok(Reply::Loaded(loaded.collect()))
}

fn keyed(key: &str) -> honeyflow_step::Item {
    item(0, key, json!({"ignored": true}))
}

fn codes(outcomes: &[Outcome]) -> Vec<(Class, &str)> {
    let codes = outcomes.iter().map(|outcome| match outcome {
        Outcome::Failed(failure) => (failure.class, &*failure.code),
        other => panic!("{other:?}"),
    });
    codes.collect()
}

#[tokio::test]
async fn wf_25_sql_load_keeps_the_step_contract() {
    let (_, step) = scripted(by_key);
    let subject = Subject {
        step: Arc::new(step),
        good: |n| item(n, &format!("k{n}"), json!({})),
        output: |n| Some(Arc::new(json!({ "id": format!("k{n}") }))),
        poison: |n| item(n, &format!("bad{n}"), json!({})),
    };
    step::suite(&subject).await;
}

#[tokio::test]
async fn wf_27_one_call_loads_the_whole_batch() {
    let (store, step) = scripted(by_key);
    let keys: Vec<String> = (0..500).map(|n| format!("k{n}")).collect();
    outcomes(&step, keys.iter().map(|key| keyed(key)).collect()).await;
    let calls = store.calls.lock().unwrap();
    assert_eq!(calls.len(), 1);
    assert!(calls[0].iter().map(|key| &**key).eq(keys.iter().map(String::as_str)));
}

#[tokio::test]
async fn wf_27_a_missing_row_is_null() {
    let (_, step) = scripted(by_key);
    let given = outcomes(&step, vec![keyed("a"), keyed("gone"), keyed("bad")]).await;
    assert_eq!(given[0], Outcome::Done(Some(Arc::new(json!({"id": "a"})))));
    assert_eq!(given[1], Outcome::Done(None));
    assert_eq!(codes(&given[2..]), [(Class::Reject, "two-rows")]);
}

#[tokio::test]
async fn wf_26_a_failed_call_is_the_failure_of_each_item() {
    for failure in [
        Failure::retry("busy", "locked"),
        Failure::retry_after(Duration::from_secs(3), "later", "later"),
        Failure::fatal("no-table", "no such table"),
    ] {
        let expected = Outcome::Failed(failure.clone());
        let (store, step) = scripted(move |_| Err(failure.clone()));
        assert_eq!(outcomes(&step, vec![keyed("a"), keyed("b"), keyed("c")]).await, vec![expected; 3]);
        assert_eq!(store.calls.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn wf_26_a_rejected_batch_is_halved_until_the_guilty_keys_are_alone() {
    let (store, step) = scripted(|load| match load.keys.iter().any(|key| key.starts_with("poison")) {
        true => Err(Failure::reject("bad-cast", "invalid input syntax")),
        false => by_key(load),
    });
    let key = |n: u32| if n == 37 || n == 38 { format!("poison{n}") } else { format!("k{n}") };
    let given = outcomes(&step, (0..100).map(|n| keyed(&key(n))).collect()).await;
    for (n, outcome) in (0..).zip(&given) {
        match n {
            37 | 38 => assert_eq!(codes(std::slice::from_ref(outcome)), [(Class::Reject, "bad-cast")]),
            _ => assert_eq!(*outcome, Outcome::Done(Some(Arc::new(json!({ "id": key(n) }))))),
        }
    }
    assert!(store.calls.lock().unwrap().len() <= 30, "halving, not one by one");
}

#[tokio::test]
async fn wf_26_halving_ends_with_the_time_of_the_batch() {
    let (store, step) = scripted(|_| Err(Failure::reject("bad-cast", "invalid input syntax")));
    let batch = Batch { timeout: Duration::ZERO, ..step::batch(vec![keyed("a"), keyed("b")]) };
    assert_eq!(codes(&step.execute(batch).await), [(Class::Retry, "not-reached"); 2]);
    assert_eq!(store.calls.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn wf_26_a_wrong_number_of_documents_counts_for_none() {
    for count in [0, 2, 4, 1000] {
        let (_, step) = scripted(move |_| Ok(Reply::Loaded(vec![LoadResult::Document(None); count])));
        let given = outcomes(&step, vec![keyed("a"), keyed("b"), keyed("c")]).await;
        assert_eq!(codes(&given), [(Class::Retry, "bad-answer"); 3], "{count} documents for 3 keys");
    }
    let (_, step) = scripted(|_| Ok(Reply::Committed));
    assert_eq!(codes(&outcomes(&step, vec![keyed("a")]).await), [(Class::Fatal, "misplaced-reply")]);
}

//! Runs the store's conformance suite in memory, and tests what only the memory store has.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use honeyflow_conformance::store::{Harness, RawRow, everything};
use honeyflow_event::{Changes, Event, Key, Kind, PRIORITY_DEFAULT};
use honeyflow_hive::contract::HIVE_TIME_START_MS;
use honeyflow_hive_memory::MemoryHive;
use honeyflow_store::{KeyColumn, KeyType, Load, LoadResult, Poll, Reply, Request, Statement, Store};
use honeyflow_store_memory::MemoryStore;
use serde_json::json;

const START_MS: u64 = 200_000_000_000;

fn edge() -> Arc<Statement> {
    Arc::new(Statement {
        place: "entity.book.edge".into(),
        text: "select book_id from book_author where author_id in $keys".into(),
        key: vec![KeyColumn { name: "id".into(), kind: KeyType::Integer }],
        result_key: vec![],
        json: vec![],
    })
}

fn containers(cause: &str) -> Vec<Key> {
    if cause == "7" { (11..=35).map(|n| n.to_string().into()).collect() } else { Vec::new() }
}

fn event(raw: &RawRow, now_ms: i64) -> Event {
    Event {
        id: raw.id.unwrap_or(0),
        format: 1,
        kind: raw.kind.unwrap_or(Kind::Row),
        tenant: "".into(),
        entity: raw.entity.into(),
        key: raw.key.as_str().into(),
        priority: raw.priority.unwrap_or(PRIORITY_DEFAULT),
        workflow: raw.workflow.map(Into::into),
        created_ms: now_ms,
        dedupe: raw.dedupe.map(Into::into),
        traceparent: None,
        root: None,
        change: Changes::UNKNOWN,
        columns: None,
        payload: raw.payload.as_deref().map(Into::into),
    }
}

async fn fresh() -> Harness {
    let now_ms = Arc::new(AtomicU64::new(START_MS));
    let clock = Arc::clone(&now_ms);
    let hive = Arc::new(MemoryHive::new(move || clock.load(Ordering::Relaxed)));
    let store = Arc::new(MemoryStore::new(Arc::clone(&hive)).with_containers(containers));
    let (rows, clock, passing) = (Arc::clone(&store), Arc::clone(&now_ms), now_ms);
    Harness {
        store,
        hive,
        insert: Box::new(move |raw| {
            let now_ms = clock.load(Ordering::Relaxed).cast_signed() + HIVE_TIME_START_MS;
            let id = rows.insert(event(&raw, now_ms), raw.ready_in_ms.map(|ms| now_ms + ms));
            std::future::ready(id).boxed()
        }),
        pass: Box::new(move |time| {
            passing.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
            std::future::ready(()).boxed()
        }),
        edge: Some(edge()),
        keep: Box::new(()),
    }
}

honeyflow_conformance::store_suite!(fresh);

#[tokio::test]
async fn documents_come_from_the_closure_in_the_order_of_the_keys() {
    let store = MemoryStore::new(Arc::new(MemoryHive::new(|| START_MS)))
        .with_documents(|key| (key != "gone").then(|| json!({"id": key})));
    let load = Load {
        statement: edge(),
        keys: vec!["2".into(), "gone".into(), "1".into()],
        expand: None,
        timeout: Duration::from_secs(1),
    };
    let Ok(Reply::Loaded(loaded)) = store.call(Request::Load(load)).await else { panic!("not loaded") };
    let expected = [Some(json!({"id": "2"})), None, Some(json!({"id": "1"}))];
    assert_eq!(loaded, expected.map(|document| LoadResult::Document(document.map(Arc::new))));
}

#[tokio::test]
async fn a_poll_of_a_few_hundred_does_not_depend_on_the_backlog() {
    let store = MemoryStore::new(Arc::new(MemoryHive::new(|| START_MS)));
    let raw = RawRow { entity: "book", ..RawRow::default() };
    store.preload((0..200_000).map(|n| Event { key: n.to_string().into(), ..event(&raw, 0) }).collect());
    assert_eq!(store.waiting(), 200_000);
    let mut poll: Poll = everything();
    poll.levels.iter_mut().for_each(|level| level.room = 50);
    poll.newest = 100;
    let began_at = Instant::now();
    for round in 0..200 {
        poll.levels[4].after = round * 500;
        let Ok(Reply::Polled(polled)) = store.call(Request::Poll(poll.clone())).await else { panic!("not polled") };
        assert_eq!(polled.events.len(), 150);
    }
    assert!(began_at.elapsed() < Duration::from_secs(10), "{:?}", began_at.elapsed());
}

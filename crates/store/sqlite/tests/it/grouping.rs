//! The one writer: requests share a transaction, but each succeeds or fails alone.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use honeyflow_conformance::store::{everything, new_event};
use honeyflow_event::EventId;
use honeyflow_hive::{Fence, NodeId};
use honeyflow_runtime::{Class, Failure};
use honeyflow_store::{Op, Reply, Request, Store, Write};
use honeyflow_store_sqlite::{Options, SqliteStore};
use rusqlite::TransactionBehavior;

use crate::Shop;

async fn fence(shop: &Shop) -> Fence {
    let hive = honeyflow_hive_sqlite::open(&shop.path(), honeyflow_hive::contract::HIVE).unwrap();
    let node = NodeId(uuid::Uuid::new_v4());
    honeyflow_hive::member::take(&hive, node, "shard/shop/0").await.unwrap().fence()
}

fn settle(fence: &Fence, ids: &[EventId]) -> Request {
    Request::Write(Write { fence: fence.clone(), ops: vec![Op::Settle { events: ids.to_vec(), runs: vec![] }] })
}

async fn append(store: &SqliteStore, count: usize) -> Vec<EventId> {
    let events = (0..count).map(|n| new_event(&n.to_string())).collect();
    match store.call(Request::Append { events, idempotency: None }).await.unwrap() {
        Reply::Appended { ids, .. } => ids,
        other => panic!("{other:?}"),
    }
}

async fn left(store: &SqliteStore) -> Vec<EventId> {
    match store.call(Request::Poll(everything())).await.unwrap() {
        Reply::Polled(polled) => polled.events.iter().map(|event| event.id).collect(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_request_that_fails_does_not_fail_its_neighbours() {
    let (shop, store) = Shop::new("").await;
    let fence = fence(&shop).await;
    let ids = append(&store, 30).await;
    // The delete of this row fails in the middle of its request.
    shop.application()
        .execute_batch(&format!(
            "create trigger guard before delete on honeyflow_outbox when old.id = {}
             begin select raise(abort, 'not this one'); end",
            ids[16]
        ))
        .unwrap();
    // One operation per row, so that some are done before it fails.
    let requests = ids.chunks(3).map(|chunk| {
        let ops = chunk.iter().map(|id| Op::Settle { events: vec![*id], runs: vec![] }).collect();
        store.call(Request::Write(Write { fence: fence.clone(), ops }))
    });
    let replies = join_all(requests).await;
    for (n, reply) in replies.iter().enumerate() {
        match reply {
            Ok(Reply::Committed) => assert_ne!(n, 5),
            Err(failure) => assert_eq!((n, &*failure.code), (5, "constraint"), "{failure}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(left(&store).await, ids[15..18], "the whole failed request is rolled back");
}

#[tokio::test]
async fn while_the_application_writes_requests_wait_and_then_fail_as_busy() {
    let (shop, _) = Shop::new("").await;
    let fence = fence(&shop).await;
    let options = Options { busy_timeout: Duration::from_millis(300), ..shop.options() };
    let store = SqliteStore::open(&options).unwrap();
    let ids = append(&store, 2).await;
    let mut application = shop.application();
    let transaction = application.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let refused = join_all([store.call(settle(&fence, &ids[..1])), store.call(settle(&fence, &ids[1..]))]).await;
    for reply in refused {
        let failure = reply.unwrap_err();
        assert_eq!((failure.class, &*failure.code), (Class::Retry, "database-busy"), "{failure}");
    }
    assert_eq!(left(&store).await, ids, "polls continue to read");
    let patient = SqliteStore::open(&Options { busy_timeout: Duration::from_secs(30), ..shop.options() }).unwrap();
    let waiting = tokio::spawn(patient.call(settle(&fence, &ids)));
    tokio::time::sleep(Duration::from_millis(100)).await;
    transaction.commit().unwrap();
    assert!(matches!(waiting.await.unwrap(), Ok(Reply::Committed)));
    assert!(left(&store).await.is_empty());
}

#[tokio::test]
async fn small_acknowledgements_wait_and_share_a_transaction() {
    let (shop, _) = Shop::new("").await;
    let fence = fence(&shop).await;
    let commits = |shop: &Shop| -> i64 {
        // The size of the WAL grows with every commit.
        std::fs::metadata(shop.folder.path().join("shop.db-wal")).map_or(0, |wal| wal.len().cast_signed())
    };
    let options = Options { acknowledge_every: Duration::from_millis(200), ..shop.options() };
    let store = SqliteStore::open(&options).unwrap();
    let ids = append(&store, 50).await;
    shop.application().execute_batch("pragma wal_checkpoint(truncate)").unwrap();
    let mut waiting = Vec::new();
    for id in &ids {
        waiting.push(tokio::spawn(store.call(settle(&fence, &[*id]))));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for reply in join_all(waiting).await {
        assert!(matches!(reply.unwrap(), Ok(Reply::Committed)));
    }
    assert!(left(&store).await.is_empty());
    let grouped = commits(&shop);
    assert!(grouped < 50 * 2 * 4096, "50 acknowledgements wrote {grouped} bytes: they were not grouped");
}

#[tokio::test]
async fn threads_end_with_the_store() {
    let (shop, store) = Shop::new("").await;
    drop(store);
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        // The kernel cuts names at 15 bytes.
        names.filter(|name| name.trim().ends_with(" zq7x")).count()
    };
    let named = SqliteStore::open(&Options { source: "zq7x".into(), ..shop.options() }).unwrap();
    // A thread names itself, so it may take a moment.
    until(|| threads() == 3).await;
    drop(named);
    until(|| threads() == 0).await;
}

async fn until(mut reached: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if reached() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within 10 s");
}

#[tokio::test]
async fn a_stopped_store_answers_retry() {
    let (_shop, store) = Shop::new("").await;
    let store = Arc::new(store);
    let failed = store.write_with(|_| -> Result<(), Failure> { panic!("a bug stops the writer") }).await.unwrap_err();
    assert_eq!((failed.class, &*failed.code), (Class::Retry, "store-stopped"));
    let request = Request::Append { events: vec![new_event("1")], idempotency: None };
    assert_eq!(store.call(request).await.unwrap_err().code, "store-stopped");
}

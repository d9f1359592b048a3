//! A fence that this hive has minted, used by the store in the same database.

use honeyflow_conformance::{
    hive::{TTL_MS, TestMember, test_member::epoch_of},
    store::{everything, new_event},
};
use honeyflow_hive::{Fence, Term, contract::HIVE};
use honeyflow_hive_postgres::Options;
use honeyflow_store::{Op, Reply, Request, Store, Write};
use honeyflow_store_postgres::PostgresStore;

use crate::{TestDatabase, at_server};

const LEASE: &str = "shard/shop/0";

async fn settle(store: &PostgresStore, fence: &Fence, event: i64) -> Reply {
    let ops = vec![Op::Settle { events: vec![event], runs: Vec::new() }];
    store.call(Request::Write(Write { fence: fence.clone(), ops })).await.unwrap()
}

async fn events_left(store: &PostgresStore) -> usize {
    match store.call(Request::Poll(everything())).await.unwrap() {
        Reply::Polled(polled) => polled.events.len(),
        other => panic!("{other:?}"),
    }
}

async fn check_fences(field: TestDatabase) {
    let of_store = honeyflow_store_postgres::Options::new(&field.way, "shop").unwrap();
    assert_eq!((&*of_store.hive, &*Options::new("").hive), (HIVE, HIVE), "both mean the same hive");
    let store = PostgresStore::open(honeyflow_store_postgres::Options { shards: 1, ..of_store }).await.unwrap();
    store.migrate().await.unwrap();
    let events = ["1", "2", "3"].map(new_event).to_vec();
    store.call(Request::Append { events, idempotency: None }).await.unwrap();
    let hive = honeyflow_hive_postgres::open(&field.way).await.unwrap();
    let (bee, heir) = (TestMember::join(hive.clone(), "a", TTL_MS).await, TestMember::join(hive, "b", TTL_MS).await);
    let old: Term = bee.term(LEASE).await;
    assert!(matches!(settle(&store, &old.fence(), 1).await, Reply::Committed));
    heir.beat().await;
    let minted = epoch_of(&bee.call(bee.transfer_request(LEASE, old.epoch(), heir.id)).await);
    assert!(matches!(settle(&store, &old.fence(), 2).await, Reply::Fenced), "the lease has a new holder");
    assert_eq!(events_left(&store).await, 2);
    assert!(heir.release(LEASE, minted).await);
    let new = heir.term(LEASE).await;
    assert!(matches!(settle(&store, &new.fence(), 2).await, Reply::Committed));
    assert!(matches!(settle(&store, &old.fence(), 3).await, Reply::Fenced));
    // The holder was removed, but no node has taken the lease since: the removed node may still finish its work.
    assert!(bee.removes(heir.id, 2, true).await);
    assert!(matches!(settle(&store, &new.fence(), 3).await, Reply::Committed));
    bee.term(LEASE).await;
    assert!(matches!(settle(&store, &new.fence(), 3).await, Reply::Fenced));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_42_the_store_beside_it_accepts_what_holds_and_refuses_what_is_over() {
    let Some(field) = TestDatabase::bare().await else { return };
    check_fences(field).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_42_the_same_through_a_pooler() {
    let (Some(pooler), Some(field)) = (honeyflow_services::pgbouncer(), TestDatabase::bare().await) else { return };
    check_fences(TestDatabase::at(&field.url, &at_server(&pooler.url, &field.url))).await;
}

//! The hive's suite in memory, and what only memory has.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use honeyflow_conformance::hive::Harness;
use honeyflow_event::Epoch;
use honeyflow_hive::{HiveStore, NodeId, Reply, Request};
use honeyflow_hive_memory::MemoryHive;
use uuid::Uuid;

const NOW_MS: u64 = 200_000_000_000;

async fn fresh() -> Harness {
    Harness { hive: Arc::new(MemoryHive::new(|| NOW_MS)), many_nodes: true, keep: Box::new(()) }
}

honeyflow_conformance::hive_suite!(fresh);

#[tokio::test]
async fn hv_33_an_epoch_is_hive_time_or_one_more() {
    let now_ms = Arc::new(AtomicU64::new(NOW_MS));
    let clock = Arc::clone(&now_ms);
    let hive = MemoryHive::new(move || clock.load(Ordering::Relaxed));
    let node = NodeId(Uuid::new_v4());
    let term = honeyflow_hive::member::take(&hive, node, "duty/report").await.unwrap();
    assert_eq!(term.epoch(), Epoch(NOW_MS));
    // The clock steps back: the epoch still grows.
    now_ms.store(5, Ordering::Relaxed);
    hive.call(Request::Release { lease: "duty/report".into(), node, epoch: term.epoch() }).await.unwrap();
    let next = honeyflow_hive::member::take(&hive, node, "duty/report").await.unwrap();
    assert_eq!(next.epoch(), Epoch(NOW_MS + 1));
    assert!(hive.holds(&next.fence()) && !hive.holds(&term.fence()));
}

#[tokio::test]
async fn hv_34_a_buried_holder_has_no_lease() {
    let hive = MemoryHive::new(|| NOW_MS);
    let dead = NodeId(Uuid::new_v4());
    let term = honeyflow_hive::member::take(&hive, dead, "queen").await.unwrap();
    let heir = NodeId(Uuid::new_v4());
    assert!(honeyflow_hive::member::take(&hive, heir, "queen").await.is_err(), "it lives");
    hive.bury(dead);
    assert!(hive.holds(&term.fence()), "until somebody takes it, nobody else writes");
    let next = honeyflow_hive::member::take(&hive, heir, "queen").await.unwrap();
    assert!(next.epoch() > term.epoch());
    assert!(!hive.holds(&term.fence()));
    let reply = hive.call(Request::Beat { node: dead, read_only: false }).await.unwrap();
    assert_eq!(reply, Reply::Beat { hive_ms: NOW_MS, member: false });
}

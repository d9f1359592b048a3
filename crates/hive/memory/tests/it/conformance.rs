//! The conformance suite of the hive in memory, and tests that only the memory backend has.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use futures_util::future::{BoxFuture, ready};
use honeyflow_conformance::hive::Rig;
use honeyflow_event::Epoch;
use honeyflow_hive::{
    HiveStore, NodeId, Reply, Request,
    contract::{HeldLease, State},
};
use honeyflow_hive_memory::MemoryHive;
use uuid::Uuid;

const NOW_MS: u64 = 200_000_000_000;

struct Memory {
    clock: Arc<AtomicU64>,
    hives: Mutex<BTreeMap<String, Arc<MemoryHive>>>,
}

async fn fresh() -> Memory {
    Memory { clock: Arc::new(AtomicU64::new(NOW_MS)), hives: Mutex::default() }
}

impl Rig for Memory {
    fn open<'a>(&'a self, hive: &'a str) -> BoxFuture<'a, Arc<dyn HiveStore>> {
        let mut hives = self.hives.lock().unwrap();
        let made = || {
            let clock = Arc::clone(&self.clock);
            Arc::new(MemoryHive::new(move || clock.load(Ordering::Relaxed)))
        };
        let hive: Arc<dyn HiveStore> = hives.entry(hive.to_owned()).or_insert_with(made).clone();
        Box::pin(ready(hive))
    }

    fn step_clock(&self, by_ms: i64) -> BoxFuture<'_, bool> {
        let now_ms = self.clock.load(Ordering::Relaxed);
        self.clock.store(now_ms.checked_add_signed(by_ms).unwrap(), Ordering::Relaxed);
        Box::pin(ready(true))
    }

    fn change_lineage(&self) -> BoxFuture<'_, bool> {
        for hive in self.hives.lock().unwrap().values() {
            hive.rows().move_to_server("another");
        }
        Box::pin(ready(true))
    }

    fn write_newer_event(&self) -> BoxFuture<'_, bool> {
        for hive in self.hives.lock().unwrap().values() {
            hive.rows().forget_newest_kind();
        }
        Box::pin(ready(true))
    }

    fn wipe(&self) -> BoxFuture<'_, bool> {
        for hive in self.hives.lock().unwrap().values() {
            hive.rows().wipe();
        }
        Box::pin(ready(true))
    }
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
    // The clock steps back, and the epoch still grows.
    now_ms.store(5, Ordering::Relaxed);
    let held = vec![HeldLease { lease: "duty/report".into(), epoch: term.epoch() }];
    hive.call(Request::Release { node, held, cause: "done".into() }).await.unwrap();
    let next = honeyflow_hive::member::take(&hive, node, "duty/report").await.unwrap();
    assert_eq!(next.epoch(), Epoch(NOW_MS + 1));
    assert!(hive.holds(&next.fence()) && !hive.holds(&term.fence()));
}

#[tokio::test]
async fn hv_34_a_removed_holder_has_no_lease() {
    let hive = MemoryHive::new(|| NOW_MS);
    let dead = NodeId(Uuid::new_v4());
    let term = honeyflow_hive::member::take(&hive, dead, "queen").await.unwrap();
    let heir = NodeId(Uuid::new_v4());
    assert!(honeyflow_hive::member::take(&hive, heir, "queen").await.is_err(), "it lives");
    hive.remove_dead(dead);
    assert!(hive.holds(&term.fence()), "no other node writes until one takes the lease");
    let next = honeyflow_hive::member::take(&hive, heir, "queen").await.unwrap();
    assert!(next.epoch() > term.epoch());
    assert!(!hive.holds(&term.fence()));
    let reply = hive.call(Request::Beat { node: dead, read_only: false, state: State::default() }).await.unwrap();
    assert!(matches!(reply, Reply::Beat(status) if !status.member));
}

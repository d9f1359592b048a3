//! Steps under a concurrency limit, in the whole engine: each step holds a slot from before its call until the call has
//! ended.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use honeyflow_engine::shell::limit::{StepLimit, StepLimits};
use honeyflow_event::Key;
use honeyflow_hive::{
    Hive, Options,
    limit::{Definition, Limit},
};
use honeyflow_hive_memory::MemoryHive;
use honeyflow_runtime::{Clock, Failure, time::BootClock};
use honeyflow_step::{Batch, Outcome, Step};
use honeyflow_workflow::{Workflow, builder::step};
use tokio::sync::watch;

use crate::{
    engine::{DEADLINE, Engine},
    table::failed,
};

const SLOTS: u64 = 2;

/// The number of items in progress, now and at most. An item whose step ends in any way is no longer counted.
#[derive(Default)]
struct InProgress {
    now: AtomicU64,
    most: AtomicU64,
}

struct InProgressGuard(Arc<InProgress>, u64);

impl InProgressGuard {
    fn enter(inside: &Arc<InProgress>, items: usize) -> InProgressGuard {
        let now = inside.now.fetch_add(items as u64, Ordering::SeqCst) + items as u64;
        inside.most.fetch_max(now, Ordering::SeqCst);
        InProgressGuard(inside.clone(), items as u64)
    }
}

impl Drop for InProgressGuard {
    fn drop(&mut self) {
        self.0.now.fetch_sub(self.1, Ordering::SeqCst);
    }
}

/// Fails the first attempt of three keys: `k1` panics, `k2` hangs, `k3` is rejected for a retry.
#[derive(Default)]
struct FlakyStep {
    inside: Arc<InProgress>,
    seen: Mutex<Vec<Key>>,
}

impl Step for FlakyStep {
    fn execute(&self, batch: Batch) -> BoxFuture<'static, Vec<Outcome>> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let new: Vec<bool> = batch.items.iter().map(|item| !seen.contains(&item.key)).collect();
        seen.extend(batch.items.iter().map(|item| item.key.clone()));
        drop(seen);
        let inside = self.inside.clone();
        Box::pin(async move {
            let _guard = InProgressGuard::enter(&inside, batch.items.len());
            let is_first = |key: &str| batch.items.iter().zip(&new).any(|(item, new)| *new && &*item.key == key);
            assert!(!is_first("k1"), "this one panics");
            if is_first("k2") {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            let down = || failed(Failure::retry("down", "it is down"));
            let outcome = |new: &bool, key: &str| if *new && key == "k3" { down() } else { Outcome::Done(None) };
            batch.items.iter().zip(&new).map(|(item, new)| outcome(new, &item.key)).collect()
        })
    }
}

async fn limit() -> (Hive, Limit) {
    let clock = BootClock;
    let store = Arc::new(MemoryHive::new(move || clock.now().0 / 1000));
    let options = Options::named("limits").limit(Definition::slots("api", SLOTS));
    let hive = Hive::join(store, options).await.expect("a hive");
    let api = hive.limit("api").expect("a limit");
    (hive, api)
}

fn limits(limit: &Limit, shadow: bool) -> StepLimits {
    [("api".into(), StepLimit { limit: limit.clone(), shadow })].into_iter().collect()
}

fn limited(timeout: &str) -> Vec<Workflow> {
    let call = step("work").set("limit", "api").set("timeout", timeout);
    vec![Workflow::new("limited").on("shop", "book").set("exclusion", "workflow").step("do", call)]
}

async fn all_slots_come_back(limit: &Limit) {
    assert!(limit.take(SLOTS, DEADLINE).await.is_ok(), "{:?}", limit.snapshot());
}

/// HV-68, HV-74: never more steps at once than slots, and every slot comes back, however its step ends.
#[tokio::test]
async fn hv_68_no_more_steps_than_slots_and_failures_lose_no_slot() {
    let (_hive, api) = limit().await;
    let flaky = Arc::new(FlakyStep::default());
    let mut engine = Engine::with(&limited("200ms"), 0, 8, |_| flaky.clone(), limits(&api, false));
    engine.rows(1..=20);
    let _running = engine.start();
    engine.done().await;
    let seen = flaky.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!((1..=20).all(|id| seen.iter().any(|key| **key == *format!("k{id}"))), "{seen:?}");
    assert!(flaky.inside.most.load(Ordering::SeqCst) <= SLOTS);
    all_slots_come_back(&api).await;
}

/// Waits until the test lets it go.
struct GatedStep(Arc<InProgress>, watch::Sender<bool>);

impl Step for GatedStep {
    fn execute(&self, batch: Batch) -> BoxFuture<'static, Vec<Outcome>> {
        let (inside, mut may_go) = (self.0.clone(), self.1.subscribe());
        Box::pin(async move {
            let _guard = InProgressGuard::enter(&inside, batch.items.len());
            let _ = may_go.wait_for(|may_go| *may_go).await;
            vec![Outcome::Done(None); batch.items.len()]
        })
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(DEADLINE, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "never came: {what}");
}

/// HV-68, WF-72: a step that waits for a slot holds no worker; the next step gets the slot of a cancelled run.
#[tokio::test]
async fn hv_68_the_slot_of_a_cancelled_step_goes_to_the_next() {
    let (_hive, api) = limit().await;
    let gated = Arc::new(GatedStep(Arc::default(), watch::Sender::new(false)));
    let mut engine = Engine::with(&limited("1h"), 0, 8, |_| gated.clone(), limits(&api, false));
    engine.rows(1..=1);
    let _running = engine.start();
    until("the first is in progress", || gated.0.now.load(Ordering::SeqCst) == 1).await;
    engine.rows(2..=3);
    until("the second has the other slot", || gated.0.now.load(Ordering::SeqCst) == SLOTS).await;
    assert_eq!(api.snapshot().slots, Some((SLOTS, SLOTS)));
    engine.handle.cancel("limited".into(), "book".into(), "k1".into()).await;
    until("the third has its slot", || api.snapshot().admitted == 3).await;
    until("the third is in progress", || gated.0.now.load(Ordering::SeqCst) == SLOTS).await;
    gated.1.send_replace(true);
    engine.done().await;
    assert!(gated.0.most.load(Ordering::SeqCst) <= SLOTS);
    all_slots_come_back(&api).await;
}

/// HV-73: a shadow limit delays no step, and counts what it would have granted.
#[tokio::test]
async fn hv_73_a_shadow_limit_counts_slots_and_delays_no_step() {
    let (_hive, api) = limit().await;
    let gated = Arc::new(GatedStep(Arc::default(), watch::Sender::new(false)));
    let mut engine = Engine::with(&limited("1h"), 0, 8, |_| gated.clone(), limits(&api, true));
    engine.rows(1..=5);
    let _running = engine.start();
    until("all are in progress", || gated.0.now.load(Ordering::SeqCst) == 5).await;
    assert_eq!(api.snapshot().slots, Some((SLOTS, SLOTS)));
    gated.1.send_replace(true);
    engine.done().await;
    all_slots_come_back(&api).await;
}

//! Steps under a limit on how many at once, by the whole engine: each has its place from before its call until that
//! has ended.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use honeyflow_engine::shell::limit::{Limited, Limits};
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

const PLACES: u64 = 2;

/// Items that are worked on, now and at the most; whoever goes away, for whatever reason, is not counted any more.
#[derive(Default)]
struct Inside {
    now: AtomicU64,
    most: AtomicU64,
}

struct Counted(Arc<Inside>, u64);

impl Counted {
    fn enter(inside: &Arc<Inside>, items: usize) -> Counted {
        let now = inside.now.fetch_add(items as u64, Ordering::SeqCst) + items as u64;
        inside.most.fetch_max(now, Ordering::SeqCst);
        Counted(inside.clone(), items as u64)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.now.fetch_sub(self.1, Ordering::SeqCst);
    }
}

/// Ends badly at first, in the way its key says.
#[derive(Default)]
struct Moody {
    inside: Arc<Inside>,
    seen: Mutex<Vec<Key>>,
}

impl Step for Moody {
    fn execute(&self, batch: Batch) -> BoxFuture<'static, Vec<Outcome>> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let new: Vec<bool> = batch.items.iter().map(|item| !seen.contains(&item.key)).collect();
        seen.extend(batch.items.iter().map(|item| item.key.clone()));
        drop(seen);
        let inside = self.inside.clone();
        Box::pin(async move {
            let _counted = Counted::enter(&inside, batch.items.len());
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
    let options = Options::named("limits").limit(Definition::slots("api", PLACES));
    let hive = Hive::join(store, options).await.expect("a hive");
    let api = hive.limit("api").expect("a limit");
    (hive, api)
}

fn limits(limit: &Limit, shadow: bool) -> Limits {
    [("api".into(), Limited { limit: limit.clone(), shadow })].into_iter().collect()
}

fn limited(timeout: &str) -> Vec<Workflow> {
    let call = step("work").set("limit", "api").set("timeout", timeout);
    vec![Workflow::new("limited").on("shop", "book").set("exclusion", "workflow").step("do", call)]
}

async fn all_come_back(limit: &Limit) {
    assert!(limit.take(PLACES, DEADLINE).await.is_ok(), "{:?}", limit.snapshot());
}

/// HV-68, HV-74: never more at once than there are places, and every place comes back, however its step ends.
#[tokio::test]
async fn hv_68_as_many_steps_as_places_and_none_is_lost_to_failures() {
    let (_hive, api) = limit().await;
    let moody = Arc::new(Moody::default());
    let mut engine = Engine::with(&limited("200ms"), 0, 8, |_| moody.clone(), limits(&api, false));
    engine.rows(1..=20);
    let _running = engine.start();
    engine.done().await;
    let seen = moody.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!((1..=20).all(|id| seen.iter().any(|key| **key == *format!("k{id}"))), "{seen:?}");
    assert!(moody.inside.most.load(Ordering::SeqCst) <= PLACES);
    all_come_back(&api).await;
}

/// Waits until it may go, or for ever.
struct Patient(Arc<Inside>, watch::Sender<bool>);

impl Step for Patient {
    fn execute(&self, batch: Batch) -> BoxFuture<'static, Vec<Outcome>> {
        let (inside, mut may_go) = (self.0.clone(), self.1.subscribe());
        Box::pin(async move {
            let _counted = Counted::enter(&inside, batch.items.len());
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

/// HV-68, WF-72: who waits for a place holds no worker; a place that a cancelled run had is the next one's.
#[tokio::test]
async fn hv_68_a_cancelled_step_leaves_its_place_to_the_next() {
    let (_hive, api) = limit().await;
    let patient = Arc::new(Patient(Arc::default(), watch::Sender::new(false)));
    let mut engine = Engine::with(&limited("1h"), 0, 8, |_| patient.clone(), limits(&api, false));
    engine.rows(1..=1);
    let _running = engine.start();
    until("the first is worked on", || patient.0.now.load(Ordering::SeqCst) == 1).await;
    engine.rows(2..=3);
    until("the second has the other place", || patient.0.now.load(Ordering::SeqCst) == PLACES).await;
    assert_eq!(api.snapshot().slots, Some((PLACES, PLACES)));
    engine.handle.cancel("limited".into(), "book".into(), "k1".into()).await;
    until("the third has its place", || api.snapshot().admitted == 3).await;
    until("and is worked on", || patient.0.now.load(Ordering::SeqCst) == PLACES).await;
    patient.1.send_replace(true);
    engine.done().await;
    assert!(patient.0.most.load(Ordering::SeqCst) <= PLACES);
    all_come_back(&api).await;
}

/// HV-73: a shadow holds up nobody, and counts what it would have.
#[tokio::test]
async fn hv_73_a_shadow_counts_places_and_holds_up_nobody() {
    let (_hive, api) = limit().await;
    let patient = Arc::new(Patient(Arc::default(), watch::Sender::new(false)));
    let mut engine = Engine::with(&limited("1h"), 0, 8, |_| patient.clone(), limits(&api, true));
    engine.rows(1..=5);
    let _running = engine.start();
    until("all are worked on", || patient.0.now.load(Ordering::SeqCst) == 5).await;
    assert_eq!(api.snapshot().slots, Some((PLACES, PLACES)));
    patient.1.send_replace(true);
    engine.done().await;
    all_come_back(&api).await;
}

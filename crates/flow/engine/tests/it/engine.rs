//! The whole engine on a store in memory. Tests kill its tasks and check that all rows of the table are still done.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use honeyflow_engine::{
    core::plan::{Limits, Plan},
    shell::{Config, Handle, Service, SourcePort, TakeShards, limit::StepLimits},
};
use honeyflow_event::{Event, Key, Stamp};
use honeyflow_hive::{Hive, Options, Traffic};
use honeyflow_hive_memory::MemoryHive;
use honeyflow_runtime::{Clock, Failure, time::BootClock};
use honeyflow_source::{Intake, Source};
use honeyflow_step::{Batch, Outcome, Step};
use honeyflow_store::{Poll, Reply, Request, Store};
use honeyflow_store_memory::MemoryStore;
use honeyflow_workflow::Workflow;
use tokio::sync::watch;

use crate::table;

/// A bound against hanging tests; no test waits that long when it passes.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A store that publishes after every write how many rows it still has.
struct WatchedStore {
    memory: MemoryStore,
    left: watch::Sender<usize>,
    /// How often the engine has recovered a shard.
    recovered: watch::Sender<usize>,
}

impl Store for WatchedStore {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        if let Request::Recover { .. } = request {
            self.recovered.send_modify(|recovered| *recovered += 1);
        }
        let reply = self.memory.apply(request);
        self.left.send_replace(self.memory.waiting());
        Box::pin(std::future::ready(reply))
    }
}

/// A source that polls this store; its first `panics` polls panic.
struct Poller {
    store: Arc<WatchedStore>,
    panics: AtomicU64,
}

impl Source for Poller {
    fn poll(&self, request: Poll) -> BoxFuture<'static, Result<Intake, Failure>> {
        let dies = self.panics.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        let reply = self.store.memory.apply(Request::Poll(request));
        Box::pin(async move {
            assert!(!dies, "this poller dies");
            let Reply::Polled(polled) = reply? else { unreachable!("a poll was asked for") };
            let taken = polled.events.into_iter().map(Arc::new).map(|event| {
                let leads = table::leads_to(&event);
                table::taken(event, leads)
            });
            Ok(Intake {
                taken: taken.collect(),
                looked_to: polled.looked_to,
                store_ms: polled.store_ms,
                schema_version: polled.schema_version,
                ..Intake::default()
            })
        })
    }
}

/// The target of the test's steps: it counts batches, can block them, and refuses older stamps as a sink does.
#[derive(Default)]
pub struct Target {
    pub held: Mutex<BTreeMap<Key, Stamp>>,
    /// Steps wait while this is true.
    pub closed: watch::Sender<bool>,
    /// The number of batches that have begun.
    pub begun: watch::Sender<usize>,
    at_once: AtomicUsize,
    pub most_at_once: AtomicUsize,
}

struct TargetStep(Arc<Target>);

impl Step for TargetStep {
    fn execute(&self, batch: Batch) -> BoxFuture<'static, Vec<Outcome>> {
        let target = self.0.clone();
        Box::pin(async move {
            let at_once = target.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            target.most_at_once.fetch_max(at_once, Ordering::SeqCst);
            target.begun.send_modify(|begun| *begun += 1);
            let _ = target.closed.subscribe().wait_for(|closed| !closed).await;
            let mut held = target.held.lock().unwrap_or_else(PoisonError::into_inner);
            let outcomes = batch.items.iter().map(|item| match held.get(&item.key) {
                Some(stored) if *stored > item.stamp => Outcome::Stale { stored: *stored },
                _ => {
                    held.insert(item.key.clone(), item.stamp);
                    Outcome::Done(None)
                }
            });
            let outcomes = outcomes.collect();
            target.at_once.fetch_sub(1, Ordering::SeqCst);
            outcomes
        })
    }
}

pub struct Engine {
    service: Arc<Service>,
    store: Arc<WatchedStore>,
    pub handle: Handle,
    pub hive: Arc<MemoryHive>,
    pub target: Arc<Target>,
    pub pool: Arc<honeyflow_evaluate::Pool>,
    left: watch::Receiver<usize>,
}

impl Engine {
    pub fn new(workflows: &[Workflow], poller_dies: u64, batches_at_once: u32) -> Engine {
        let scripted = |target: &Arc<Target>| Arc::new(TargetStep(target.clone())) as Arc<dyn Step>;
        Engine::with(workflows, poller_dies, batches_at_once, scripted, StepLimits::default())
    }

    /// An engine in which every step is this one.
    pub fn with(
        workflows: &[Workflow],
        poller_dies: u64,
        batches_at_once: u32,
        step: impl FnOnce(&Arc<Target>) -> Arc<dyn Step>,
        limits: StepLimits,
    ) -> Engine {
        let plan: Arc<Plan> = Arc::new(table::plan(workflows, Limits::default()));
        let clock = BootClock;
        let hive = Arc::new(MemoryHive::new(move || clock.now().0 / 1000));
        let (changed, left) = watch::channel(0);
        let store = Arc::new(WatchedStore {
            memory: MemoryStore::new(hive.clone()),
            left: changed,
            recovered: watch::Sender::new(0),
        });
        let target = Arc::new(Target::default());
        let step = step(&target);
        let steps = plan.workflows.iter().map(|one| vec![step.clone(); one.graph.steps.len()]).collect();
        let poller = Poller { store: store.clone(), panics: AtomicU64::new(poller_dies) };
        let pool = Arc::new(honeyflow_evaluate::Pool::new(2));
        let member = Hive::start(hive.clone(), Options { stands: false, ..Options::named("node").source("shop") })
            .expect("sound options");
        let (service, handle) = Service::new(Config {
            concurrency: vec![batches_at_once; plan.kinds.len()],
            pool: pool.clone(),
            plan,
            sources: vec![SourcePort { source: Arc::new(poller), store: store.clone(), hive: member }],
            steps,
            shards: Some(TakeShards::default()),
            traffic: Traffic::default(),
            limits,
            clock: Arc::new(clock),
            seed: 7,
        });
        Engine { service: Arc::new(service), store, handle, hive, target, pool, left }
    }

    pub fn rows(&self, ids: std::ops::RangeInclusive<i64>) {
        let rows = ids.map(|id| Event::clone(&table::row(id, &format!("k{id}"), 4))).collect();
        self.store.memory.preload(rows);
        self.store.left.send_replace(self.store.memory.waiting());
    }

    pub fn start(&self) -> tokio::task::JoinHandle<Result<(), Failure>> {
        let service = self.service.clone();
        tokio::spawn(async move { service.run().await })
    }

    /// Waits until at least `count` batches have begun.
    pub async fn batches(&self, count: usize) {
        let mut begun = self.target.begun.subscribe();
        let seen = tokio::time::timeout(DEADLINE, begun.wait_for(|begun| *begun >= count)).await;
        assert!(seen.is_ok(), "only {} batches have begun", *self.target.begun.borrow());
    }

    /// Waits until its shard was recovered `times` times.
    pub async fn recovered(&self, times: usize) {
        let mut recovered = self.store.recovered.subscribe();
        let seen = tokio::time::timeout(DEADLINE, recovered.wait_for(|recovered| *recovered >= times)).await;
        assert!(seen.is_ok(), "begun {} times", *self.store.recovered.borrow());
    }

    /// Waits until the table is empty.
    pub async fn done(&mut self) {
        let done = tokio::time::timeout(DEADLINE, self.left.wait_for(|left| *left == 0)).await;
        assert!(done.is_ok(), "{} rows are left: {:#?}", self.store.memory.waiting(), self.handle.status());
    }

    pub fn keys_written(&self) -> usize {
        self.target.held.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

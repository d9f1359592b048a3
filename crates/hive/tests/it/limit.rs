//! Tests of limits over a store in memory that a test can make late, silent or broken.

mod drawing;
mod exact;
mod outage;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, pending, ready},
};
use honeyflow_hive::{
    Capabilities, HiveStore, NodeId, Reply, Request,
    contract::limit as ledger,
    limit::{Config, Definition, Limit, Limits, Service, service::change::is_declared_name},
};
use honeyflow_hive_memory::MemoryHive;
use honeyflow_runtime::Failure;
use tokio::sync::oneshot;
use uuid::Uuid;

/// 2026 in hive time.
const NOW_MS: u64 = 200_000_000_000;
/// A timeout against hanging tests; nothing is measured by it.
pub const SOON: Duration = Duration::from_secs(30);

pub const WELL: u8 = 0;
pub const SILENT: u8 = 1;
pub const BROKEN: u8 = 2;
/// A limit is stored, but the answer is lost; a declaration is not even stored.
pub const LOST_ANSWER: u8 = 3;
/// Decisions are made, but answered later than any caller waits.
pub const LATE: u8 = 4;

pub struct Store {
    memory: MemoryHive,
    state: AtomicU8,
    pub calls: AtomicU64,
    /// Milliseconds that are added to the real time.
    ahead_ms: Arc<AtomicU64>,
}

impl Store {
    pub fn new() -> Arc<Store> {
        let ahead_ms = Arc::new(AtomicU64::new(0));
        let (ahead, begun) = (ahead_ms.clone(), Instant::now());
        let now_ms = move || NOW_MS + begun.elapsed().as_millis() as u64 + ahead.load(Ordering::Relaxed);
        Arc::new(Store {
            memory: MemoryHive::new(now_ms),
            state: AtomicU8::new(WELL),
            calls: AtomicU64::new(0),
            ahead_ms,
        })
    }

    pub fn be(&self, state: u8) {
        self.state.store(state, Ordering::Relaxed);
    }

    pub fn pass(&self, time: Duration) {
        self.ahead_ms.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The permits of a limit that were issued and not given back.
    pub fn issued(&self, limit: &str) -> u64 {
        match self.ask(Request::Limit(ledger::Request::Ledger { limit: limit.into(), max: 100 })) {
            Reply::Limit(ledger::Reply::Ledger(rows)) => rows.iter().map(|row| row.issued_u / ledger::MICRO).sum(),
            other => panic!("{other:?}"),
        }
    }

    pub fn ask(&self, request: Request) -> Reply {
        self.memory.apply(request).expect("memory answers")
    }
}

impl HiveStore for Store {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let lost = Err(Failure::retry("store-down", "connection reset"));
        match (self.state.load(Ordering::Relaxed), &request) {
            (SILENT, _) => Box::pin(pending()),
            (BROKEN, _) => Box::pin(ready(Err(Failure::retry("store-down", "connection refused")))),
            (LOST_ANSWER, Request::Limit(ledger::Request::Set { limit, .. })) if is_declared_name(limit) => {
                Box::pin(ready(lost))
            }
            (LOST_ANSWER, Request::Limit(ledger::Request::Set { .. })) => {
                Box::pin(self.memory.call(request).map(|done| done.and(lost)))
            }
            (LATE, Request::Limit(ledger::Request::Exact { .. })) => {
                let done = self.memory.call(request);
                Box::pin(async move {
                    let done = done.await;
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    done
                })
            }
            _ => self.memory.call(request),
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }
}

/// The limits of one node; their drawing task stops when this is dropped.
pub struct Node {
    pub limits: Limits,
    pub id: NodeId,
    _stop: oneshot::Sender<()>,
}

pub fn node(store: &Arc<Store>) -> Node {
    let id = NodeId(Uuid::new_v4());
    let (service, limits) = Service::new(Config::new(store.clone(), id));
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(service.run(async move {
        let _ = stopped.await;
    }));
    limits.set_node_counts(2, 2);
    Node { limits, id, _stop: stop }
}

impl Node {
    pub fn limit(&self, name: &str, quota: &str) -> Limit {
        self.limits.define(&Definition::parse(name, quota).expect("a quota")).expect("a limit")
    }
}

/// Waits until the condition is true; the tests say what must become true, not when.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < SOON, "it never happened: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until the store knows the limit and answers for it.
pub async fn ready_limit(limit: &Limit) {
    until("a version from the store", || limit.snapshot().store_operations > 0 || limit.terms().version > 0).await;
    let begun = Instant::now();
    loop {
        match limit.key("warm-up").take(1, SOON).await {
            Ok(_) => return,
            Err(denied) => assert!(begun.elapsed() < SOON, "{denied}"),
        }
    }
}

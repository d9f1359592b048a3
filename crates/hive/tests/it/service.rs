//! Tests of the hive service on the memory backend and the machine's clock.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::{BoxFuture, FutureExt};
use honeyflow_event::Epoch;
use honeyflow_hive::{
    Capabilities, Hive, HiveStore, Options, Reply, Request,
    contract::{EventKind, HIVE_TIME_START_MS, limit as ledger},
    limit::{Definition, Reason},
    service::{Change, OnUnstopped, Role},
};
use honeyflow_hive_memory::MemoryHive;
use honeyflow_runtime::{Clock, Failure, Moment, time::BootClock};

fn memory() -> Arc<MemoryHive> {
    Arc::new(MemoryHive::new(|| {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(0) - HIVE_TIME_START_MS.cast_unsigned()
    }))
}

fn options(name: &str) -> Options {
    Options::named(name).fast().source("shop")
}

/// Options with longer times, for tests in which a node must keep its terms even if the machine stops for a second.
fn calm(name: &str) -> Options {
    let times = Options::named(name).source("shop");
    Options { heartbeat: Duration::from_secs(1), time_to_live: Duration::from_secs(4), ..times }
}

/// A timeout that is long enough on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it takes too long")
}

async fn until(is: impl Fn() -> bool) {
    soon(async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn hv_75_a_node_joins_and_leads() {
    let hive = Hive::join(memory(), options("a")).await.unwrap();
    assert!(hive.node().is_some());
    let epoch = soon(hive.lead("duty/report", async |term| {
        assert!(term.check());
        Ok(term.epoch())
    }));
    assert!(epoch.await.unwrap().0 > 0);
    until(|| matches!(hive.role(), Role::Queen(_))).await;
    soon(hive.leave()).await;
    assert_eq!(hive.role(), Role::Out);
    assert!(hive.lead("duty/report", async |_| Ok(())).await.is_err(), "it has left");
}

#[tokio::test]
async fn hv_7_contradictory_options_are_refused() {
    let options = Options { time_to_live: Duration::from_secs(3), ..Options::default() };
    let failure = Hive::join(memory(), options).await.err().unwrap();
    assert_eq!(failure.code, "hive-options");
}

#[tokio::test]
async fn hv_48_one_of_two_leads_and_the_other_follows() {
    let store = memory();
    let (a, b) = (Hive::join(store.clone(), calm("a")).await.unwrap(), Hive::join(store, calm("b")).await.unwrap());
    let leads = Arc::new(Mutex::new(Vec::new()));
    let lead = |hive: Hive, name: &'static str| {
        let leads = leads.clone();
        tokio::spawn(async move {
            hive.lead("duty/report", |term| {
                leads.lock().unwrap().push((name, term.epoch()));
                std::future::pending::<Result<(), Failure>>()
            })
            .await
        })
    };
    let first = lead(a.clone(), "a");
    until(|| leads.lock().unwrap().len() == 1).await;
    let _second = lead(b.clone(), "b");
    a.drain().await;
    until(|| leads.lock().unwrap().len() == 2).await;
    let seen = leads.lock().unwrap().clone();
    assert!(seen[0].0 == "a" && seen[1].0 == "b" && seen[1].1 > seen[0].1, "{seen:?}");
    soon(a.leave()).await;
    assert!(soon(first).await.unwrap().is_err());
}

/// Work that fails to start is retried, and a fatal failure is returned: there is no half-started leader.
#[tokio::test]
async fn half_started_leader() {
    let hive = Hive::join(memory(), options("a")).await.unwrap();
    let tries = Mutex::new(0);
    let led = hive.lead("duty/report", async |_| -> Result<(), Failure> {
        *tries.lock().unwrap() += 1;
        match *tries.lock().unwrap() {
            1 | 2 => Err(Failure::retry("not-yet", "the sink is not there")),
            _ => Err(Failure::fatal("never", "the table is gone")),
        }
    });
    assert_eq!(soon(led).await.unwrap_err().code, "never");
    assert_eq!(*tries.lock().unwrap(), 3);
    assert!(
        soon(hive.lead("duty/report", async |_| Ok(7))).await.is_ok(),
        "the lease was released, and is taken again"
    );
}

#[tokio::test]
async fn hv_58_shards_are_gained_left_and_gained_elsewhere() {
    let store = memory();
    let a = Hive::join(store.clone(), calm("a")).await.unwrap();
    let mut shards = a.shards("shop", 4, false).await.unwrap();
    let mut terms = Vec::new();
    while terms.len() < 4 {
        match soon(shards.next()).await {
            Some(Change::Gained(term)) => terms.push(term),
            other => panic!("{other:?}"),
        }
    }
    assert!(terms.iter().all(honeyflow_hive::Term::check));
    let b = Hive::join(store, calm("b")).await.unwrap();
    let mut others = b.shards("shop", 4, false).await.unwrap();
    let mut gained = 0;
    while gained < 2 {
        tokio::select! {
            change = shards.next() => match change {
                Some(Change::Leave { held, .. }) => a.left(held).await,
                other => panic!("{other:?}"),
            },
            change = others.next() => match change {
                Some(Change::Gained(_)) => gained += 1,
                other => panic!("{other:?}"),
            },
            () = tokio::time::sleep(PATIENCE) => panic!("it takes too long"),
        }
    }
    assert_eq!(terms.iter().filter(|term| term.check()).count(), 2, "the other two terms go on");
    assert!(a.shards("shop", 4, false).await.is_err(), "the source is taken on this node already");
}

/// HV-21: a shard that its worker left before it was dropped is handed over to the successor, not released.
#[tokio::test]
async fn hv_21_a_shard_left_before_its_worker_was_dropped_is_handed_over() {
    let store = memory();
    let a = Hive::join(store.clone(), calm("a")).await.unwrap();
    let mut shards = a.shards("shop", 1, false).await.unwrap();
    assert!(matches!(soon(shards.next()).await, Some(Change::Gained(_))));
    let b = Hive::join(store.clone(), calm("b")).await.unwrap();
    let mut others = b.shards("shop", 1, false).await.unwrap();
    a.drain().await;
    let held = match soon(shards.next()).await {
        Some(Change::Leave { held, .. }) => held,
        other => panic!("{other:?}"),
    };
    // Both messages are sent without a pause, so that the heartbeat reads them together.
    assert!(a.left(held.clone()).now_or_never().is_some());
    drop(shards);
    assert!(matches!(soon(others.next()).await, Some(Change::Gained(_))));
    let history = Request::History { lease: Some(held.lease), until_ms: None, max: 10 };
    let Ok(Reply::History(events)) = store.call(history).await else { panic!("no history") };
    let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&EventKind::HandedOver) && !kinds.contains(&EventKind::Released), "{kinds:?}");
}

/// HV-53: a node that leads something else in the same hive gets no shards, and no shard waits for it.
#[tokio::test]
async fn hv_53_a_node_that_takes_no_shards_gets_none() {
    let store = memory();
    let idle = Hive::join(store.clone(), Options::named("idle").fast()).await.unwrap();
    until(|| idle.view().view.is_some_and(|view| view.nodes.iter().any(|node| node.eligible))).await;
    assert!(idle.shards("shop", 4, false).await.err().is_some_and(|failure| failure.code == "source-not-said"));
    let a = Hive::join(store, calm("a")).await.unwrap();
    let mut shards = a.shards("shop", 4, false).await.unwrap();
    let mut epochs = Vec::new();
    while epochs.len() < 4 {
        match soon(shards.next()).await {
            Some(Change::Gained(term)) => epochs.push(term.epoch()),
            other => panic!("{other:?}"),
        }
    }
    // In memory an epoch is the time at which it was minted.
    assert!(epochs.iter().all(|epoch| *epoch == epochs[0]), "all shards at the same time: {epochs:?}");
}

/// A worker fails and starts again: never under a term with which the first one could still write.
#[tokio::test]
async fn hv_58_shards_of_a_dropped_worker_are_released_and_taken_again_under_higher_epochs() {
    let hive = Hive::join(memory(), calm("a")).await.unwrap();
    let mut shards = hive.shards("shop", 4, false).await.unwrap();
    let mut first = Vec::new();
    while first.len() < 4 {
        if let Some(Change::Gained(term)) = soon(shards.next()).await {
            first.push(term);
        }
    }
    drop(shards);
    let mut shards = hive.shards("shop", 4, false).await.unwrap();
    let mut second = Vec::new();
    while second.len() < 4 {
        if let Some(Change::Gained(term)) = soon(shards.next()).await {
            second.push(term);
        }
    }
    assert!(first.iter().all(|term| !term.check()) && second.iter().all(honeyflow_hive::Term::check));
    for term in &second {
        let before = first.iter().find(|before| before.lease() == term.lease()).unwrap();
        assert!(term.epoch() > before.epoch());
    }
}

#[tokio::test]
async fn hv_20_watchers_see_rising_versions() {
    let store = memory();
    let a = Hive::join(store.clone(), calm("a")).await.unwrap();
    let mut watch = a.watch();
    let first = soon(watch.next()).await.unwrap();
    assert_eq!(first.events, None, "a snapshot first");
    let _b = Hive::join(store, calm("b")).await.unwrap();
    let mut version = first.view.head.version;
    loop {
        let update = soon(watch.next()).await.unwrap();
        assert!(update.view.head.version > version);
        if let Some(events) = &update.events {
            assert_eq!(events[0].version, version + 1);
        }
        version = update.view.head.version;
        if update.view.nodes.len() == 2 {
            break;
        }
    }
    let snapshot = a.view();
    assert!(!snapshot.stale && snapshot.view.unwrap().nodes.len() == 2);
    soon(a.leave()).await;
    while soon(watch.next()).await.is_some() {}
}

/// A store that a test can make silent.
struct SwitchedStore {
    store: Arc<MemoryHive>,
    off: AtomicBool,
}

impl HiveStore for SwitchedStore {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        if self.off.load(Ordering::Relaxed) {
            return std::future::pending().boxed();
        }
        self.store.call(request)
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}

/// A store that refuses all requests while a failure is set.
struct RefusingStore {
    store: Arc<MemoryHive>,
    with: Mutex<Option<Failure>>,
}

impl HiveStore for RefusingStore {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        match self.with.lock().unwrap().clone() {
            Some(failure) => std::future::ready(Err(failure)).boxed(),
            None => self.store.call(request),
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}

/// HV-22: the reason why the store cannot be used is shown as long as it lasts. A member survives a changed password; a
/// node that joins with a wrong one gets the failure at once.
#[tokio::test]
async fn hv_22_a_member_shows_why_the_store_refuses_and_survives_it() {
    let denied = Failure::fatal("access-denied", "beat: who are you?");
    let store = Arc::new(RefusingStore { store: memory(), with: Mutex::new(Some(denied.clone())) });
    let refused = soon(Hive::join(store.clone(), options("a"))).await.err().expect("the join fails");
    assert_eq!(refused.code, "access-denied");

    *store.with.lock().unwrap() = None;
    let hive = soon(Hive::join(store.clone(), options("a"))).await.unwrap();
    let trouble = || hive.view().store_failure.map(|failure| failure.code.clone());
    assert_eq!(trouble(), None);
    *store.with.lock().unwrap() = Some(denied);
    until(|| trouble().as_deref() == Some("access-denied")).await;
    // Other nodes have removed it meanwhile: it still comes back.
    let id = hive.node().expect("a member");
    soon(store.store.call(Request::Leave { node: id })).await.unwrap();
    until(|| hive.view().stale).await;
    *store.with.lock().unwrap() = None;
    until(|| trouble().is_none() && hive.node().is_some_and(|node| node != id) && !hive.view().stale).await;
    soon(hive.leave()).await;
}

/// A store that blocks the calling thread, which is the heartbeat's own thread.
struct BlockingStore {
    store: Arc<MemoryHive>,
    shut: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicBool,
}

impl BlockingStore {
    fn set(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.opened.notify_all();
    }
}

impl HiveStore for BlockingStore {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        let shut = self.shut.lock().unwrap();
        self.waiting.store(*shut, Ordering::Relaxed);
        drop(self.opened.wait_while(shut, |shut| *shut).unwrap());
        self.store.call(request)
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}

/// HV-48: even if the heartbeat's input queue is full, it learns that the work under a lease has ended.
#[tokio::test]
async fn hv_48_a_duty_dropped_while_the_heartbeat_is_busy_is_released() {
    let gate = BlockingStore {
        store: memory(),
        shut: Mutex::new(false),
        opened: Condvar::new(),
        waiting: AtomicBool::new(false),
    };
    let gate = Arc::new(gate);
    let hive = Hive::join(gate.clone(), Options { watch_runtime: false, ..options("a") }).await.unwrap();
    let led = Arc::new(AtomicBool::new(false));
    let (leads, leader) = (led.clone(), hive.clone());
    let leading = tokio::spawn(async move {
        leader
            .lead("duty/report", |_| {
                leads.store(true, Ordering::Relaxed);
                std::future::pending::<Result<(), Failure>>()
            })
            .await
    });
    until(|| led.load(Ordering::Relaxed)).await;
    gate.set(true);
    until(|| gate.waiting.load(Ordering::Relaxed)).await;
    while hive.stale("duty/other".into(), Epoch(1)).now_or_never().is_some() {}
    leading.abort();
    assert!(soon(leading).await.is_err());
    hive.ready(false);
    gate.set(false);
    let view = async || match gate.store.call(Request::View).await {
        Ok(Reply::View(view)) => view,
        other => panic!("{other:?}"),
    };
    soon(async {
        loop {
            let view = view().await;
            let duty = view.leases.iter().find(|lease| &*lease.name == "duty/report").unwrap();
            if duty.free && view.nodes.iter().all(|node| !node.ready) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(soon(hive.lead("duty/report", async |_| Ok(()))).await.is_ok(), "the duty is led again");
}

/// HV-22, HV-30: a store that does not answer is no error: the node starts without knowledge and leases, and ends in
/// time.
#[tokio::test]
async fn hv_22_a_node_starts_and_leaves_without_the_store() {
    let store = Arc::new(SwitchedStore { store: memory(), off: AtomicBool::new(true) });
    let hive = soon(Hive::join(store.clone(), options("a"))).await.unwrap();
    assert_eq!((hive.engaged().count, hive.engaged().divisor), (None, 16));
    assert!(hive.view().stale && hive.role() == Role::Out);
    store.off.store(false, Ordering::Relaxed);
    let mut shards = hive.shards("shop", 1, false).await.unwrap();
    let Some(Change::Gained(term)) = soon(shards.next()).await else { panic!("no term") };
    store.off.store(true, Ordering::Relaxed);
    let Some(Change::Lost { .. }) = soon(shards.next()).await else { panic!("not lost") };
    assert!(!term.check());
    until(|| hive.view().stale).await;
    store.off.store(false, Ordering::Relaxed);
    let Some(Change::Gained(next)) = soon(shards.next()).await else { panic!("no term") };
    assert!(next.epoch() > term.epoch() && !term.check() && next.holder() == term.holder(), "the same node goes on");
    store.off.store(true, Ordering::Relaxed);
    soon(hive.leave()).await;
}

/// HV-10: the heartbeat goes on even if the program blocks its own runtime.
#[test]
fn slow_batch_starves_heartbeat() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = memory();
    let hive = runtime.block_on(async {
        let hive = Hive::join(store.clone(), Options { watch_runtime: false, ..calm("a") }).await.unwrap();
        let mut shards = hive.shards("shop", 1, false).await.unwrap();
        let Some(Change::Gained(term)) = soon(shards.next()).await else { panic!("no term") };
        let began_at = std::time::Instant::now();
        // The only thread of the program's runtime is busy for longer than trust lasts.
        while began_at.elapsed() < Duration::from_secs(5) {
            std::hint::black_box(began_at.elapsed());
        }
        assert!(term.check(), "renewed meanwhile");
        hive
    });
    drop(hive);
}

/// HV-16: a node whose runtime is blocked gives up its leases.
#[test]
fn hv_16_a_stuck_runtime_loses_its_terms() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let hive = Hive::join(memory(), options("a")).await.unwrap();
        let mut shards = hive.shards("shop", 1, false).await.unwrap();
        let Some(Change::Gained(term)) = soon(shards.next()).await else { panic!("no term") };
        let began_at = std::time::Instant::now();
        while term.check() {
            assert!(began_at.elapsed() < PATIENCE, "it still holds the lease");
        }
        let Some(Change::Lost { .. }) = soon(shards.next()).await else { panic!("not lost") };
        let Some(Change::Gained(_)) = soon(shards.next()).await else { panic!("it does not take the lease again") };
    });
}

/// Work that blocks its thread until this is dropped, also if the test fails.
struct BlockingWork(Arc<AtomicBool>);

impl BlockingWork {
    fn new() -> BlockingWork {
        BlockingWork(Arc::new(AtomicBool::new(true)))
    }

    fn handle(&self) -> impl Fn() + use<> {
        let blocks = self.0.clone();
        move || {
            while blocks.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Drop for BlockingWork {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// HV-46: work that awaits something stops when its lease is lost; work that never does is reported to the program.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn hv_46_work_that_does_not_stop_after_its_loss_is_reported() {
    let store = Arc::new(SwitchedStore { store: memory(), off: AtomicBool::new(false) });
    let reported = Arc::new(Mutex::new(Vec::new()));
    let report = reported.clone();
    let on_unstopped: OnUnstopped = Arc::new(move |lease: &str| report.lock().unwrap().push(lease.to_owned()));
    let hive = Hive::join(store.clone(), Options { on_unstopped: Some(on_unstopped), ..calm("a") }).await.unwrap();
    let led: Arc<[AtomicBool; 2]> = Arc::default();
    let blocking = BlockingWork::new();
    let (leads, leader) = (led.clone(), hive.clone());
    let waits = tokio::spawn(async move {
        leader
            .lead("duty/waits", |_| {
                leads[0].store(true, Ordering::Relaxed);
                std::future::pending::<Result<(), Failure>>()
            })
            .await
    });
    let (leads, leader, block) = (led.clone(), hive.clone(), blocking.handle());
    let blocks = tokio::spawn(async move {
        leader
            .lead("duty/blocks", |_| {
                leads[1].store(true, Ordering::Relaxed);
                block();
                std::future::pending::<Result<(), Failure>>()
            })
            .await
    });
    // The messages about shards do not say whether their worker has stopped, so shards are never reported.
    let mut shards = hive.shards("shop", 1, false).await.unwrap();
    let Some(Change::Gained(_)) = soon(shards.next()).await else { panic!("no term") };
    until(|| led.iter().all(|led| led.load(Ordering::Relaxed))).await;
    store.off.store(true, Ordering::Relaxed);
    until(|| !reported.lock().unwrap().is_empty()).await;
    assert_eq!(*reported.lock().unwrap(), ["duty/blocks"], "the other duty has stopped");
    assert_eq!(hive.counters().unstopped, 1);
    drop(blocking);
    waits.abort();
    blocks.abort();
    soon(hive.leave()).await;
}

/// HV-46, HV-47: a node whose work does not stop leaves the duty to other nodes, although the store would give it the
/// lease again. Once the work has stopped, the node is a candidate again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_46_a_duty_whose_work_does_not_stop_is_left_to_other_nodes() {
    let store = memory();
    let hive = Hive::join(store.clone(), calm("a")).await.unwrap();
    let (blocking, begun) = (BlockingWork::new(), Arc::new(Mutex::new(Vec::new())));
    let (leader, block, begins) = (hive.clone(), blocking.handle(), begun.clone());
    let leads = tokio::spawn(async move {
        leader
            .lead("duty/report", |term| {
                begins.lock().unwrap().push(term.epoch());
                block();
                std::future::pending::<Result<(), Failure>>()
            })
            .await
    });
    let epochs = || begun.lock().unwrap().clone();
    until(|| !epochs().is_empty()).await;
    hive.stale("duty/report".into(), epochs()[0]).await;
    let duty = async || match store.call(Request::View).await {
        Ok(Reply::View(view)) => view.leases.into_iter().find(|lease| &*lease.name == "duty/report").unwrap(),
        other => panic!("{other:?}"),
    };
    soon(async {
        while hive.counters().unstopped == 0 || !duty().await.free {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(duty().await.epoch > epochs()[0], "the node had the lease again meanwhile");
    assert_eq!(epochs().len(), 1, "and no work was started under it");
    drop(blocking);
    until(|| epochs().len() > 1).await;
    assert_eq!(epochs()[1], duty().await.epoch, "under a new term");
    leads.abort();
    soon(hive.leave()).await;
}

/// The machine's clock, plus the seconds that the machine slept.
struct SleptClock(AtomicU64);

impl Clock for SleptClock {
    fn now(&self) -> Moment {
        BootClock.now().after(Duration::from_secs(self.0.load(Ordering::Relaxed)))
    }
}

/// HV-46: a process that slept longer than its trust finds everything overdue when it wakes. Work that then stops
/// within its time is not reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_46_after_a_sleep_work_still_gets_its_time_to_stop() {
    let clock = Arc::new(SleptClock(AtomicU64::new(0)));
    let reported = Arc::new(AtomicBool::new(false));
    let report = reported.clone();
    let on_unstopped: OnUnstopped = Arc::new(move |_| report.store(true, Ordering::Relaxed));
    let options = Options { clock: clock.clone(), on_unstopped: Some(on_unstopped), ..calm("a") };
    let hive = Hive::join(memory(), options).await.unwrap();
    let (blocking, begun) = (BlockingWork::new(), Arc::new(AtomicU64::new(0)));
    let (leader, block, begins) = (hive.clone(), blocking.handle(), begun.clone());
    let leads = tokio::spawn(async move {
        leader
            .lead("duty/report", |_| {
                begins.fetch_add(1, Ordering::Relaxed);
                block();
                std::future::pending::<Result<(), Failure>>()
            })
            .await
    });
    until(|| begun.load(Ordering::Relaxed) == 1).await;
    let before = hive.counters().beats;
    clock.0.store(60, Ordering::Relaxed);
    // Two heartbeats at once, to ask and to renew; then two seconds in which every pulse arrives.
    until(|| hive.counters().beats >= before + 4).await;
    drop(blocking);
    until(|| begun.load(Ordering::Relaxed) == 2).await;
    assert!(!reported.load(Ordering::Relaxed) && hive.counters().unstopped == 0);
    leads.abort();
    soon(hive.leave()).await;
}

/// HV-26: the first request after a pause is published at once.
#[tokio::test]
async fn hv_26_the_first_request_makes_a_node_engaged() {
    let hive = Hive::join(memory(), options("a")).await.unwrap();
    until(|| hive.engaged().count == Some(0)).await;
    for _ in 0..1_000 {
        hive.engage();
    }
    until(|| hive.engaged().count == Some(1)).await;
}

/// HV-60, HV-64: nodes without their sources still get requests, and then the hive's store stops to answer, too.
#[tokio::test]
async fn hv_64_nodes_that_are_not_ready_take_no_more_than_their_share() {
    let store = Arc::new(SwitchedStore { store: memory(), off: AtomicBool::new(false) });
    let unready = |name: &str| Options { ready: false, ..options(name) };
    let one = Hive::join(store.clone(), unready("a")).await.unwrap();
    let _other = Hive::join(store.clone(), unready("b")).await.unwrap();
    let api = one.declare(&Definition::parse("api", "1000/s").unwrap()).unwrap();
    soon(api.take(1, Duration::from_secs(5))).await.expect("the store answers");
    one.engage();
    until(|| one.engaged().divisor == 2).await;
    assert_eq!(one.engaged().count, Some(0));
    store.off.store(true, Ordering::Relaxed);
    until(|| api.snapshot().mode == "safe").await;
    let half = api.take(50, Duration::from_secs(30)).await.map(|permit| permit.cost());
    assert_eq!(half.expect("the share fills"), 50);
    let denied =
        api.take(51, Duration::from_secs(30)).await.map(|permit| permit.cost()).expect_err("more than its share");
    assert_eq!(denied.reason, Reason::Outage);
}

/// A node leaves when its last handle is dropped.
#[tokio::test]
async fn hv_21_a_node_without_handles_leaves() {
    let store = memory();
    let hive = Hive::join(store.clone(), options("a")).await.unwrap();
    drop(hive);
    let nodes = async || match store.call(Request::View).await {
        Ok(Reply::View(view)) => view.nodes.len(),
        other => panic!("{other:?}"),
    };
    soon(async {
        while nodes().await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A store that records the weights of the reservation requests.
struct RecordingStore {
    store: Arc<MemoryHive>,
    weights: Mutex<Vec<u64>>,
}

impl HiveStore for RecordingStore {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        if let Request::Limit(ledger::Request::Draw(draws)) = &request {
            let weights = draws.iter().filter_map(|draw| draw.reserve).map(|request| request.weight);
            self.weights.lock().unwrap().extend(weights);
        }
        self.store.call(request)
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}

/// HV-63: a node reserves with the weight of its options, and with the default weight if they have none.
#[tokio::test]
async fn hv_63_a_node_reserves_with_its_weight() {
    for (weight, says) in [(Some(7), 7), (Some(0), 1), (None, 100)] {
        let listening = Arc::new(RecordingStore { store: memory(), weights: Mutex::default() });
        let api = Definition::parse("api", "1000/s").unwrap();
        let hive = Hive::join(listening.clone(), Options { weight, ..options("a") }.limit(api)).await.unwrap();
        let api = hive.limit("api").unwrap();
        // More requests than the limit: the node reserves the next second once the pool is short.
        soon(async {
            while listening.weights.lock().unwrap().is_empty() {
                let _ = api.try_take(1).await;
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(listening.weights.lock().unwrap().iter().all(|weight| *weight == says), "{weight:?}");
        soon(hive.leave()).await;
    }
}

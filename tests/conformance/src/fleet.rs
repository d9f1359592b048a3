//! What several members of one hive promise about its limits and its queen, on any store. The tests run several
//! [`Hive`]s in one process and in real time, each with its own connection. They assert counts, such as the bound of a
//! limit, which hold however busy the machine is.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{FutureExt, future::BoxFuture};
use honeyflow_event::Name;
use honeyflow_hive::{
    Capabilities, Hive, HiveStore, Options, Reply, Request,
    contract::{self, EventKind, QUEEN, View},
    limit::{Definition, Limit, Terms, service::change::declared_name},
    service::Role,
};
use honeyflow_invariant::rate::{GrantedPermits, rate_holds};
use honeyflow_runtime::Failure;

/// Prevents a test that hangs; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the members are under load.
const LOAD: Duration = Duration::from_millis(1_500);

/// Opens a connection to the store of the test.
pub trait OpenStore: Fn() -> BoxFuture<'static, Arc<dyn HiveStore>> {}
impl<F: Fn() -> BoxFuture<'static, Arc<dyn HiveStore>>> OpenStore for F {}

/// A connection that can be cut: then requests get no answer, and no error.
struct CuttableStore {
    store: Arc<dyn HiveStore>,
    cut: AtomicBool,
}

impl HiveStore for CuttableStore {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        if self.cut.load(Ordering::Relaxed) {
            return std::future::pending().boxed();
        }
        self.store.call(request)
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}

struct Node {
    store: Arc<CuttableStore>,
    hive: Hive,
    api: Limit,
}

impl Node {
    fn cut(&self, cut: bool) {
        self.store.cut.store(cut, Ordering::Relaxed);
    }

    fn mode(&self) -> &'static str {
        self.api.snapshot().mode
    }
}

async fn join(open: &impl OpenStore, name: &str, quota: &str) -> Node {
    let store = Arc::new(CuttableStore { store: open().await, cut: AtomicBool::new(false) });
    let definition = Definition::parse("api", quota).expect("a quota");
    let options = Options { watch_runtime: false, ..Options::named(name) }.fast().limit(definition);
    let hive = Hive::join(store.clone(), options).await.expect("a member");
    let api = hive.limit("api").expect("declared");
    hive.engage();
    until("the store knows the limit", || api.terms().version > 0).await;
    Node { store, hive, api }
}

async fn fleet(open: &impl OpenStore, quota: &str) -> Vec<Node> {
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        nodes.push(join(open, name, quota).await);
    }
    until("all members are counted", || nodes.iter().all(|node| node.hive.engaged().count == Some(3))).await;
    nodes
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "did not happen within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The admitted requests: when, and by which member.
#[derive(Default)]
struct AdmissionLog(Mutex<Vec<(u64, usize)>>);

impl AdmissionLog {
    fn write(&self, begun: Instant, who: usize) {
        let mut log = self.0.lock().expect("no thread panics while it holds the lock");
        log.push((begun.elapsed().as_micros() as u64, who));
    }

    /// Checks the limit over all windows. A taker may note a permit later than it took it, one per taker; and the
    /// store's clock counts whole milliseconds.
    fn assert_within(&self, terms: &Terms, takers: u64) {
        let mut log = self.0.lock().expect("no thread panics while it holds the lock").clone();
        log.sort_unstable();
        let given: Vec<GrantedPermits> =
            log.iter().map(|(at_us, _)| GrantedPermits { at_us: *at_us, permits: 1 }).collect();
        let per_second = terms.rate.as_per_second() as u64;
        let breaches = rate_holds("api", per_second, terms.burst + takers + per_second.div_ceil(1000), &given);
        assert!(breaches.is_empty(), "{} admitted, {:?}", given.len(), &breaches[..breaches.len().min(3)]);
    }

    fn by(&self, who: usize) -> usize {
        self.0.lock().expect("no thread panics while it holds the lock").iter().filter(|(_, by)| *by == who).count()
    }
}

/// Lets every member take permits for a while; `pauses` says how long each waits between two takes.
async fn load(nodes: &[Node], pauses: &[Duration]) -> AdmissionLog {
    let (log, begun) = (Arc::new(AdmissionLog::default()), Instant::now());
    let takers = nodes.iter().zip(pauses).enumerate().map(|(who, (node, pause))| {
        let (log, api, hive, pause) = (log.clone(), node.api.clone(), node.hive.clone(), *pause);
        tokio::spawn(async move {
            while begun.elapsed() < LOAD {
                hive.engage();
                match api.try_take(1).await {
                    Ok(_) => log.write(begun, who),
                    Err(_) => tokio::task::yield_now().await,
                }
                if pause > Duration::ZERO {
                    tokio::time::sleep(pause).await;
                }
            }
        })
    });
    for taker in takers.collect::<Vec<_>>() {
        taker.await.expect("a taker");
    }
    Arc::into_inner(log).expect("every taker has ended")
}

const SKEWED: [Duration; 3] = [Duration::ZERO, Duration::from_millis(10), Duration::from_millis(10)];

/// HV-60, HI-7: one node that has nearly all the traffic gets nearly all of the limit, and no window has more.
pub async fn hi_7_a_fleet_keeps_one_limit_under_skewed_load(open: impl OpenStore) {
    let nodes = fleet(&open, "2000/s").await;
    let begun = Instant::now();
    // The bound holds always. The shares are right once the machine lets the store answer within the life of a batch.
    loop {
        let log = load(&nodes, &SKEWED).await;
        log.assert_within(&nodes[0].api.terms(), 3);
        let [a, b, c] = [log.by(0), log.by(1), log.by(2)];
        if a > b + c && b > 0 && c > 0 {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{a}, {b}, {c}: shares follow demand, and every node gets some");
    }
}

/// HV-61: the limit's bucket needs no queen.
pub async fn hv_61_the_queen_dies_and_the_limit_stands(open: impl OpenStore) {
    let nodes = fleet(&open, "2000/s").await;
    let is_queen = |node: &Node| matches!(node.hive.role(), Role::Queen(_));
    until("a queen", || nodes.iter().any(is_queen)).await;
    let (dead, alive): (Vec<Node>, Vec<Node>) = nodes.into_iter().partition(is_queen);
    dead.iter().for_each(|node| node.cut(true));
    let begun = Instant::now();
    loop {
        let log = load(&alive, &SKEWED).await;
        log.assert_within(&alive[0].api.terms(), 2);
        if log.by(0) > log.by(1) && log.by(1) > 0 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{}, {}: every node gets some", log.by(0), log.by(1));
    }
    until("another queen", || alive.iter().any(is_queen)).await;
    let divisor = |node: &Node| node.hive.engaged().divisor;
    until("dead members are not counted", || {
        alive.iter().for_each(|node| node.hive.engage());
        alive.iter().all(|node| divisor(node) == 2)
    })
    .await;
}

/// HV-21, HV-45: the queen leaves once a successor is ready, and her lease is free at no time.
pub async fn hv_21_the_queen_transfers_her_lease_before_she_leaves(open: impl OpenStore) {
    let begun = Instant::now();
    let is_queen = |node: &Node| matches!(node.hive.role(), Role::Queen(_));
    let mut nodes = vec![join(&open, "a", "2000/s").await, join(&open, "b", "2000/s").await];
    loop {
        until("a queen", || nodes.iter().any(is_queen)).await;
        nodes.sort_by_key(is_queen);
        let queen = nodes.pop().expect("there are two");
        let sees_successor = |view: &View| view.nodes.iter().filter(|node| node.eligible).count() == 2;
        until("the queen knows an eligible successor", || {
            queen.hive.view().view.is_some_and(|view| sees_successor(&view))
        })
        .await;
        let version = read_view(&queen).await.head.version;
        queen.hive.leave().await;
        until("another member is queen", || is_queen(&nodes[0])).await;
        let kinds = queen_lease_events(&nodes[0], version).await;
        if !kinds.is_empty() && kinds.iter().all(|kind| *kind == EventKind::HandedOver) {
            return;
        }
        // A successor that the machine does not run is not waited for.
        assert!(begun.elapsed() < PATIENCE, "the queen left, and then: {kinds:?}");
        nodes.push(join(&open, "c", "2000/s").await);
    }
}

async fn read_view(node: &Node) -> View {
    match node.store.call(Request::View).await {
        Ok(Reply::View(view)) => *view,
        other => panic!("{other:?}"),
    }
}

async fn queen_lease_events(node: &Node, after: u64) -> Vec<EventKind> {
    match node.store.call(Request::Events { after, max: 500 }).await {
        Ok(Reply::Events(news)) => {
            news.events.iter().filter(|event| event.lease.as_deref() == Some(QUEEN)).map(|event| event.kind).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// HV-64: without the store, each node keeps to its share, and all of them together to the limit.
pub async fn hv_64_without_the_store_each_keeps_to_its_share(open: impl OpenStore) {
    let nodes = fleet(&open, "2000/s").await;
    nodes.iter().for_each(|node| node.cut(true));
    until("all nodes use their shares", || {
        nodes.iter().all(|node| {
            let _ = node.api.key("any").try_take(1).now_or_never();
            node.mode() == "safe"
        })
    })
    .await;
    let log = load(&nodes, &[Duration::ZERO; 3]).await;
    let terms = nodes[0].api.terms();
    log.assert_within(&terms, 3);
    for who in 0..3 {
        let share = terms.rate.permits as usize / 3 * 2 + terms.burst as usize / 6;
        assert!((1..=share).contains(&log.by(who)), "{} of {share}", log.by(who));
    }
    nodes.iter().for_each(|node| node.cut(false));
    until("the store decides again", || nodes.iter().all(|node| node.mode() == "pool")).await;
    load(&nodes, &SKEWED).await.assert_within(&nodes[0].api.terms(), 3);
}

/// HV-22, HV-64: a node without requests notices the outage by its heartbeat, and no caller has to wait for it.
pub async fn hv_64_an_idle_node_learns_of_an_outage_by_its_heartbeat(open: impl OpenStore) {
    let node = join(&open, "a", "2000/s").await;
    node.cut(true);
    until("the node uses its share", || node.mode() == "safe").await;
    assert!(node.api.key("a").try_take(1).now_or_never().is_some(), "decided at once");
    node.cut(false);
    until("the store decides again", || node.mode() == "pool").await;
}

async fn set_limit(node: &Node, quota: &str) -> contract::limit::Reply {
    let terms = Terms::from_definition(&Definition::parse("api", quota).expect("a quota")).expect("terms");
    let was = Some(node.api.terms().version);
    let request = contract::limit::Request::Set { limit: "api".into(), was, rule: terms.rule(), after_ms: 0 };
    match node.store.call(Request::Limit(request)).await {
        Ok(Reply::Limit(reply)) => reply,
        other => panic!("{other:?}"),
    }
}

async fn stored_limits(node: &Node) -> Vec<Name> {
    match node.store.call(Request::Limit(contract::limit::Request::Limits)).await {
        Ok(Reply::Limit(contract::limit::Reply::Limits { limits, .. })) => {
            limits.into_iter().map(|limit| limit.name).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// HV-71: a change reaches every node with its heartbeats, and holds from then on.
pub async fn hv_71_nodes_learn_a_change_by_heartbeats(open: impl OpenStore) {
    let nodes = fleet(&open, "2000/s").await;
    let set_limit = set_limit(&nodes[2], "400/s").await;
    assert!(matches!(set_limit, contract::limit::Reply::Set { .. }), "{set_limit:?}");
    until("all nodes know the change", || nodes.iter().all(|node| node.api.terms().rate.permits == 400)).await;
    load(&nodes, &SKEWED).await.assert_within(&nodes[0].api.terms(), 3);
}

/// HV-71: a limit that a person has set outlives the processes that declare another value; a changed declaration takes
/// effect at once.
pub async fn hv_71_a_set_limit_lasts_until_the_declared_one_changes(open: impl OpenStore) {
    let first = join(&open, "a", "2000/s").await;
    set_limit(&first, "400/s").await;
    until("it is set", || first.api.terms().rate.permits == 400).await;
    while !stored_limits(&first).await.iter().any(|name| **name == *declared_name("api")) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(first.api.terms().rate.permits, 400, "no node has set it again");
    first.hive.leave().await;
    let second = join(&open, "b", "2000/s").await;
    // If the node had set its declared value, the change would be in the store by now: a limit of another name is set
    // after it.
    second.hive.declare(&Definition::parse("later", "7/s").expect("a quota")).expect("declared");
    let later = second.hive.limit("later").expect("declared");
    until("the other limit is known", || later.terms().version > 0).await;
    assert_eq!(second.api.terms().rate.permits, 400, "its declaration has not changed");
    let third = join(&open, "c", "3000/s").await;
    until("the new declaration counts", || [&second, &third].iter().all(|node| node.api.terms().rate.permits == 3000))
        .await;
}

/// Makes a test of every case. `$open` is a function that returns a function which opens connections to one new store.
/// After `maybe`, it returns None where there is no server, and has printed why.
#[macro_export]
macro_rules! fleet_suite {
    (@tests $open:path; $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::fleet::$case($open().await).await;
            }
        )*
    };
    (@maybe $open:path; $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let Some(open) = $open().await else { return };
                $crate::fleet::$case(open).await;
            }
        )*
    };
    (@cases $mode:ident $open:path) => {
        $crate::fleet_suite! { @$mode $open;
            hi_7_a_fleet_keeps_one_limit_under_skewed_load
            hv_61_the_queen_dies_and_the_limit_stands
            hv_21_the_queen_transfers_her_lease_before_she_leaves
            hv_64_without_the_store_each_keeps_to_its_share
            hv_64_an_idle_node_learns_of_an_outage_by_its_heartbeat
            hv_71_nodes_learn_a_change_by_heartbeats
            hv_71_a_set_limit_lasts_until_the_declared_one_changes
        }
    };
    (maybe $open:path) => { $crate::fleet_suite!(@cases maybe $open); };
    ($open:path) => { $crate::fleet_suite!(@cases tests $open); };
}

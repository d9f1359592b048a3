//! What a fleet of members promises about its limits and its queen, on any store: several [`Hive`]s, each with a
//! connection of its own, in one process and in real time. What is asserted are counts: the bound of a limit, whatever the
//! machine is doing.

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
    contract::{EventKind, QUEEN, View, limit as ledger},
    limit::{Definition, Limit, Terms, service::change::told_name},
    service::Role,
};
use honeyflow_invariant::rate::{Given, rate_holds};
use honeyflow_runtime::Failure;

/// Against hanging; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a fleet is under load.
const LOAD: Duration = Duration::from_millis(1_500);

/// Opens a connection to the store of the test.
pub trait Open: Fn() -> BoxFuture<'static, Arc<dyn HiveStore>> {}
impl<F: Fn() -> BoxFuture<'static, Arc<dyn HiveStore>>> Open for F {}

/// A connection that can be cut: nothing goes through, and nobody says so.
struct Line {
    store: Arc<dyn HiveStore>,
    cut: AtomicBool,
}

impl HiveStore for Line {
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
    line: Arc<Line>,
    hive: Hive,
    api: Limit,
}

impl Node {
    fn cut(&self, cut: bool) {
        self.line.cut.store(cut, Ordering::Relaxed);
    }

    fn mode(&self) -> &'static str {
        self.api.snapshot().mode
    }
}

async fn join(open: &impl Open, name: &str, quota: &str) -> Node {
    let line = Arc::new(Line { store: open().await, cut: AtomicBool::new(false) });
    let definition = Definition::parse("api", quota).expect("a quota");
    let options = Options { watch_runtime: false, ..Options::named(name) }.fast().limit(definition);
    let hive = Hive::join(line.clone(), options).await.expect("a member");
    let api = hive.limit("api").expect("declared");
    hive.engage();
    until("the store knows the limit", || api.terms().version > 0).await;
    Node { line, hive, api }
}

async fn fleet(open: &impl Open, quota: &str) -> Vec<Node> {
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        nodes.push(join(open, name, quota).await);
    }
    until("everybody is counted", || nodes.iter().all(|node| node.hive.engaged().count == Some(3))).await;
    nodes
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What was admitted, by whom and when.
#[derive(Default)]
struct Log(Mutex<Vec<(u64, usize)>>);

impl Log {
    fn write(&self, begun: Instant, who: usize) {
        let mut log = self.0.lock().expect("nobody panics under it");
        log.push((begun.elapsed().as_micros() as u64, who));
    }

    /// Over all windows. A permit may be written down later than it was taken, one per taker; and the store's clock counts
    /// whole milliseconds.
    fn assert_within(&self, terms: &Terms, takers: u64) {
        let mut log = self.0.lock().expect("nobody panics under it").clone();
        log.sort_unstable();
        let given: Vec<Given> = log.iter().map(|(at_us, _)| Given { at_us: *at_us, permits: 1 }).collect();
        let per_second = terms.rate.as_per_second() as u64;
        let breaches = rate_holds("api", per_second, terms.burst + takers + per_second.div_ceil(1000), &given);
        assert!(breaches.is_empty(), "{} admitted, {:?}", given.len(), &breaches[..breaches.len().min(3)]);
    }

    fn by(&self, who: usize) -> usize {
        self.0.lock().expect("nobody panics under it").iter().filter(|(_, by)| *by == who).count()
    }
}

/// Everybody takes what it can for a while; the first one is asked far more than the others.
async fn load(nodes: &[Node], pauses: &[Duration]) -> Log {
    let (log, begun) = (Arc::new(Log::default()), Instant::now());
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
pub async fn hi_7_a_fleet_keeps_one_limit_under_skewed_load(open: impl Open) {
    let nodes = fleet(&open, "2000/s").await;
    let begun = Instant::now();
    // The bound always; how it is shared, once the machine lets the store answer within the life of a batch.
    loop {
        let log = load(&nodes, &SKEWED).await;
        log.assert_within(&nodes[0].api.terms(), 3);
        let [a, b, c] = [log.by(0), log.by(1), log.by(2)];
        if a > b + c && b > 0 && c > 0 {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{a}, {b}, {c}: demand decides, and nobody goes without");
    }
}

/// HV-61: a pool needs no queen.
pub async fn hv_61_the_queen_dies_and_the_limit_stands(open: impl Open) {
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
        assert!(begun.elapsed() < PATIENCE, "{}, {}: nobody goes without", log.by(0), log.by(1));
    }
    until("another queen", || alive.iter().any(is_queen)).await;
    let divisor = |node: &Node| node.hive.engaged().divisor;
    until("the dead are not counted", || {
        alive.iter().for_each(|node| node.hive.engage());
        alive.iter().all(|node| divisor(node) == 2)
    })
    .await;
}

/// HV-21, HV-45: she goes once another is ready to follow her, and her lease is free at no time.
pub async fn hv_21_the_queen_hands_over_before_she_leaves(open: impl Open) {
    let begun = Instant::now();
    let is_queen = |node: &Node| matches!(node.hive.role(), Role::Queen(_));
    let mut nodes = vec![join(&open, "a", "2000/s").await, join(&open, "b", "2000/s").await];
    loop {
        until("a queen", || nodes.iter().any(is_queen)).await;
        nodes.sort_by_key(is_queen);
        let queen = nodes.pop().expect("there are two");
        let sees_heir = |view: &View| view.nodes.iter().filter(|node| node.eligible).count() == 2;
        until("she knows who could follow her", || queen.hive.view().view.is_some_and(|view| sees_heir(&view))).await;
        let version = seen(&queen).await.head.version;
        queen.hive.leave().await;
        until("another is queen", || is_queen(&nodes[0])).await;
        let how = changes_of_queen(&nodes[0], version).await;
        if !how.is_empty() && how.iter().all(|kind| *kind == EventKind::HandedOver) {
            return;
        }
        // An heir on a machine that has no time for it is not waited for.
        assert!(begun.elapsed() < PATIENCE, "she left, and then: {how:?}");
        nodes.push(join(&open, "c", "2000/s").await);
    }
}

async fn seen(node: &Node) -> View {
    match node.line.call(Request::View).await {
        Ok(Reply::View(view)) => *view,
        other => panic!("{other:?}"),
    }
}

async fn changes_of_queen(node: &Node, after: u64) -> Vec<EventKind> {
    match node.line.call(Request::Events { after, max: 500 }).await {
        Ok(Reply::Events(news)) => {
            news.events.iter().filter(|event| event.lease.as_deref() == Some(QUEEN)).map(|event| event.kind).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// HV-64: without the store each keeps to its share, and all of them together to the limit.
pub async fn hv_64_without_the_store_each_keeps_to_its_share(open: impl Open) {
    let nodes = fleet(&open, "2000/s").await;
    nodes.iter().for_each(|node| node.cut(true));
    until("everybody is on its own", || {
        nodes.iter().all(|node| {
            let _ = node.api.key("anybody").try_take(1).now_or_never();
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

/// HV-22, HV-64: who is not asked for anything notices the outage by its heartbeat, and nobody has to wait for it.
pub async fn hv_64_an_idle_node_learns_of_an_outage_by_its_heartbeat(open: impl Open) {
    let node = join(&open, "a", "2000/s").await;
    node.cut(true);
    until("it is on its own", || node.mode() == "safe").await;
    assert!(node.api.key("a").try_take(1).now_or_never().is_some(), "decided at once");
    node.cut(false);
    until("the store decides again", || node.mode() == "pool").await;
}

async fn set(node: &Node, quota: &str) -> ledger::Reply {
    let terms = Terms::of(&Definition::parse("api", quota).expect("a quota")).expect("terms");
    let was = Some(node.api.terms().version);
    let request = ledger::Request::Set { limit: "api".into(), was, rule: terms.rule(), after_ms: 0 };
    match node.line.call(Request::Limit(request)).await {
        Ok(Reply::Limit(reply)) => reply,
        other => panic!("{other:?}"),
    }
}

async fn stored(node: &Node) -> Vec<Name> {
    match node.line.call(Request::Limit(ledger::Request::Limits)).await {
        Ok(Reply::Limit(ledger::Reply::Limits { limits, .. })) => limits.into_iter().map(|limit| limit.name).collect(),
        other => panic!("{other:?}"),
    }
}

/// HV-71: a change reaches every node with its heartbeats, and holds from then on.
pub async fn hv_71_a_change_is_learnt_by_heartbeats(open: impl Open) {
    let nodes = fleet(&open, "2000/s").await;
    let set = set(&nodes[2], "400/s").await;
    assert!(matches!(set, ledger::Reply::Set { .. }), "{set:?}");
    until("everybody knows", || nodes.iter().all(|node| node.api.terms().rate.permits == 400)).await;
    load(&nodes, &SKEWED).await.assert_within(&nodes[0].api.terms(), 3);
}

/// HV-71: what a person has set outlives the processes that were told otherwise; what they are told anew does not wait.
pub async fn hv_71_what_was_set_lasts_until_what_is_told_changes(open: impl Open) {
    let first = join(&open, "a", "2000/s").await;
    set(&first, "400/s").await;
    until("it is set", || first.api.terms().rate.permits == 400).await;
    while !stored(&first).await.iter().any(|name| **name == *told_name("api")) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(first.api.terms().rate.permits, 400, "nobody set it again");
    first.hive.leave().await;
    let second = join(&open, "b", "2000/s").await;
    // Had it been told, the change would be in the store by now: a limit of another name is set after it.
    second.hive.declare(&Definition::parse("later", "7/s").expect("a quota")).expect("declared");
    let later = second.hive.limit("later").expect("declared");
    until("the other is known", || later.terms().version > 0).await;
    assert_eq!(second.api.terms().rate.permits, 400, "it was told nothing new");
    let third = join(&open, "c", "3000/s").await;
    until("the new word counts", || [&second, &third].iter().all(|node| node.api.terms().rate.permits == 3000)).await;
}

/// Makes a test of every case. `$open` is a function that answers a function which opens connections to one fresh store;
/// after `maybe` one that answers none where there is no server, having said so.
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
            hv_21_the_queen_hands_over_before_she_leaves
            hv_64_without_the_store_each_keeps_to_its_share
            hv_64_an_idle_node_learns_of_an_outage_by_its_heartbeat
            hv_71_a_change_is_learnt_by_heartbeats
            hv_71_what_was_set_lasts_until_what_is_told_changes
        }
    };
    (maybe $open:path) => { $crate::fleet_suite!(@cases maybe $open); };
    ($open:path) => { $crate::fleet_suite!(@cases tests $open); };
}

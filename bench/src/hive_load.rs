//! The load of a hive on its store. `idle-ops` and `queen-ops`: operations per second of an idle node and of the queen,
//! through the shipped code; `engaged-ops`: what a thousand requests per second add to a node's operations.
//! `nodes-1000` and `nodes-1000-…`: a thousand simulated nodes; `nodes-1000-beat-…`: as many rows in a real store.
//!
//! All runs share one hive: half of its nodes are engaged, half are not, and all are counted at the same time.

mod real_store;
mod simulated;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use honeyflow_hive::{Capabilities, Hive, HiveStore, Reply, Request, contract::HIVE_TIME_START_MS, service::Role};
use honeyflow_hive_memory::MemoryHive;
use honeyflow_runtime::Failure;

use crate::{
    Result,
    figure::{Better, Measurement, Reporter},
};

#[derive(clap::Args)]
pub struct Options {
    /// Time for which the operations of real nodes are counted in each run, in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(4..3600))]
    seconds: u64,
    /// Number of nodes of the large simulated hive
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..5000))]
    nodes: u32,
}

const NODES: usize = 16;
/// The time until the hive is stable and the engaged nodes have reported so.
const SETTLE: Duration = Duration::from_secs(8);
const RUNS_MAX: u32 = 3;

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    let figures = ["idle-ops", "queen-ops", "engaged-ops"];
    if figures.iter().any(|figure| reporter.wants(figure)) {
        let (runs, watched) = (reporter.runs.min(RUNS_MAX), Duration::from_secs(options.seconds));
        let rates = crate::runtime()?.block_on(count(runs, watched))?;
        for (at, figure) in figures.into_iter().enumerate() {
            if reporter.wants(figure) {
                let ours = rates.iter().map(|of_run| of_run[at]).collect();
                reporter.report(&Measurement { figure, unit: "1/s", better: Better::Lower, ours, peer: None });
            }
        }
    }
    simulated::measure(options.nodes as usize, reporter)?;
    real_store::measure(options.nodes as usize, reporter)
}

/// Counts a node's requests to the store.
struct CountingStore {
    store: Arc<MemoryHive>,
    operations: AtomicU64,
    /// Operations other than a heartbeat that was due.
    beside: AtomicU64,
    last_beat_at: Mutex<Option<Instant>>,
    /// The shortest time between two regular heartbeats; a heartbeat that comes sooner was caused by something else.
    period_min: Duration,
}

impl CountingStore {
    fn is_due(&self, request: &Request) -> bool {
        if !matches!(request, Request::Beat { .. }) {
            return false;
        }
        let now = Instant::now();
        let before = self.last_beat_at.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
        before.is_none_or(|before| now - before >= self.period_min)
    }

    fn read(&self) -> [u64; 2] {
        [&self.operations, &self.beside].map(|counter| counter.load(Ordering::Relaxed))
    }
}

impl HiveStore for CountingStore {
    fn call(&self, request: Request) -> BoxFuture<'static, std::result::Result<Reply, Failure>> {
        self.operations.fetch_add(1, Ordering::Relaxed);
        self.beside.fetch_add(u64::from(!self.is_due(&request)), Ordering::Relaxed);
        self.store.call(request)
    }

    fn capabilities(&self) -> Capabilities {
        // Like a server that many machines use, so that no node looks for kernel locks.
        Capabilities { many_hosts: true, durable: true, doorbell: false }
    }
}

struct Node {
    hive: Hive,
    counting: Arc<CountingStore>,
    serves: bool,
}

/// Returns for each run the operations per second of an idle node and of the queen, and what traffic adds to a node's.
async fn count(runs: u32, watched: Duration) -> Result<Vec<[f64; 3]>> {
    let hive_ms = || {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(0).saturating_sub(HIVE_TIME_START_MS.cast_unsigned())
    };
    let store = Arc::new(MemoryHive::new(hive_ms));
    let mut nodes = Vec::new();
    for number in 0..NODES {
        let membership = honeyflow_hive::Options::named(format!("node-{number}"));
        let counting = Arc::new(CountingStore {
            store: store.clone(),
            operations: AtomicU64::new(0),
            beside: AtomicU64::new(0),
            last_beat_at: Mutex::default(),
            // A heartbeat is up to a tenth early by its jitter, and the clocks are read one after the other.
            period_min: membership.heartbeat * 85 / 100,
        });
        let hive = Hive::join(counting.clone(), membership).await?;
        nodes.push(Node { hive, counting, serves: number % 2 == 1 });
    }
    let serving: Vec<_> = nodes.iter().filter(|node| node.serves).map(|node| serve(node.hive.clone())).collect();
    let serving: Vec<_> = serving.into_iter().map(tokio::spawn).collect();
    let seconds = (SETTLE + watched * runs).as_secs();
    eprintln!("  idle-ops, queen-ops, engaged-ops: counting {NODES} nodes for {seconds} s");
    tokio::time::sleep(SETTLE).await;
    let queen = nodes.iter().position(|node| matches!(node.hive.role(), Role::Queen(_))).ok_or("no node is queen")?;
    let mut rates = Vec::new();
    for run in 1..=runs {
        let read = || nodes.iter().map(|node| node.counting.read()).collect::<Vec<_>>();
        let before = read();
        tokio::time::sleep(watched).await;
        let after = read();
        // `part` 0: all operations; 1: those beside the heartbeat.
        let rate = |part: usize, is_one: &dyn Fn(usize) -> bool| {
            let those: Vec<usize> = (0..NODES).filter(|node| is_one(*node)).collect();
            let all: u64 = those.iter().map(|node| after[*node][part] - before[*node][part]).sum();
            all as f64 / those.len() as f64 / watched.as_secs_f64()
        };
        let idle = |node: usize| node != queen && !nodes[node].serves;
        let serves = |node: usize| node != queen && nodes[node].serves;
        let adds = rate(1, &serves) - rate(1, &idle);
        let [of_idle, of_queen, of_serving] = [rate(0, &idle), rate(0, &|node| node == queen), rate(0, &serves)];
        eprintln!("  run {run} of {runs}: idle {of_idle:.3}, queen {of_queen:.3}, serving {of_serving:.3} 1/s");
        rates.push([of_idle, of_queen, adds]);
    }
    serving.iter().for_each(tokio::task::JoinHandle::abort);
    futures_util::future::join_all(nodes.iter().map(|node| node.hive.leave())).await;
    Ok(rates)
}

/// Serves a thousand requests per second.
async fn serve(hive: Hive) {
    let mut every = tokio::time::interval(Duration::from_millis(1));
    loop {
        every.tick().await;
        hive.engage();
    }
}

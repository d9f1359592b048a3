//! What a hive asks of its store. `idle-ops`, `queen-ops` and `engaged-ops`: operations per second of a node that does
//! nothing, of the queen, and of a node with traffic, through the shipped shell. `nodes-1000` and its kin: a thousand
//! simulated nodes.

mod thousand;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use honeyflow_hive::{
    Capabilities, Hive, HiveStore, Options as Membership, Reply, Request, contract::HIVE_TIME_START_MS, service::Role,
};
use honeyflow_hive_memory::MemoryHive;
use honeyflow_runtime::Failure;

use crate::{
    Result,
    figure::{Better, Measured, Reporter},
};

#[derive(clap::Args)]
pub struct Options {
    /// How long the operations of real nodes are counted in each run, in seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(4..3600))]
    seconds: u64,
    /// Nodes of the large simulated hive
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..5000))]
    nodes: u32,
}

const NODES: usize = 8;
/// The hive has come to rest.
const SETTLE: Duration = Duration::from_secs(8);

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    let lower = |figure, unit, ours| Measured { figure, unit, better: Better::Lower, ours, peer: None };
    if ["idle-ops", "queen-ops", "engaged-ops"].iter().any(|figure| reporter.wants(figure)) {
        let runtime = crate::runtime()?;
        let (mut idle, mut queen, mut engaged) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..reporter.runs.min(3) {
            let counted = runtime.block_on(count(Duration::from_secs(options.seconds)))?;
            idle.push(counted.idle);
            queen.push(counted.queen);
            engaged.push(counted.engaged);
        }
        for (figure, ours) in [("idle-ops", idle), ("queen-ops", queen), ("engaged-ops", engaged)] {
            if reporter.wants(figure) {
                reporter.report(&lower(figure, "1/s", ours));
            }
        }
    }
    if reporter.wants("nodes-1000") {
        thousand::measure(options.nodes as usize, reporter)?;
    }
    Ok(())
}

/// Operations per second and node.
struct Counted {
    idle: f64,
    queen: f64,
    engaged: f64,
}

/// Counts what goes to the store.
struct Counting {
    store: Arc<MemoryHive>,
    operations: AtomicU64,
}

impl HiveStore for Counting {
    fn call(&self, request: Request) -> BoxFuture<'static, std::result::Result<Reply, Failure>> {
        self.operations.fetch_add(1, Ordering::Relaxed);
        self.store.call(request)
    }

    fn capabilities(&self) -> Capabilities {
        // As a server: many machines, so that nobody looks for locks.
        Capabilities { many_hosts: true, durable: true, doorbell: false }
    }
}

async fn count(watched: Duration) -> Result<Counted> {
    let hive_ms = || {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(0).saturating_sub(HIVE_TIME_START_MS.cast_unsigned())
    };
    let store = Arc::new(MemoryHive::new(hive_ms));
    let mut nodes = Vec::new();
    for number in 0..NODES {
        let counting = Arc::new(Counting { store: store.clone(), operations: AtomicU64::new(0) });
        let hive = Hive::join(counting.clone(), Membership::named(format!("node-{number}"))).await?;
        nodes.push((hive, counting));
    }
    tokio::time::sleep(SETTLE).await;
    let operations = |nodes: &[(Hive, Arc<Counting>)]| -> Vec<u64> {
        nodes.iter().map(|(_, counting)| counting.operations.load(Ordering::Relaxed)).collect()
    };
    let queen = nodes.iter().position(|(hive, _)| matches!(hive.role(), Role::Queen(_))).ok_or("nobody is queen")?;
    let before = operations(&nodes);
    tokio::time::sleep(watched).await;
    let idle = operations(&nodes);
    // Traffic begins; its first mark is over when the counting begins.
    let traffic: Vec<_> = nodes.iter().map(|(hive, _)| tokio::spawn(serve(hive.clone()))).collect();
    tokio::time::sleep(SETTLE).await;
    let engaged_before = operations(&nodes);
    tokio::time::sleep(watched).await;
    let engaged = operations(&nodes);
    traffic.iter().for_each(tokio::task::JoinHandle::abort);
    let rate = |before: &[u64], after: &[u64], of_queen: bool| {
        let of: Vec<usize> = (0..NODES).filter(|node| (*node == queen) == of_queen).collect();
        let all: u64 = of.iter().map(|node| after[*node] - before[*node]).sum();
        all as f64 / of.len() as f64 / watched.as_secs_f64()
    };
    let counted = Counted {
        idle: rate(&before, &idle, false),
        queen: rate(&before, &idle, true),
        engaged: rate(&engaged_before, &engaged, false),
    };
    for (hive, _) in nodes {
        hive.leave().await;
    }
    Ok(counted)
}

/// A thousand requests a second.
async fn serve(hive: Hive) {
    let mut every = tokio::time::interval(Duration::from_millis(1));
    loop {
        every.tick().await;
        hive.engage();
    }
}

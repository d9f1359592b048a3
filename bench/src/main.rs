//! `cargo xtask bench <name>`: measures our code and a peer in turn, in one process on one machine, and reports
//! medians.
//!
//! Standard output carries only the figures; progress goes to standard error.

mod capture;
mod checkout;
mod commits;
mod cql;
mod drain;
mod embedded;
mod engine;
mod failover;
mod fence;
mod figure;
mod hive_load;
mod idle;
mod latency;
mod limit;
mod limit_accuracy;
mod peer;
mod refill;
mod settings;
mod shop;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::{Layer, filter::LevelFilter, layer::SubscriberExt, util::SubscriberInitExt};

use figure::Reporter;

/// The same allocator as in the `honeyflow` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Error>;

#[derive(Parser)]
#[command(name = "bench", about = "Measure our code and a peer in turn; one figure per line")]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
    /// Number of runs of each side; the median is reported
    #[arg(long, default_value_t = 5, global = true, value_parser = clap::value_parser!(u32).range(1..1000))]
    runs: u32,
    #[arg(long, default_value = "table", global = true)]
    output: figure::Output,
    /// Measure only the figures whose names begin with this text
    #[arg(long, global = true)]
    only: Option<String>,
}

#[derive(Subcommand)]
enum Bench {
    /// A node on SQLite and Tantivy: `drain`, `latency-p50`, `latency-p99`
    Embedded(embedded::Options),
    /// The cost of triggers for the application: `single-row`, `thousand-rows`, and both with synchronous=OFF
    Capture(capture::Options),
    /// The engine alone: `steps-3`, `steps-40`, `idle-cpu`, `idle-memory`
    Engine(EngineOptions),
    /// A limit's local check: `clock`, `clock-exact`, `check-1`, `check-2`, `check-keyed`, `engaged-layer`
    Limit(limit::Options),
    /// Requests that all nodes together admit, as a share of one central bucket: a figure per simulated scenario; `redis-8`, `postgres-8`
    LimitAccuracy(limit_accuracy::Options),
    /// CQL against the crate `scylla`: `throughput-mean`, `p99-mean`, `client-cpu`, `scripted-throughput`, `exclusive-throughput`, `slow-node-p99`
    Cql(cql::Options),
    /// From a restarted server's open port to all connections: `restart-median`, `restart-worst`
    Refill(refill::Options),
    /// The checkout and return of a connection: `one-task-…`, `tasks-…`, `held-…` against peers and floor, `changing`, `fairness-…`
    Checkout(checkout::Options),
    /// A pool's settings, compiled or from functions, against a section of a file: `load-…`, `read-…`
    Settings(settings::Options),
    /// Time until another node leads: `<backend>-p99`, `<backend>-fast-p99`, `<backend>-graceful-p99`, and the same with p50
    Failover(failover::Options),
    /// The cost of a fence: `fenced-delete-<backend>`, `beat-during-fence-<backend>`
    Fence(fence::Options),
    /// The load of a hive on its store: `idle-ops`, `queen-ops`, `engaged-ops`, `nodes-1000` and `nodes-1000-…`, on real stores too
    HiveLoad(hive_load::Options),
}

#[derive(clap::Args)]
struct EngineOptions {
    #[command(flatten)]
    steps: engine::Options,
    #[command(flatten)]
    idle: idle::Options,
}

fn main() -> ExitCode {
    // This process is a node of the bench `failover`, which starts this program again.
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "bee") {
        return honeyflow_chaos::hive::node_process::run(&words[1..]);
    }
    // This process is a node of the bench `limit-accuracy`.
    if words.first().is_some_and(|word| word == "fleet-node") {
        return limit_accuracy::fleet::node(&words[1..]);
    }
    let arguments = Arguments::parse();
    let quiet = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(LevelFilter::ERROR);
    tracing_subscriber::registry().with(commits::layer()).with(quiet).init();
    match measure(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<()> {
    let reporter = |bench| Reporter::new(bench, arguments.output, arguments.runs, arguments.only.clone());
    match &arguments.bench {
        Bench::Embedded(options) => embedded::measure(options, &mut reporter("embedded")),
        Bench::Capture(options) => capture::measure(options, &mut reporter("capture")),
        Bench::Limit(options) => limit::measure(options, &mut reporter("limit")),
        Bench::LimitAccuracy(options) => limit_accuracy::measure(options, &mut reporter("limit-accuracy")),
        Bench::Cql(options) => cql::measure(options, &mut reporter("cql")),
        Bench::Refill(options) => refill::measure(options, &mut reporter("refill")),
        Bench::Checkout(options) => checkout::measure(options, &mut reporter("checkout")),
        Bench::Settings(options) => settings::measure(options, &mut reporter("settings")),
        Bench::Failover(options) => failover::measure(options, &mut reporter("failover")),
        Bench::Fence(options) => fence::measure(options, &mut reporter("fence")),
        Bench::HiveLoad(options) => hive_load::measure(options, &mut reporter("hive-load")),
        Bench::Engine(options) => {
            let mut reporter = reporter("engine");
            engine::measure(&options.steps, &mut reporter)?;
            idle::measure(&options.idle, &mut reporter)
        }
    }
}

/// The runtime of a node: as in the binary, with the two threads that the figures are stated for.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

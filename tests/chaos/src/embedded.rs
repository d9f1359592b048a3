//! The campaign `embedded`: one node with SQLite and Tantivy, killed with -9 (or drained with TERM) under load.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use honeyflow::{
    config::Config,
    demo::{self, dice::Dice, proof::Proof, shop, traffic, traffic::Tally},
    node::{
        reindex::{Rows, ask},
        source::OpenSource,
    },
    registry,
};
use honeyflow_runtime::Failure;
use honeyflow_store::{Admin, AdminReply, admin::Lag};
use rustix::process::Signal;
use serde::Serialize;

use crate::node::Node;

const QUIET_TIMEOUT: Duration = Duration::from_secs(300);

pub struct Options {
    /// The `honeyflow` binary under test.
    pub binary: PathBuf,
    pub rounds: u32,
    /// True: the node is killed with -9. False: it gets TERM, and must drain.
    pub kill: bool,
    pub seed: u64,
}

#[derive(Serialize)]
pub struct Report {
    pub rounds: u32,
    pub signal: &'static str,
    /// Rounds in which the node had open runs just before the signal.
    pub rounds_with_open_runs: u32,
    pub changes_committed: u64,
    pub changes_rolled_back: u64,
    pub epochs_grew: bool,
    pub waiting_at_the_end: u64,
    pub parked: u64,
    #[serde(flatten)]
    pub proof: Proof,
    pub seconds: f64,
}

impl Report {
    pub fn holds(&self) -> bool {
        self.proof.holds() && self.epochs_grew && self.parked == 0 && self.waiting_at_the_end == 0
    }
}

/// Kills the node `rounds` times under load, restarts it, and compares every document with its row.
///
/// # Errors
/// Returns what kept the campaign from running.
pub fn run(options: &Options) -> Result<Report, String> {
    let began = Instant::now();
    let folder = Folder::new(options.seed)?;
    let log = File::create(folder.0.join("node.log")).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let config = prepare(&folder.0, options.seed, &runtime)?;
    let tally = Arc::new(Tally::default());
    let application = start_application(&folder.0, options.seed, &tally)?;
    let mut dice = Dice::new(options.seed ^ 0xC4A0);
    let mut with_open_runs = 0;
    let mut epochs = Vec::new();
    for round in 0..options.rounds {
        let mut node =
            Node::start(&options.binary, &folder.0, &log).map_err(|error| with_log_tail(&error, &folder.0))?;
        std::thread::sleep(Duration::from_millis(u64::try_from(50 + dice.below(600)).unwrap_or(100)));
        let status = node.status().ok_or_else(|| with_log_tail("the node did not answer /v1/status", &folder.0))?;
        let open = status["engine"]["open_runs"].as_u64().unwrap_or(0);
        epochs.extend(status["engine"]["sources"][0]["epoch"].as_u64());
        with_open_runs += u32::from(open > 0);
        node.signal(if options.kill { Signal::KILL } else { Signal::TERM })?;
        eprintln!(
            "round {}/{}: {open} open runs, {} changes so far",
            round + 1,
            options.rounds,
            tally.committed.load(Ordering::Relaxed)
        );
    }
    tally.stop.store(true, Ordering::Relaxed);
    application
        .join()
        .map_err(|_| "the application panicked".to_owned())?
        .map_err(|error| format!("the application failed: {error}"))?;
    let mut node = Node::start(&options.binary, &folder.0, &log).map_err(|error| with_log_tail(&error, &folder.0))?;
    let lag = runtime
        .block_on(wait_until_quiet(&config, &node))
        .map_err(|failure| with_log_tail(&failure.message, &folder.0))?;
    node.signal(Signal::TERM)?;
    let proof = runtime.block_on(prove(&config, &folder.0)).map_err(|failure| failure.message)?;
    Ok(Report {
        rounds: options.rounds,
        signal: if options.kill { "KILL" } else { "TERM" },
        rounds_with_open_runs: with_open_runs,
        changes_committed: tally.committed.load(Ordering::Relaxed),
        changes_rolled_back: tally.rolled_back.load(Ordering::Relaxed),
        epochs_grew: epochs.windows(2).all(|pair| pair[0] < pair[1]) && !epochs.is_empty(),
        waiting_at_the_end: lag.waiting + lag.delayed,
        parked: lag.parked,
        proof,
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// Creates the shop with its outbox, and a configuration with a free port.
fn prepare(folder: &Path, seed: u64, runtime: &tokio::runtime::Runtime) -> Result<Config, String> {
    demo::write_config(folder).map_err(|failure| failure.message)?;
    let file = folder.join("honeyflow.toml");
    let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
    std::fs::write(&file, text.replace("127.0.0.1:7171", "127.0.0.1:0")).map_err(|error| error.to_string())?;
    let mut connection = shop::open(&folder.join("shop.db")).map_err(|error| error.to_string())?;
    shop::make(&mut connection, &mut Dice::new(seed)).map_err(|error| error.to_string())?;
    let loaded = honeyflow::config::load(&file, &registry::kinds()).ok().and_then(|loaded| loaded.config);
    let config = loaded.ok_or("the configuration is invalid")?;
    runtime
        .block_on(async {
            let source = OpenSource::open(&config, &config.sources[0]).await?;
            source.database.install(source.capture(), true).await?;
            let (entity, workflow) = (&source.bound[0].entity, &config.workflows[0].name);
            let rows = Rows { database: &source.database, entity, workflow };
            rows.queue_all(rows.position().await?).await
        })
        .map_err(|failure| failure.message)?;
    Ok(config)
}

fn start_application(
    folder: &Path,
    seed: u64,
    tally: &Arc<Tally>,
) -> Result<std::thread::JoinHandle<rusqlite::Result<()>>, String> {
    let (tally, database) = (tally.clone(), folder.join("shop.db"));
    std::thread::Builder::new()
        .name("application".to_owned())
        .spawn(move || {
            let mut connection = shop::open(&database)?;
            traffic::run(&mut connection, &mut Dice::new(seed), None, Duration::from_millis(1), &tally)
        })
        .map_err(|error| error.to_string())
}

async fn wait_until_quiet(config: &Config, node: &Node) -> Result<Lag, Failure> {
    let source = OpenSource::open(config, &config.sources[0]).await?;
    let began = Instant::now();
    loop {
        let AdminReply::Lag(lag) = ask(&source.database.store, Admin::Lag).await? else {
            return Err(Failure::fatal("misplaced-reply", "the store's reply does not fit the request"));
        };
        let idle = node.status().is_some_and(|status| status["engine"]["open_runs"] == 0);
        if (lag.waiting + lag.delayed == 0 && idle) || began.elapsed() > QUIET_TIMEOUT {
            return Ok(lag);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

async fn prove(config: &Config, folder: &Path) -> Result<Proof, Failure> {
    let sink = registry::reading_sink(&config.sinks[0], config)?;
    let sink = sink.ok_or_else(|| Failure::fatal("no-index", "no document was indexed"))?;
    demo::proof::prove(&folder.join("shop.db"), &sink).await
}

/// Appends the end of the node's log to the error.
fn with_log_tail(error: &str, folder: &Path) -> String {
    let log = std::fs::read_to_string(folder.join("node.log")).unwrap_or_default();
    let tail: Vec<&str> = log.lines().rev().take(20).collect();
    format!("{error}\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"))
}

struct Folder(PathBuf);

impl Folder {
    fn new(seed: u64) -> Result<Folder, String> {
        let folder = std::env::temp_dir().join(format!("honeyflow-chaos-{}-{seed}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

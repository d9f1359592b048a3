//! `honeyflow demo`: a bookshop in SQLite, an embedded index, an application that makes changes, and a proof at the
//! end. It needs no server and no configuration.

pub mod dice;
pub mod proof;
pub mod shop;
pub mod timing;
pub mod traffic;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use honeyflow_runtime::Failure;
use honeyflow_sink::Sink;
use honeyflow_store::{Admin, AdminReply};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::{
    codes,
    config::{self, Config},
    node::{
        self, Node,
        reindex::{self, Rows},
        source::OpenSource,
    },
    registry,
    signals::Stop,
};
use dice::Dice;
use timing::{AnswerTimes, TimedSink};
use traffic::Tally;

const CONFIG: &str = include_str!("demo/honeyflow.toml");

pub struct Options {
    /// Stop after this number of committed changes; none means until Ctrl-C.
    pub once: Option<u64>,
    /// Keep all files in this folder.
    pub keep: Option<PathBuf>,
    pub seed: u64,
}

#[derive(Serialize)]
pub struct Report {
    pub changes_committed: u64,
    pub changes_rolled_back: u64,
    pub events: u64,
    #[serde(flatten)]
    pub proof: proof::Proof,
    pub latency_ms: Latency,
    pub changes_per_second: f64,
    pub seconds: f64,
}

#[derive(Serialize)]
pub struct Latency {
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

/// Creates the shop, runs it, and proves the result.
pub async fn run(options: Options) -> Result<Report, Failure> {
    let temporary = if options.keep.is_none() { Some(TemporaryFolder::new()?) } else { None };
    let folder = options.keep.clone().or_else(|| temporary.as_ref().map(|folder| folder.0.clone())).unwrap_or_default();
    let config = write_config(&folder)?;
    let database = folder.join("shop.db");
    if database.exists() {
        let message = format!("{} already exists: choose another folder with --keep", database.display());
        return Err(Failure::reject(codes::FOLDER_IN_USE, message));
    }
    let bar = spinner(options.once);
    bar.set_message("creating a bookshop");
    let mut dice = Dice::new(options.seed);
    let made = database.clone();
    let mut shop_dice = Dice::new(dice.roll());
    blocking(move || {
        let mut connection = shop::open(&made)?;
        shop::make(&mut connection, &mut shop_dice)
    })
    .await?;

    let source = OpenSource::open(&config, &config.sources[0]).await?;
    source.database.install(source.capture(), true).await?;
    drop(source);
    let seen = Arc::new(AnswerTimes::default());
    let noted = seen.clone();
    let wrap = move |sink: Arc<dyn Sink>| -> Arc<dyn Sink> { Arc::new(TimedSink::new(sink, noted.clone())) };
    let node_options = node::Options { wrap_sink: Some(Box::new(wrap)), ..node::Options::default() };
    let (node, service) = Node::open(&config, &node_options).await?;
    let listener =
        node::surface::bind(config.node.listen).or_else(|_| node::surface::bind(([127, 0, 0, 1], 0).into()))?;
    let address = listener.local_addr().unwrap_or(config.node.listen);
    let mut running = node.run(&config, service, listener)?;
    bar.set_message("indexing the existing books");
    let source = &node.sources[0];
    let rows =
        Rows { database: &source.database, entity: &source.bound[0].entity, workflow: &config.workflows[0].name };
    rows.reindex(None, |queued| bar.set_message(format!("indexing the existing books: {}", queued.events))).await?;
    wait_until_quiet(&node, &bar).await?;

    if options.once.is_none() {
        note(&bar, &format!("the shop is indexed; open http://{address}/ to watch it"));
        for query in ["title:garden", "authors:okafor", "publisher:press AND price:[10 TO 20]"] {
            let query = query.replace(' ', "+");
            note(&bar, &format!("  try a search:  curl -g 'http://{address}/v1/search?sink=books&q={query}'"));
        }
        note(&bar, "changes continue until Ctrl-C, which drains the node and proves the result");
    }
    let tally = Arc::new(Tally::default());
    let begun = Instant::now();
    let before = node.engine.status().events;
    let application = {
        let (tally, database) = (tally.clone(), database.clone());
        let mut dice = Dice::new(dice.roll());
        let (count, pause) =
            (options.once, if options.once.is_some() { Duration::ZERO } else { Duration::from_millis(5) });
        std::thread::Builder::new().name("application".to_owned()).spawn(move || {
            let mut connection = shop::open(&database)?;
            traffic::run(&mut connection, &mut dice, count, pause, &tally)
        })
    }
    .map_err(|error| Failure::fatal(codes::DEMO, format!("cannot start the application: {error}")))?;

    let mut stop = Stop::new()?;
    while !application.is_finished() {
        let committed = tally.committed.load(Ordering::Relaxed);
        bar.set_position(committed);
        bar.set_message(progress_line(&node, begun, committed));
        tokio::select! {
            () = stop.requested() => tally.stop.store(true, Ordering::Relaxed),
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
        if running.is_finished() {
            tally.stop.store(true, Ordering::Relaxed);
            return Err(ended_early(running.await));
        }
    }
    application
        .join()
        .map_err(|_| Failure::fatal(codes::DEMO, "the application panicked"))?
        .map_err(|error| Failure::fatal(codes::DEMO, format!("the application failed: {error}")))?;
    bar.set_message("finishing the remaining events");
    wait_until_quiet(&node, &bar).await?;
    let elapsed = begun.elapsed();
    let events = node.engine.status().events - before;
    bar.set_message("comparing every document with its row");
    let proof = proof::prove(&database, &node.sinks[0].1).await?;
    node.drain(&mut running, Duration::from_secs(10)).await;
    bar.finish_and_clear();
    let commits = tally.commits.lock().map(|commits| commits.clone()).unwrap_or_default();
    let latencies = seen.latencies(&commits);
    let committed = tally.committed.load(Ordering::Relaxed);
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let changes_per_second = committed as f64 / elapsed.as_secs_f64();
    Ok(Report {
        changes_committed: committed,
        changes_rolled_back: tally.rolled_back.load(Ordering::Relaxed),
        events,
        proof,
        latency_ms: Latency { p50: timing::percentile(&latencies, 50), p99: timing::percentile(&latencies, 99) },
        changes_per_second,
        seconds: elapsed.as_secs_f64(),
    })
}

/// Writes the configuration of the shop into the folder, and reads it.
pub fn write_config(folder: &Path) -> Result<Config, Failure> {
    let cannot =
        |error: std::io::Error| Failure::fatal(codes::DEMO, format!("cannot write to {}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(cannot)?;
    let file = folder.join("honeyflow.toml");
    std::fs::write(&file, CONFIG).map_err(cannot)?;
    let loaded = config::load(&file, &registry::kinds());
    loaded
        .ok()
        .and_then(|loaded| loaded.config)
        .ok_or_else(|| Failure::fatal(codes::DEMO, "the demo's own configuration is not valid"))
}

/// Waits until no event is waiting and no run is open.
async fn wait_until_quiet(node: &Node, bar: &ProgressBar) -> Result<(), Failure> {
    let store = &node.sources[0].database.store;
    let mut quiet = 0;
    while quiet < 2 {
        let AdminReply::Lag(lag) = reindex::ask(store, Admin::Lag).await? else { break };
        let status = node.engine.status();
        let left = lag.waiting + lag.delayed;
        bar.set_message(format!("{left} events left, {} runs open", status.open_runs));
        quiet = if left == 0 && status.open_runs == 0 { quiet + 1 } else { 0 };
        tokio::time::sleep(Duration::from_millis(if quiet > 0 { 210 } else { 50 })).await;
    }
    Ok(())
}

fn progress_line(node: &Node, begun: Instant, committed: u64) -> String {
    let status = node.engine.status();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = committed as f64 / begun.elapsed().as_secs_f64().max(0.001);
    format!("{rate:.0} changes/s, {} runs open, {} merged", status.open_runs, status.merged)
}

/// Prints a line above the progress bar, or to stderr if the bar is hidden, as in a pipe.
fn note(bar: &ProgressBar, text: &str) {
    if bar.is_hidden() {
        eprintln!("{text}");
    } else {
        bar.println(text);
    }
}

fn spinner(count: Option<u64>) -> ProgressBar {
    let bar = count.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let template =
        if count.is_some() { "{spinner} [{bar:30}] {pos}/{len} {msg}" } else { "{spinner} {pos} changes · {msg}" };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> rusqlite::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Failure::fatal(codes::DEMO, "cannot create the shop"))?
        .map_err(|error| Failure::fatal(codes::DEMO, format!("cannot create the shop: {error}")))
}

fn ended_early(result: Result<Result<(), Failure>, tokio::task::JoinError>) -> Failure {
    match result {
        Ok(Err(failure)) => failure,
        Ok(Ok(())) => Failure::fatal(codes::DEMO, "the node ended by itself"),
        Err(error) => Failure::fatal(codes::DEMO, format!("the node panicked: {error}")),
    }
}

/// A folder that is deleted when the demo ends.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn new() -> Result<TemporaryFolder, Failure> {
        let folder = std::env::temp_dir().join(format!("honeyflow-demo-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&folder)
            .map_err(|error| Failure::fatal(codes::DEMO, format!("cannot create {}: {error}", folder.display())))?;
        Ok(TemporaryFolder(folder))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

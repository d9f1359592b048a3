//! `redis-8`, `postgres-8`: the same measurement with eight real processes on a real server. They get one and a half
//! times as many requests as the limit allows, the first process eight times as many as the last, each request at a
//! random moment.

use std::{
    io::{BufRead, BufReader, Write as _},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use honeyflow::demo::dice::Dice;
use honeyflow_chaos::hive::{Backend, StoreLocation};
use honeyflow_hive::{Hive, limit::Definition, service::Options};
use honeyflow_invariant::rate::{GrantedPermits, rate_holds};
use honeyflow_runtime::{Clock, time::BootClock};

use crate::{
    Result,
    figure::{Better, Measurement, Reporter},
};

const NODES: u32 = 8;
const RATE: u64 = 1_000;
/// The demand as a multiple of the limit's rate.
const DEMAND: f64 = 1.5;
/// The warm-up, in which the nodes get to know each other; its requests are not counted.
const WARM_UP_S: u64 = 5;
const SECONDS: u64 = 20;

/// One request: its time, and whether it was admitted.
type Request = (u64, bool);

pub fn measure(reporter: &mut Reporter) -> Result<()> {
    for (figure, backend) in [("redis-8", Backend::Redis), ("postgres-8", Backend::Postgres)] {
        if !reporter.wants(figure) {
            continue;
        }
        let (location, _guard) = StoreLocation::prepare(backend)?;
        let mut shares = Vec::new();
        for run in 1..=reporter.runs {
            let requests = one(&location, &format!("fleet-{run}"))?;
            let (ours, central) = (requests.iter().filter(|(_, admitted)| *admitted).count(), central(&requests));
            eprintln!("  {figure}: run {run}, {ours} of {} requests, {central} by a central bucket", requests.len());
            shares.push(ours as f64 / central as f64 * 100.0);
        }
        let peer = Some(("central", vec![100.0; shares.len()]));
        reporter.report(&Measurement { figure, unit: "%", better: Better::Higher, ours: shares, peer });
    }
    Ok(())
}

/// Runs one hive and returns the requests after the warm-up, in the order of time. Every request is checked against the
/// limit.
fn one(location: &StoreLocation, hive: &str) -> Result<Vec<Request>> {
    let weights: Vec<f64> = (1..=NODES).map(|rank| 1.0 / f64::from(rank)).collect();
    let sum: f64 = weights.iter().sum();
    let mut nodes = Vec::new();
    for (at, weight) in weights.iter().enumerate() {
        let per_second = (RATE as f64 * DEMAND * weight / sum).round();
        nodes.push(Node::start(location, hive, at, per_second)?);
    }
    for node in &mut nodes {
        node.expect("ready")?;
    }
    for node in &mut nodes {
        node.go()?;
    }
    let mut requests = Vec::new();
    for node in &mut nodes {
        requests.append(&mut node.requests()?);
    }
    requests.sort_unstable();
    let given: Vec<GrantedPermits> = admitted(&requests).map(|at_us| GrantedPermits { at_us, permits: 1 }).collect();
    // A node may note a permit later than it took it, one per node, and the store counts whole milliseconds.
    let burst = RATE / 5 + u64::from(NODES) + RATE / 1_000;
    if let Some(breach) = rate_holds("api", RATE, burst, &given).first() {
        return Err(format!("the limit was not kept: {breach:?}").into());
    }
    let counted_from = requests.first().map_or(0, |(at_us, _)| at_us + WARM_UP_S * 1_000_000);
    Ok(requests.into_iter().filter(|(at_us, _)| *at_us >= counted_from).collect())
}

fn admitted(requests: &[Request]) -> impl Iterator<Item = u64> {
    requests.iter().filter(|(_, admitted)| *admitted).map(|(at_us, _)| *at_us)
}

/// The number of requests that one central bucket would have admitted; it is full at the beginning.
fn central(requests: &[Request]) -> u64 {
    let full = (RATE / 5) as f64;
    let (mut left, mut last_us, mut count) = (full, requests.first().map_or(0, |(at_us, _)| *at_us), 0);
    for (at_us, _) in requests {
        left = (left + (at_us - last_us) as f64 * RATE as f64 / 1e6).min(full);
        last_us = *at_us;
        if left >= 1.0 {
            (left, count) = (left - 1.0, count + 1);
        }
    }
    count
}

/// A process of this program; it is killed when the value is dropped.
struct Node {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Node {
    fn start(location: &StoreLocation, hive: &str, at: usize, per_second: f64) -> Result<Node> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["fleet-node", location.backend.name(), &location.url, hive])
            .args([at.to_string(), per_second.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("a node without output")?;
        Ok(Node { child, output: BufReader::new(output) })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        let line = self.line()?;
        if line == word { Ok(()) } else { Err(format!("a node printed {line:?} instead of {word:?}").into()) }
    }

    fn go(&mut self) -> Result<()> {
        let input = self.child.stdin.as_mut().ok_or("a node without input")?;
        Ok(writeln!(input, "go")?)
    }

    fn requests(&mut self) -> Result<Vec<Request>> {
        Ok(serde_json::from_str(&self.line()?)?)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The main function of such a process.
pub fn node(words: &[String]) -> ExitCode {
    match crate::runtime().and_then(|runtime| runtime.block_on(run_node(words))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fleet-node: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run_node(words: &[String]) -> Result<()> {
    let [backend, url, hive, at, per_second] = words else {
        return Err("usage: fleet-node BACKEND URL HIVE NUMBER RATE".into());
    };
    let (seed, per_second): (u64, f64) = (at.parse()?, per_second.parse()?);
    let store = StoreLocation::at_url(backend.parse()?, url).open(hive).await?;
    let limit = Definition::parse("api", &format!("{RATE}/s"))?;
    let hive = Hive::join(store, Options::named(format!("node-{at}")).limit(limit)).await?;
    let api = hive.limit("api")?;
    hive.engage();
    while api.terms().version == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("ready");
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    let mut dice = Dice::new(seed + 1);
    let begun = tokio::time::Instant::now();
    let mut next_s = 0.0;
    let mut open = FuturesUnordered::new();
    let mut requests: Vec<Request> = Vec::new();
    while next_s < (WARM_UP_S + SECONDS) as f64 {
        let due = tokio::time::sleep_until(begun + Duration::from_secs_f64(next_s));
        tokio::pin!(due);
        loop {
            tokio::select! {
                () = &mut due => break,
                Some(done) = open.next() => requests.push(done),
            }
        }
        hive.engage();
        open.push(async {
            let taken = api.try_take(1).await.is_ok();
            (BootClock.now().0, taken)
        });
        // The time to the next request is distributed exponentially.
        let chance = (dice.below(1_000_000) + 1) as f64 / 1_000_000.0;
        next_s -= chance.ln() / per_second;
    }
    while let Some(done) = open.next().await {
        requests.push(done);
    }
    println!("{}", serde_json::to_string(&requests)?);
    hive.leave().await;
    Ok(())
}

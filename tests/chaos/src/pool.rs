//! The campaign `pool`: a session under load, while its servers are killed, paused, cut off, slowed down and made to
//! send garbage. After each fault the pool must be as large as before, and nothing may be left over.
//!
//! It has three targets: scripted servers in this process, a proxy in front of real servers, and the processes of the
//! real servers. Connections are counted where they arrive, not where they are opened.

mod fault_target;
pub mod load;
mod nodes;
mod outages;
pub mod protocol;
mod report;
mod request_counter;
pub mod scripted;
mod stalls;
pub mod steps;

use std::time::{Duration, Instant};

use honeyflow::demo::dice::Dice;
use honeyflow_cassandra::{Consistency, Session};
use honeyflow_pool::{Drain, ServerState, settings::SpeculateAfter};
use serde::Serialize;

pub use crate::proxy;
use fault_target::FaultTarget;
use load::Load;
pub use nodes::Nodes;
pub use report::Report;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    Scripted,
    Proxy,
    Nodes,
}

impl Part {
    pub const ALL: [Part; 3] = [Part::Scripted, Part::Proxy, Part::Nodes];

    pub fn name(self) -> &'static str {
        match self {
            Part::Scripted => "scripted",
            Part::Proxy => "proxy",
            Part::Nodes => "nodes",
        }
    }

    /// This part's share of all faults; the scripted servers get the remainder.
    pub fn share(self, rounds: u32) -> u32 {
        let (proxy, nodes) = (rounds / 10, rounds * 3 / 100);
        match self {
            Part::Scripted => rounds - proxy - nodes,
            Part::Proxy => proxy,
            Part::Nodes => nodes,
        }
    }
}

impl std::str::FromStr for Part {
    type Err = String;

    fn from_str(word: &str) -> Result<Part, String> {
        let found = Part::ALL.into_iter().find(|part| part.name() == word);
        found.ok_or_else(|| format!("unknown part `{word}`; known are scripted, proxy and nodes"))
    }
}

pub struct Options {
    pub part: Part,
    pub rounds: u32,
    pub callers: i32,
    pub seed: u64,
}

const REFILL_WITHIN: Duration = Duration::from_secs(10);
const MEMORY_FROM_ROUND: u32 = 100;
const PATIENCE: Duration = Duration::from_secs(60);

/// # Errors
/// Returns what kept the campaign from running.
pub fn run(options: &Options) -> Result<Report, String> {
    let mut target = fault_target::prepare(options.part)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    // `play` runs on this thread: a fault that waits for a process blocks only this thread, not the runtime's workers.
    runtime.block_on(play(options, &mut *target))
}

async fn play(options: &Options, target: &mut dyn FaultTarget) -> Result<Report, String> {
    let began = Instant::now();
    let stalls = stalls::Stalls::watch();
    fault_target::check_all_listen(&target.seeds())?;
    let session = open(target)?;
    target.create_table(&session).await?;
    let consistency = if options.part == Part::Scripted { Consistency::One } else { Consistency::LocalQuorum };
    let mut tested = TestedSession::new(session, target.servers());
    let load = Load::start(&tested.session, options.callers, consistency).await?;
    let tally = load.tally.clone();
    tested.wait_until_full(target, &load, PATIENCE).await.ok_or("the pool was not full at the beginning")?;
    tested.quiet_tasks = tested.tasks_when_quiet(&load).await;
    let mut dice = Dice::new(options.seed);
    let mut report = Report::new(options);
    let mut memory = None;
    for round in 0..options.rounds {
        let fault = target.strike(&mut dice).await?;
        *report.faults.entry(fault).or_default() += 1;
        match tested.wait_until_full(target, &load, REFILL_WITHIN).await {
            Some(took) => report.slowest_refill_s = report.slowest_refill_s.max(took.as_secs_f64()),
            None => {
                report.shrunk += 1;
                report.complain(format!("round {round}, {fault}: {}", tested.describe(target)));
                // The next rounds need a full pool, so the campaign finds out whether it comes back at all.
                if tested.wait_until_full(target, &load, PATIENCE).await.is_none() {
                    return Err(format!(
                        "after {fault} in round {round} the pool did not come back: {}",
                        tested.describe(target)
                    ));
                }
            }
        }
        if let Some(left) = tested.find_leftover(&load).await {
            report.leaked += 1;
            report.complain(format!("round {round}, {fault}: {left}"));
        }
        if round + 1 == MEMORY_FROM_ROUND {
            memory = resident_bytes();
        }
        if (round + 1).is_multiple_of((options.rounds / 20).max(1)) {
            eprintln!(
                "{}: {} of {} faults, {:.0} s",
                options.part.name(),
                round + 1,
                options.rounds,
                began.elapsed().as_secs_f64()
            );
        }
    }
    if options.rounds > 2 * MEMORY_FROM_ROUND {
        report.memory_growth = memory.zip(resident_bytes()).map(|(before, now)| now as f64 / before as f64);
    }
    // The load ends first, so that the last failures are judged, too: by then their time is over.
    load.stop().await;
    fault_target::check_all_listen(&target.seeds())?;
    target.outages().set_stalls(stalls.end());
    report.take(&tally, target.outages());
    report.left_over = tested.close(target).await;
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

fn open(target: &dyn FaultTarget) -> Result<Session, String> {
    let settings = honeyflow_pool::Settings {
        servers: target.seeds(),
        translate: target.translate(),
        // Shortened so that a thousand faults fit into an hour; everything else has its default.
        max_backoff: Duration::from_secs(1),
        speculate_after: SpeculateAfter::Time(Duration::from_millis(100)),
        ..honeyflow_pool::Settings::default()
    };
    Session::open(honeyflow_cassandra::connection::Settings::default(), settings).map_err(|error| error.to_string())
}

/// The session under test, and the state it should have when nothing is wrong.
struct TestedSession {
    session: Session,
    servers: u32,
    quiet_tasks: usize,
}

const CONNECTIONS_PER_SERVER: u32 = 2;
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl TestedSession {
    fn new(session: Session, servers: u32) -> TestedSession {
        TestedSession { session, servers, quiet_tasks: 0 }
    }

    /// The pool's connections, and the control connection over which it receives events.
    fn sockets_wanted(&self) -> u32 {
        self.servers * CONNECTIONS_PER_SERVER + 1
    }

    fn is_full(&self, target: &dyn FaultTarget) -> bool {
        self.is_full_at(target.open())
    }

    /// Whether the pool is full, if the servers' side counts this number of sockets.
    fn is_full_at(&self, sockets: u32) -> bool {
        let status = self.session.pool().status();
        let full = |server: &honeyflow_pool::ServerStatus| {
            server.open == CONNECTIONS_PER_SERVER && server.closing == 0 && server.state != ServerState::Down
        };
        sockets == self.sockets_wanted()
            && status.servers.len() == self.servers as usize
            && status.servers.iter().all(full)
    }

    fn states(&self) -> Vec<ServerState> {
        self.session.pool().status().servers.iter().map(|server| server.state).collect()
    }

    /// Waits until the pool is full again. Returns how long it took; None if it took too long.
    async fn wait_until_full(&self, target: &dyn FaultTarget, load: &Load, within: Duration) -> Option<Duration> {
        let begun = Instant::now();
        load.resume();
        while !self.is_full(target) {
            if begun.elapsed() > within {
                return None;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Some(begun.elapsed())
    }

    async fn tasks_when_quiet(&self, load: &Load) -> usize {
        load.pause().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let tasks = tasks();
        load.resume();
        tasks
    }

    /// Pauses the load and returns what is left over and should not be.
    async fn find_leftover(&self, load: &Load) -> Option<String> {
        if !load.pause().await {
            return Some("some requests do not end".to_owned());
        }
        let begun = Instant::now();
        let left = loop {
            let status = self.session.pool().status();
            let orphans: u32 = status.servers.iter().map(|server| server.orphans).sum();
            let waiting: usize = status.waiting.iter().sum();
            if (status.lent, orphans, waiting) == (0, 0, 0) && tasks() <= self.quiet_tasks {
                break None;
            }
            if begun.elapsed() > REFILL_WITHIN {
                let (now, then) = (tasks(), self.quiet_tasks);
                break Some(format!(
                    "{} requests in flight, {orphans} orphans, {waiting} waiters, {now} tasks instead of {then}",
                    status.lent
                ));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        load.resume();
        left
    }

    fn describe(&self, target: &dyn FaultTarget) -> String {
        let status = self.session.pool().status();
        let server = |server: &honeyflow_pool::ServerStatus| {
            let (address, state, error) = (server.server.address, server.state, server.last_error.as_deref());
            format!("{address} {state:?} {} open, next try {:?}, {error:?}", server.open, server.next_try)
        };
        let servers: Vec<String> = status.servers.iter().map(server).collect();
        let sockets = format!("{} sockets instead of {}", target.open(), self.sockets_wanted());
        format!("{sockets}; {}; discovery: {:?}", servers.join("; "), status.discovery_error)
    }

    /// Closes the session and returns the number of sockets and tasks that outlive it.
    async fn close(self, target: &dyn FaultTarget) -> u32 {
        self.session.pool().control().close(Drain::within(Duration::from_secs(5))).await;
        drop(self.session);
        let begun = Instant::now();
        loop {
            let left = target.open() + u32::try_from(tasks()).unwrap_or(u32::MAX);
            if left == 0 || begun.elapsed() > REFILL_WITHIN {
                return left;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

fn resident_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    pages.split_whitespace().nth(1)?.parse::<u64>().ok().map(|pages| pages * 4096)
}

//! `pool`: a session under load while its servers are killed, paused, cut off, slowed down and made to talk nonsense;
//! after each fault the pool must be as large as before and nothing may be left over.
//!
//! Three grounds: scripted servers in this process, a proxy before real servers, and the real servers' processes. Sizes
//! are counted where connections arrive, not where they are opened.

mod darkness;
mod ground;
pub mod load;
mod nodes;
mod report;
pub mod scripted;
pub mod speak;
mod stalls;
pub mod steps;
mod tap;

use std::time::{Duration, Instant};

use honeyflow::demo::dice::Dice;
use honeyflow_cassandra::{Consistency, Session};
use honeyflow_pool::{Drain, ServerState, settings::SpeculateAfter};
use serde::Serialize;

pub use crate::proxy;
use ground::Ground;
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

    /// Of so many faults in all; what cannot be divided falls to the scripted servers.
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
        found.ok_or_else(|| format!("`{word}` is no part; there are scripted, proxy and nodes"))
    }
}

pub struct Options {
    pub part: Part,
    pub rounds: u32,
    pub callers: i32,
    pub seed: u64,
}

const REFILL_AT_MOST: Duration = Duration::from_secs(10);
const MEMORY_FROM: u32 = 100;
const PATIENCE: Duration = Duration::from_secs(60);

/// # Errors
/// What kept the campaign from being carried out at all.
pub fn run(options: &Options) -> Result<Report, String> {
    let mut ground = ground::prepare(options.part)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    // On a thread of the runtime: faults that wait for processes hold up this one alone.
    runtime.block_on(play(options, &mut *ground))
}

async fn play(options: &Options, ground: &mut dyn Ground) -> Result<Report, String> {
    let began = Instant::now();
    let stalls = stalls::Stalls::watch();
    ground::all_there(&ground.seeds())?;
    let session = open(ground)?;
    ground.furnish(&session).await?;
    let consistency = if options.part == Part::Scripted { Consistency::One } else { Consistency::LocalQuorum };
    let mut field = Field::new(session, ground.servers());
    let load = Load::start(&field.session, options.callers, consistency).await?;
    let tally = load.tally.clone();
    field.settle(ground, &load, PATIENCE).await.ok_or("the pool was not full at the beginning")?;
    field.quiet_tasks = field.tasks_when_quiet(&load).await;
    let mut dice = Dice::new(options.seed);
    let mut report = Report::new(options);
    let mut memory = None;
    for round in 0..options.rounds {
        let fault = ground.strike(&mut dice).await?;
        *report.faults.entry(fault).or_default() += 1;
        match field.settle(ground, &load, REFILL_AT_MOST).await {
            Some(took) => report.slowest_refill_s = report.slowest_refill_s.max(took.as_secs_f64()),
            None => {
                report.shrunk += 1;
                report.complain(format!("round {round}, {fault}: {}", field.describe(ground)));
                // Whether it is for good is what the next rounds need to know.
                if field.settle(ground, &load, PATIENCE).await.is_none() {
                    return Err(format!(
                        "after {fault} in round {round} it never came back: {}",
                        field.describe(ground)
                    ));
                }
            }
        }
        if let Some(left) = field.leftover(&load).await {
            report.leaked += 1;
            report.complain(format!("round {round}, {fault}: {left}"));
        }
        if round + 1 == MEMORY_FROM {
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
    if options.rounds > 2 * MEMORY_FROM {
        report.memory_growth = memory.zip(resident_bytes()).map(|(before, now)| now as f64 / before as f64);
    }
    // What fails last is judged, too: by then its time is over.
    load.stop().await;
    ground::all_there(&ground.seeds())?;
    ground.darkness().stalled(stalls.end());
    report.take(&tally, ground.darkness());
    report.left_over = field.close(ground).await;
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

fn open(ground: &dyn Ground) -> Result<Session, String> {
    let settings = honeyflow_pool::Settings {
        servers: ground.seeds(),
        translate: ground.translate(),
        // So that a thousand faults fit into an hour; everything else is as people have it.
        max_backoff: Duration::from_secs(1),
        speculate_after: SpeculateAfter::Time(Duration::from_millis(100)),
        ..honeyflow_pool::Settings::default()
    };
    Session::open(honeyflow_cassandra::connection::Settings::default(), settings).map_err(|error| error.to_string())
}

/// The session, and what it should be like when nothing is wrong.
struct Field {
    session: Session,
    servers: u32,
    quiet_tasks: usize,
}

const CONNECTIONS_PER_SERVER: u32 = 2;
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl Field {
    fn new(session: Session, servers: u32) -> Field {
        Field { session, servers, quiet_tasks: 0 }
    }

    /// All that the pool wants, and the one over which it listens.
    fn sockets_wanted(&self) -> u32 {
        self.servers * CONNECTIONS_PER_SERVER + 1
    }

    fn is_full(&self, ground: &dyn Ground) -> bool {
        self.is_full_at(ground.open())
    }

    /// With so many sockets, counted at the other side.
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

    /// How long it took until everything was there again; none if it took too long.
    async fn settle(&self, ground: &dyn Ground, load: &Load, within: Duration) -> Option<Duration> {
        let begun = Instant::now();
        load.go_on();
        while !self.is_full(ground) {
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
        load.go_on();
        tasks
    }

    /// With nobody asking for anything: what is still there and should not be.
    async fn leftover(&self, load: &Load) -> Option<String> {
        if !load.pause().await {
            return Some("requests that do not end".to_owned());
        }
        let begun = Instant::now();
        let left = loop {
            let status = self.session.pool().status();
            let orphans: u32 = status.servers.iter().map(|server| server.orphans).sum();
            let waiting: usize = status.waiting.iter().sum();
            if (status.lent, orphans, waiting) == (0, 0, 0) && tasks() <= self.quiet_tasks {
                break None;
            }
            if begun.elapsed() > REFILL_AT_MOST {
                let (now, then) = (tasks(), self.quiet_tasks);
                break Some(format!(
                    "{} under way, {orphans} orphans, {waiting} waiting, {now} tasks instead of {then}",
                    status.lent
                ));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        load.go_on();
        left
    }

    fn describe(&self, ground: &dyn Ground) -> String {
        let status = self.session.pool().status();
        let server = |server: &honeyflow_pool::ServerStatus| {
            let (address, state, error) = (server.server.address, server.state, server.last_error.as_deref());
            format!("{address} {state:?} {} open, next try {:?}, {error:?}", server.open, server.next_try)
        };
        let servers: Vec<String> = status.servers.iter().map(server).collect();
        let sockets = format!("{} sockets instead of {}", ground.open(), self.sockets_wanted());
        format!("{sockets}; {}; discovery: {:?}", servers.join("; "), status.discovery_error)
    }

    /// Sockets and tasks that outlive the pool.
    async fn close(self, ground: &dyn Ground) -> u32 {
        self.session.pool().control().close(Drain::within(Duration::from_secs(5))).await;
        drop(self.session);
        let begun = Instant::now();
        loop {
            let left = ground.open() + u32::try_from(tasks()).unwrap_or(u32::MAX);
            if left == 0 || begun.elapsed() > REFILL_AT_MOST {
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

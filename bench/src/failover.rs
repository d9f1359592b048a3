//! How long a hive is without a leader: from the moment the queen's process is killed (-9) until the store has accepted
//! another node's first write under the new term, and until the same is true for every shard she had. Where she leaves
//! in good order: from her last accepted write to the other node's first one, each at the time of its answer.
//!
//! Every round has its own hive of three processes; many run at a time. The store's clock, the processes and this
//! program are on one machine, so their times can be compared directly. For the slowest rounds it prints what happened
//! when.

mod timeline;

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use honeyflow_chaos::hive::{Backend, FaultOptions, NodeMessage, Profile, StoreLocation, Swarm, SwarmOptions};
use honeyflow_hive::contract::QUEEN;
use honeyflow_runtime::{Clock, time::BootClock};

use crate::{
    Result,
    figure::{Better, Measurement, Reporter},
};

#[derive(clap::Args)]
pub struct Options {
    /// Number of hives whose queen ends, for each figure
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..10_000))]
    rounds: u32,
    /// Hives at a time, of three processes each. Default: 16, or two per processor where milliseconds matter
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..200))]
    hives: Option<u32>,
    /// Measure only this backend: sqlite, postgres, mysql, redis
    #[arg(long)]
    backend: Option<Backend>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QueenEnd {
    Killed,
    Leaves,
}

/// Shards that the three nodes divide; a round waits for the last of those that the queen had.
const SHARDS: u32 = 6;
const LATE_AT_LEAST: Duration = Duration::from_millis(1);
const SLOWEST_PRINTED: usize = 3;

impl QueenEnd {
    /// The time between two writes. After a crash, the wait begins with the kill. After a leave, it begins with her
    /// last write, and its exactness is the pace of her writes; all hives together must not overload the store.
    fn pace_ms(self) -> u64 {
        match self {
            QueenEnd::Killed => 500,
            QueenEnd::Leaves => 10,
        }
    }

    /// The number of hives at a time. After a kill, the nodes wait for a lease to expire. A transfer takes as long as
    /// three processes and the store need to run: with more processes than processors, the round would measure the
    /// queue for a processor.
    fn hives(self) -> u32 {
        let processors = std::thread::available_parallelism().map_or(2, |count| count.get() as u32);
        match self {
            QueenEnd::Killed => 16,
            QueenEnd::Leaves => (processors * 2).min(16),
        }
    }

    fn faults(self) -> FaultOptions {
        let shards = if self == QueenEnd::Killed { SHARDS } else { 0 };
        // A node that leaves in good order writes no more under its lost terms, so that the others need not wait for
        // it.
        FaultOptions { shards, no_duty: true, polite: true, ..FaultOptions::default() }
    }
}

/// When the queen ended and when the other node wrote, on the machine's clock.
struct Round {
    hive: String,
    since_us: u64,
    until_us: u64,
    /// The time until other nodes wrote under all of her shards.
    shards: Option<Duration>,
}

impl Round {
    fn wait(&self) -> Duration {
        Duration::from_micros(self.until_us.saturating_sub(self.since_us)).max(LATE_AT_LEAST)
    }

    /// The time until other nodes had everything she held.
    fn whole(&self) -> Duration {
        self.shards.map_or(self.wait(), |shards| shards.max(self.wait()))
    }
}

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    let backends = options.backend.map_or_else(|| Backend::ALL.to_vec(), |backend| vec![backend]);
    for backend in backends {
        let mut prepared = None;
        for (what, profile, end) in [
            ("", Profile::Default, QueenEnd::Killed),
            ("-fast", Profile::Fast, QueenEnd::Killed),
            ("-graceful", Profile::Default, QueenEnd::Leaves),
        ] {
            let figures =
                ["p50", "p99", "shards-p50", "shards-p99"].map(|part| format!("{}{what}-{part}", backend.name()));
            if !figures.iter().any(|figure| reporter.wants(figure)) {
                continue;
            }
            if prepared.is_none() {
                prepared = StoreLocation::prepare(backend)
                    .map_err(|error| eprintln!("  skipping {}: {error}", backend.name()))
                    .ok();
            }
            let Some((location, _)) = &prepared else { break };
            let mut rounds = rounds(options, location, profile, end)?;
            rounds.sort_by_key(Round::whole);
            let mut waits: Vec<Duration> = rounds.iter().map(Round::wait).collect();
            waits.sort_unstable();
            let mut shards: Vec<Duration> = rounds.iter().filter_map(|round| round.shards).collect();
            shards.sort_unstable();
            for round in rounds.iter().rev().take(SLOWEST_PRINTED) {
                eprintln!("  {}{what}: {}", backend.name(), timeline::describe(location, round));
            }
            let values = [(&waits, 50), (&waits, 99), (&shards, 50), (&shards, 99)];
            for (figure, (waits, part)) in figures.into_iter().zip(values) {
                if reporter.wants(&figure) && !waits.is_empty() {
                    let figure = Box::leak(figure.into_boxed_str());
                    let (unit, better, ours) = ("s", Better::Lower, vec![percentile(waits, part)]);
                    reporter.report(&Measurement { figure, unit, better, ours, peer: None });
                }
            }
        }
    }
    Ok(())
}

/// The value below which `part` percent of the waits lie.
fn percentile(sorted: &[Duration], part: usize) -> f64 {
    sorted[(sorted.len() * part).div_ceil(100).clamp(1, sorted.len()) - 1].as_secs_f64()
}

fn rounds(options: &Options, location: &StoreLocation, profile: Profile, end: QueenEnd) -> Result<Vec<Round>> {
    let begun = AtomicU32::new(0);
    let done = Mutex::new(Vec::new());
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..options.hives.unwrap_or(end.hives()).min(options.rounds) {
            scope.spawn(|| {
                loop {
                    let number = begun.fetch_add(1, Ordering::Relaxed);
                    if number >= options.rounds {
                        return;
                    }
                    match one(location, profile, end, number) {
                        Ok(round) => {
                            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                            done.push(round);
                            if done.len().is_multiple_of(options.rounds.div_ceil(5) as usize) {
                                eprintln!("  {} of {} rounds", done.len(), options.rounds);
                            }
                        }
                        Err(error) => {
                            begun.store(options.rounds, Ordering::Relaxed);
                            *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                        }
                    }
                }
            });
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error.into()),
        None => Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

fn one(location: &StoreLocation, profile: Profile, end: QueenEnd, number: u32) -> std::result::Result<Round, String> {
    let hive = format!("failover-{}-{end:?}-{number}", profile.name());
    let options = SwarmOptions {
        program: std::env::current_exe().map_err(|error| error.to_string())?,
        location: location.clone(),
        hive: hive.clone(),
        profile,
        fenced: true,
        pace_ms: end.pace_ms(),
    };
    let mut swarm = Swarm::start_with_faults(end.faults(), options, 3)?;
    // The queen ends at any point of a heartbeat, and not before all nodes know each other.
    let settle = profile.heartbeat() * 2 + profile.heartbeat() * (number % 20) / 20;
    swarm.wait_for(settle, |_, _| None::<()>)?;
    let (queen, epoch) = match swarm.writer(QUEEN) {
        Some(queen) => queen,
        None => swarm.wait("a node is queen", first_write)?,
    };
    let mut left = swarm.written_by(&queen);
    left.retain(|lease| lease != QUEEN);
    let had_shards = !left.is_empty();
    let mut since_us = BootClock.now().0;
    match end {
        QueenEnd::Killed => swarm.kill(&queen)?,
        QueenEnd::Leaves => swarm.command(&queen, "leave")?,
    }
    let (mut next, mut shards_us, mut last_us) = (None, since_us, None);
    let succeeds = |who: &str, message: &NodeMessage| {
        match message {
            NodeMessage::Tried { lease, accepted_us, .. } if who == queen && lease == QUEEN => {
                last_us = Some(*accepted_us);
            }
            NodeMessage::Wrote { lease, epoch: written, at_us } if who != queen => {
                if lease == QUEEN && *written > epoch {
                    next = next.or(Some(*at_us));
                } else if left.contains(lease) {
                    left.retain(|waiting| waiting != lease);
                    shards_us = *at_us;
                }
            }
            _ => {}
        }
        let is_known = end == QueenEnd::Killed || last_us.is_some();
        next.filter(|_| left.is_empty() && is_known)
    };
    let until_us = swarm.wait("other nodes take over all her leases and write", succeeds)?;
    let shards = had_shards.then(|| Duration::from_micros(shards_us.saturating_sub(since_us)));
    if end == QueenEnd::Leaves {
        since_us = last_us.unwrap_or(since_us);
        swarm.forget(&queen);
    }
    Ok(Round { hive, since_us, until_us, shards })
}

fn first_write(who: &str, message: &NodeMessage) -> Option<(String, u64)> {
    match message {
        NodeMessage::Wrote { lease, epoch, .. } if lease == QUEEN => Some((who.to_owned(), *epoch)),
        _ => None,
    }
}

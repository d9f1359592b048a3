//! How long nobody leads: from the moment the queen's process is killed (-9) until another's first write under the new
//! term was accepted, and until the same is true of every shard she had; and, where she leaves in good order, from her
//! last accepted write to the other's first, both when they were answered.
//!
//! Every round is a hive of three processes of its own, many at a time. The store's clock, the processes and the one who
//! kills them are on one machine, so times are compared as they are. Of the slowest rounds it is told what happened when.

mod story;

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use honeyflow_chaos::hive::{Backend, Place, Profile, Reach, Said, Setting, Swarm};
use honeyflow_hive::contract::QUEEN;
use honeyflow_runtime::{Clock, time::BootClock};

use crate::{
    Result,
    figure::{Better, Measured, Reporter},
};

#[derive(clap::Args)]
pub struct Options {
    /// Hives whose queen ends, for each figure
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..10_000))]
    rounds: u32,
    /// Hives at a time; a hive is three processes. Else 16, and two per processor where milliseconds count
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..200))]
    hives: Option<u32>,
    /// On this one only: sqlite, postgres, mysql, redis
    #[arg(long)]
    backend: Option<Backend>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Killed,
    Leaves,
}

/// Divided among three; of those she has, the last is waited for.
const SHARDS: u32 = 6;
const LATE_AT_LEAST: Duration = Duration::from_millis(1);
const SLOWEST_TOLD: usize = 3;

impl End {
    /// Between two writes. What is asked of a crash begins with the kill; of a gap its beginning is known as closely as
    /// she writes, and all hives together must not be what keeps the store busy.
    fn pace_ms(self) -> u64 {
        match self {
            End::Killed => 500,
            End::Leaves => 10,
        }
    }

    /// After a kill they wait for a lease to end. A hand-over takes as long as three processes and the store need to run:
    /// with more of them than processors it is the queue for those that is measured.
    fn hives(self) -> u32 {
        let processors = std::thread::available_parallelism().map_or(2, |count| count.get() as u32);
        match self {
            End::Killed => 16,
            End::Leaves => (processors * 2).min(16),
        }
    }

    fn reach(self) -> Reach {
        let shards = if self == End::Killed { SHARDS } else { 0 };
        // Who leaves in good order keeps nobody waiting with what it must not write any more.
        Reach { shards, no_duty: true, polite: true, ..Reach::default() }
    }
}

/// When she ended and when the other wrote, on the machine's clock.
struct Round {
    hive: String,
    since_us: u64,
    until_us: u64,
    /// Until others wrote under all of her shards.
    shards: Option<Duration>,
}

impl Round {
    fn wait(&self) -> Duration {
        Duration::from_micros(self.until_us.saturating_sub(self.since_us)).max(LATE_AT_LEAST)
    }

    /// Until others had all of it.
    fn whole(&self) -> Duration {
        self.shards.map_or(self.wait(), |shards| shards.max(self.wait()))
    }
}

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    let backends = options.backend.map_or_else(|| Backend::ALL.to_vec(), |backend| vec![backend]);
    for backend in backends {
        let mut made = None;
        for (what, profile, end) in [
            ("", Profile::Default, End::Killed),
            ("-fast", Profile::Fast, End::Killed),
            ("-graceful", Profile::Default, End::Leaves),
        ] {
            let figures =
                ["p50", "p99", "shards-p50", "shards-p99"].map(|part| format!("{}{what}-{part}", backend.name()));
            if !figures.iter().any(|figure| reporter.wants(figure)) {
                continue;
            }
            if made.is_none() {
                made = Place::prepare(backend)
                    .map_err(|error| eprintln!("  {} is left out: {error}", backend.name()))
                    .ok();
            }
            let Some((place, _)) = &made else { break };
            let mut rounds = rounds(options, place, profile, end)?;
            rounds.sort_by_key(Round::whole);
            let mut waits: Vec<Duration> = rounds.iter().map(Round::wait).collect();
            waits.sort_unstable();
            let mut shards: Vec<Duration> = rounds.iter().filter_map(|round| round.shards).collect();
            shards.sort_unstable();
            for round in rounds.iter().rev().take(SLOWEST_TOLD) {
                eprintln!("  {}{what}: {}", backend.name(), story::of(place, round));
            }
            let values = [(&waits, 50), (&waits, 99), (&shards, 50), (&shards, 99)];
            for (figure, (waits, part)) in figures.into_iter().zip(values) {
                if reporter.wants(&figure) && !waits.is_empty() {
                    let figure = Box::leak(figure.into_boxed_str());
                    let (unit, better, ours) = ("s", Better::Lower, vec![part_of(waits, part)]);
                    reporter.report(&Measured { figure, unit, better, ours, peer: None });
                }
            }
        }
    }
    Ok(())
}

/// So many of a hundred take no longer.
fn part_of(sorted: &[Duration], part: usize) -> f64 {
    sorted[(sorted.len() * part).div_ceil(100).clamp(1, sorted.len()) - 1].as_secs_f64()
}

fn rounds(options: &Options, place: &Place, profile: Profile, end: End) -> Result<Vec<Round>> {
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
                    match one(place, profile, end, number) {
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

fn one(place: &Place, profile: Profile, end: End, number: u32) -> std::result::Result<Round, String> {
    let hive = format!("failover-{}-{end:?}-{number}", profile.name());
    let setting = Setting {
        program: std::env::current_exe().map_err(|error| error.to_string())?,
        place: place.clone(),
        hive: hive.clone(),
        profile,
        fenced: true,
        pace_ms: end.pace_ms(),
    };
    let mut swarm = Swarm::within(end.reach(), setting, 3)?;
    // At any point of a heartbeat, and not before everybody has seen the others.
    let settle = profile.heartbeat() * 2 + profile.heartbeat() * (number % 20) / 20;
    swarm.wait_for(settle, |_, _| None::<()>)?;
    let (queen, epoch) = match swarm.writer(QUEEN) {
        Some(queen) => queen,
        None => swarm.wait("there is a queen", first_write)?,
    };
    let mut left = swarm.written_by(&queen);
    left.retain(|lease| lease != QUEEN);
    let had_shards = !left.is_empty();
    let mut since_us = BootClock.now().0;
    match end {
        End::Killed => swarm.kill(&queen)?,
        End::Leaves => swarm.command(&queen, "leave")?,
    }
    let (mut next, mut shards_us, mut last_us) = (None, since_us, None);
    let succeeds = |who: &str, said: &Said| {
        match said {
            Said::Tried { lease, accepted_us, .. } if who == queen && lease == QUEEN => last_us = Some(*accepted_us),
            Said::Wrote { lease, epoch: written, at_us } if who != queen => {
                if lease == QUEEN && *written > epoch {
                    next = next.or(Some(*at_us));
                } else if left.contains(lease) {
                    left.retain(|waiting| waiting != lease);
                    shards_us = *at_us;
                }
            }
            _ => {}
        }
        let known = end == End::Killed || last_us.is_some();
        next.filter(|_| left.is_empty() && known)
    };
    let until_us = swarm.wait("others have what she had, and write", succeeds)?;
    let shards = had_shards.then(|| Duration::from_micros(shards_us.saturating_sub(since_us)));
    if end == End::Leaves {
        since_us = last_us.unwrap_or(since_us);
        swarm.forget(&queen);
    }
    Ok(Round { hive, since_us, until_us, shards })
}

fn first_write(who: &str, said: &Said) -> Option<(String, u64)> {
    match said {
        Said::Wrote { lease, epoch, .. } if lease == QUEEN => Some((who.to_owned(), *epoch)),
        _ => None,
    }
}

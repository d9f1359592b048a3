//! How long nobody leads: from the moment the queen's process is killed (-9) until another's first write under the new
//! term was accepted; and, where she leaves in good order, from her last accepted write to the other's first.
//!
//! Every round is a hive of three processes of its own, many at a time. The store's clock, the processes and the one who
//! kills them are on one machine, so times are compared as they are.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use honeyflow_chaos::hive::{Backend, Place, Profile, Said, Setting, Swarm};
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
    /// Hives at a time; a hive is three processes
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..200))]
    hives: u32,
    /// On this one only: sqlite, postgres, mysql, redis
    #[arg(long)]
    backend: Option<Backend>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Killed,
    Leaves,
}

/// Often enough to see a gap of a tenth of a second.
const PACE_MS: u64 = 5;
const LATE_AT_LEAST: Duration = Duration::from_millis(1);

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    let backends = options.backend.map_or_else(|| Backend::ALL.to_vec(), |backend| vec![backend]);
    for backend in backends {
        let mut made = None;
        for (what, profile, end) in [
            ("", Profile::Default, End::Killed),
            ("-fast", Profile::Fast, End::Killed),
            ("-graceful", Profile::Default, End::Leaves),
        ] {
            let [p50, p99] = ["p50", "p99"].map(|part| format!("{}{what}-{part}", backend.name()));
            if !reporter.wants(&p50) && !reporter.wants(&p99) {
                continue;
            }
            if made.is_none() {
                made = Place::prepare(backend)
                    .map_err(|error| eprintln!("  {} is left out: {error}", backend.name()))
                    .ok();
            }
            let Some((place, _)) = &made else { break };
            let mut waits = rounds(options, place, profile, end)?;
            waits.sort_unstable();
            let at = |part: usize| waits[(waits.len() * part).div_ceil(100).clamp(1, waits.len()) - 1].as_secs_f64();
            eprintln!("  {}{what}: {} rounds, worst {:.3} s", backend.name(), waits.len(), at(100));
            for (figure, value) in [(p50, at(50)), (p99, at(99))] {
                if reporter.wants(&figure) {
                    let figure = Box::leak(figure.into_boxed_str());
                    reporter.report(&Measured {
                        figure,
                        unit: "s",
                        better: Better::Lower,
                        ours: vec![value],
                        peer: None,
                    });
                }
            }
        }
    }
    Ok(())
}

fn rounds(options: &Options, place: &Place, profile: Profile, end: End) -> Result<Vec<Duration>> {
    let begun = AtomicU32::new(0);
    let waits = Mutex::new(Vec::new());
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..options.hives.min(options.rounds) {
            scope.spawn(|| {
                loop {
                    let round = begun.fetch_add(1, Ordering::Relaxed);
                    if round >= options.rounds {
                        return;
                    }
                    match one(place, profile, end, round) {
                        Ok(wait) => waits.lock().unwrap_or_else(PoisonError::into_inner).push(wait),
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
        None => Ok(waits.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

fn one(place: &Place, profile: Profile, end: End, round: u32) -> std::result::Result<Duration, String> {
    let setting = Setting {
        program: std::env::current_exe().map_err(|error| error.to_string())?,
        place: place.clone(),
        hive: format!("failover-{}-{end:?}-{round}", profile.name()),
        profile,
        fenced: true,
        pace_ms: PACE_MS,
    };
    let mut swarm = Swarm::start(setting, 3)?;
    // At any point of a heartbeat, and not before everybody has seen the others.
    let settle = profile.heartbeat() * 2 + profile.heartbeat() * (round % 20) / 20;
    swarm.wait_for(settle, |_, _| None::<()>)?;
    let (queen, epoch) = match swarm.writer(QUEEN) {
        Some(queen) => queen,
        None => swarm.wait("there is a queen", first_write)?,
    };
    let ended_us = BootClock.now().0;
    match end {
        End::Killed => swarm.kill(&queen)?,
        End::Leaves => {
            swarm.command(&queen, "leave")?;
        }
    }
    let succeeds = |who: &str, said: &Said| match said {
        Said::Wrote { lease, epoch: next, at_us } if lease == QUEEN && *next > epoch && who != queen => {
            Some((*next, *at_us))
        }
        _ => None,
    };
    let (next, at_us) = swarm.wait("another is queen and writes", succeeds)?;
    let since_us = match end {
        End::Killed => ended_us,
        End::Leaves => last_write(&swarm, next)?,
    };
    let wait = Duration::from_micros(at_us.saturating_sub(since_us));
    if end == End::Leaves {
        swarm.forget(&queen);
    }
    Ok(wait.max(LATE_AT_LEAST))
}

fn first_write(who: &str, said: &Said) -> Option<(String, u64)> {
    match said {
        Said::Wrote { lease, epoch, .. } if lease == QUEEN => Some((who.to_owned(), *epoch)),
        _ => None,
    }
}

/// Of whoever led before this epoch.
fn last_write(swarm: &Swarm, before: u64) -> std::result::Result<u64, String> {
    let entries = swarm.setting.place.ledger(&swarm.setting.hive)?.read()?;
    let last = entries.iter().rfind(|entry| entry.lease == QUEEN && entry.epoch < before);
    last.map(|entry| entry.at_us).ok_or_else(|| "the log has no earlier write".to_owned())
}

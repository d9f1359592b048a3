//! `hive`: leaders that are paused beyond their lease, killed, or stopped in the middle of a transaction, while others
//! take over; then everything that a store has accepted is read by somebody who knows nothing of leases.
//!
//! A hive is three processes and a log in the same store, to which whoever leads writes under its fence. A paused leader
//! goes on writing under the fence it had when it wakes: what is tested is the store, not the leader's good manners. With
//! the fence taken out of the statements the same campaign must show stale writes, or it has no teeth.

pub mod bee;
mod check;
mod ledger;
pub mod place;
mod round;
mod swarm;

use std::{
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use serde::Serialize;

pub use check::Verdict;
pub use place::{Backend, Place};
pub use round::{Kind, Tally};
pub use swarm::{Profile, Said, Setting, Swarm};

/// The lease that is fought for, beside the queen's.
pub const LEASE: &str = "duty/write";

pub struct Options {
    pub backend: Backend,
    /// The program whose first argument `bee` makes it a node: this one, or the bench.
    pub program: PathBuf,
    pub rounds: u32,
    /// At once.
    pub hives: u32,
    pub fenced: bool,
    pub seed: u64,
}

#[derive(Serialize)]
pub struct Report {
    pub backend: Backend,
    pub fenced: bool,
    pub hives: u32,
    pub rounds: u32,
    #[serde(flatten)]
    pub tally: Tally,
    #[serde(flatten)]
    pub verdict: Verdict,
    pub seconds: f64,
}

impl Report {
    /// Nothing stale was accepted, though it was tried and refused; without the fence, that it was accepted.
    pub fn holds(&self) -> bool {
        let played = self.tally.rounds() == self.rounds && self.tally.stale_tried > 0;
        let verdict = &self.verdict;
        let kept = verdict.stale == 0 && verdict.shared_epochs == 0 && self.tally.stale_refused > 0;
        played && if self.fenced { kept } else { verdict.stale > 0 }
    }
}

/// Plays `rounds` rounds in `hives` hives at once, then reads what was written.
///
/// # Errors
/// What kept the campaign from being carried out at all.
pub fn run(options: &Options) -> Result<Report, String> {
    let began = Instant::now();
    let (place, _made) = Place::prepare(options.backend)?;
    let begun = AtomicU32::new(0);
    let tally = Mutex::new(Tally::default());
    let failed = Mutex::new(Vec::new());
    let hives = options.hives.clamp(1, options.rounds.max(1));
    std::thread::scope(|scope| {
        for number in 0..hives {
            let (place, begun, tally, failed) = (&place, &begun, &tally, &failed);
            scope.spawn(move || {
                let result = play(options, place, number, begun, tally);
                if let Err(error) = result {
                    // Whoever has failed ends the campaign: what is left to play would say nothing.
                    begun.store(options.rounds, Ordering::Relaxed);
                    failed.lock().unwrap_or_else(PoisonError::into_inner).push(format!("hive {number}: {error}"));
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = failed.into_iter().next() {
        return Err(error);
    }
    let mut verdict = Verdict::default();
    for number in 0..hives {
        let name = hive_name(number);
        verdict.add(&check::judge(&place.ledger(&name)?.read()?));
    }
    let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = began.elapsed().as_secs_f64();
    Ok(Report {
        backend: options.backend,
        fenced: options.fenced,
        hives,
        rounds: options.rounds,
        tally,
        verdict,
        seconds,
    })
}

fn hive_name(number: u32) -> String {
    format!("chaos-{number}")
}

/// One hive, as long as there are rounds left to play.
fn play(options: &Options, place: &Place, number: u32, begun: &AtomicU32, tally: &Mutex<Tally>) -> Result<(), String> {
    let setting = Setting {
        program: options.program.clone(),
        place: place.clone(),
        hive: hive_name(number),
        profile: Profile::Fast,
        fenced: options.fenced,
        pace_ms: 20,
    };
    let mut swarm = Swarm::start(setting, 3)?;
    let mut dice = honeyflow::demo::dice::Dice::new(options.seed.wrapping_mul(1000) + u64::from(number));
    loop {
        let round = begun.fetch_add(1, Ordering::Relaxed);
        if round >= options.rounds {
            return Ok(());
        }
        let kind = Kind::of_round(round);
        let came_to = swarm.play(kind, &mut dice).map_err(|error| format!("round {round}, {kind:?}: {error}"))?;
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.add(kind, &came_to);
        let done = tally.rounds();
        if done.is_multiple_of((options.rounds / 20).max(1)) {
            eprintln!("{done} of {} rounds; {} stale writes refused", options.rounds, tally.stale_refused);
        }
    }
}

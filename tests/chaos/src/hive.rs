//! `hive`: leaders that are paused beyond their lease, stopped in the middle of a transaction, cut off from the store, told
//! the wrong time or killed, while others take over; then everything that a store has accepted is read by somebody who
//! knows nothing of leases.
//!
//! A hive is three processes and a log in the same store, to which whoever leads writes under its fence. A paused leader
//! goes on writing under the fence it had when it wakes: what is tested is the store, not the leader's good manners. With
//! the fence taken out of the statements the same campaign must show stale writes, or it has no teeth. Beside that, the
//! bees' own clocks run fast and slow, and no term may be good on its node's clock once its successor is.

pub mod bee;
mod check;
pub mod clocks;
mod ledger;
mod line;
pub mod place;
mod plan;
mod round;
mod said;
pub mod soak;
mod swarm;
mod tally;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use serde::Serialize;

pub use check::Verdict;
pub use clocks::Clocks;
pub use place::{Backend, Place};
pub use plan::Kind;
pub use said::Said;
pub use swarm::{Profile, Reach, Setting, Swarm};
pub use tally::Tally;

use line::Exchange;
use plan::Plan;

/// The lease that is fought for, beside the queen's.
pub const LEASE: &str = "duty/write";
/// Whose shards there are, if there are any.
const SOURCE: &str = "comb";

pub struct Options {
    pub backend: Backend,
    /// The program whose first argument `bee` makes it a node: this one, or the bench.
    pub program: PathBuf,
    /// Rounds in which a leader was paused and tried something stale; a tenth as many of every other kind come on top.
    pub rounds: u32,
    /// At once.
    pub hives: u32,
    pub fenced: bool,
    pub seed: u64,
    /// None: no wall clock is touched.
    pub clocks: Option<Arc<Clocks>>,
}

#[derive(Serialize)]
pub struct Report {
    pub backend: Backend,
    pub fenced: bool,
    pub hives: u32,
    /// Of each kind, that should have been played.
    #[serde(skip)]
    pub wanted: BTreeMap<Kind, u32>,
    #[serde(flatten)]
    pub tally: Tally,
    #[serde(flatten)]
    pub verdict: Verdict,
    pub seconds: f64,
}

impl Report {
    /// What is missing or wrong. Nothing: in every round that counts something stale was tried and refused, and nothing of
    /// it was accepted; without the fence, that it was.
    pub fn faults(&self) -> Vec<String> {
        self.tally.faults(&self.wanted, self.backend, self.fenced, &self.verdict)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plays all rounds in `hives` hives at once, then reads what was written.
///
/// # Errors
/// What kept the campaign from being carried out at all.
pub fn run(options: &Options) -> Result<Report, String> {
    let began = Instant::now();
    let (place, _made) = Place::prepare(options.backend)?;
    let reach =
        Reach { exchange: Exchange::before(&place)?, clocks: options.clocks.clone(), drifts: true, ..Reach::default() };
    let plan = Plan::new(options.rounds, Kind::others(options.backend, options.clocks.is_some()));
    let (wanted, hives) = (plan.wanted(), options.hives.clamp(1, plan.rounds().max(1)));
    let state = Mutex::new((plan, Tally::default()));
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for number in 0..hives {
            let (place, reach, state, failed) = (&place, &reach, &state, &failed);
            scope.spawn(move || {
                if let Err(error) = play(options, place, reach.clone(), number, state) {
                    locked(state).0.stop();
                    locked(failed).get_or_insert(format!("hive {number}: {error}"));
                }
            });
        }
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let mut verdict = Verdict::default();
    for number in 0..hives {
        let name = hive_name(number);
        verdict.add(&check::judge(&place.ledger(&name)?.read()?));
    }
    let (_, tally) = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = began.elapsed().as_secs_f64();
    Ok(Report { backend: options.backend, fenced: options.fenced, hives, wanted, tally, verdict, seconds })
}

fn hive_name(number: u32) -> String {
    format!("chaos-{number}")
}

/// One hive, as long as there are rounds left to play.
fn play(
    options: &Options,
    place: &Place,
    reach: Reach,
    number: u32,
    state: &Mutex<(Plan, Tally)>,
) -> Result<(), String> {
    let setting = Setting {
        program: options.program.clone(),
        place: place.clone(),
        hive: hive_name(number),
        profile: Profile::Fast,
        fenced: options.fenced,
        pace_ms: 20,
    };
    let mut swarm = Swarm::within(reach, setting, 3)?;
    let mut dice = honeyflow::demo::dice::Dice::new(options.seed.wrapping_mul(1000) + u64::from(number));
    loop {
        let Some(kind) = locked(state).0.next() else { break };
        let came_to = swarm.play(kind, &mut dice).map_err(|error| format!("{kind:?}: {error}"))?;
        let (plan, tally) = &mut *locked(state);
        if !tally.add(kind, options.backend, options.fenced, came_to) {
            plan.play_again(kind);
        }
        let (done, all) = (tally.rounds(), plan.rounds());
        if done.is_multiple_of((all / 20).max(1)) {
            eprintln!("{done} of {all} rounds; {} stale writes refused", tally.stale_refused());
        }
    }
    locked(state).1.two_terms_at_once += swarm.terms.at_once();
    Ok(())
}

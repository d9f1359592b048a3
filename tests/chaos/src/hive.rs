//! The campaign `hive`: leaders are paused beyond their lease, stopped in the middle of a transaction, cut off from the
//! store, given the wrong time or killed, while other nodes take over. Then a checker that knows nothing of leases
//! reads all that the store has accepted.
//!
//! A hive is three processes and a log in the same store; the leader writes to the log under its fence. A paused leader
//! goes on writing under its old fence when it wakes: the test is about the store, not about the leader's good manners.
//! With the fence taken out of the statements, the same campaign must show stale writes, or it cannot find any.
//! Besides, the nodes' own clocks run fast and slow, and no term may be good on its node's clock once its successor's
//! term is.

mod check;
pub mod clocks;
mod ledger;
mod node_message;
pub mod node_process;
mod node_proxy;
mod plan;
mod round;
pub mod soak;
pub mod store_location;
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
pub use node_message::NodeMessage;
pub use plan::Kind;
pub use store_location::{Backend, StoreLocation};
pub use swarm::{FaultOptions, Profile, Swarm, SwarmOptions};
pub use tally::Tally;

use node_proxy::ProxyFactory;
use plan::Plan;

/// The lease that the nodes compete for, beside the queen's.
pub const LEASE: &str = "duty/write";
/// The source whose shards the nodes divide, if a campaign has shards.
const SOURCE: &str = "comb";

pub struct Options {
    pub backend: Backend,
    /// The program that becomes a node when its first argument is `bee`: this one, or the bench.
    pub program: PathBuf,
    /// Rounds in which a leader was paused and tried a stale write; a tenth as many of every other kind are added.
    pub rounds: u32,
    /// Hives that run at the same time.
    pub hives: u32,
    pub fenced: bool,
    pub seed: u64,
    /// None: the campaign changes no wall clock.
    pub clocks: Option<Arc<Clocks>>,
}

#[derive(Serialize)]
pub struct Report {
    pub backend: Backend,
    pub fenced: bool,
    pub hives: u32,
    /// How many rounds of each kind should have been played.
    #[serde(skip)]
    pub wanted: BTreeMap<Kind, u32>,
    #[serde(flatten)]
    pub tally: Tally,
    #[serde(flatten)]
    pub verdict: Verdict,
    pub seconds: f64,
}

impl Report {
    /// Returns what is missing or wrong. An empty list means: in every round that counts, a stale write was tried and
    /// refused, and none was accepted; without the fence, stale writes were accepted.
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
/// Returns what kept the campaign from running.
pub fn run(options: &Options) -> Result<Report, String> {
    let began = Instant::now();
    let (location, _guard) = StoreLocation::prepare(options.backend)?;
    let faults = FaultOptions {
        proxies: ProxyFactory::for_server(&location)?,
        clocks: options.clocks.clone(),
        drifts: true,
        ..FaultOptions::default()
    };
    let plan = Plan::new(options.rounds, Kind::others(options.backend, options.clocks.is_some()));
    let (wanted, hives) = (plan.wanted(), options.hives.clamp(1, plan.rounds().max(1)));
    let state = Mutex::new((plan, Tally::default()));
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for number in 0..hives {
            let (location, faults, state, failed) = (&location, &faults, &state, &failed);
            scope.spawn(move || {
                if let Err(error) = play(options, location, faults.clone(), number, state) {
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
        verdict.add(&check::judge(&location.ledger(&name)?.read()?));
    }
    let (_, tally) = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = began.elapsed().as_secs_f64();
    Ok(Report { backend: options.backend, fenced: options.fenced, hives, wanted, tally, verdict, seconds })
}

fn hive_name(number: u32) -> String {
    format!("chaos-{number}")
}

/// Plays rounds in one hive until the plan has none left.
fn play(
    options: &Options,
    location: &StoreLocation,
    faults: FaultOptions,
    number: u32,
    state: &Mutex<(Plan, Tally)>,
) -> Result<(), String> {
    let swarm_options = SwarmOptions {
        program: options.program.clone(),
        location: location.clone(),
        hive: hive_name(number),
        profile: Profile::Fast,
        fenced: options.fenced,
        pace_ms: 20,
    };
    let mut swarm = Swarm::start_with_faults(faults, swarm_options, 3)?;
    let mut dice = honeyflow::demo::dice::Dice::new(options.seed.wrapping_mul(1000) + u64::from(number));
    loop {
        let Some(kind) = locked(state).0.next() else { break };
        let result = swarm.play(kind, &mut dice).map_err(|error| format!("{kind:?}: {error}"))?;
        let (plan, tally) = &mut *locked(state);
        if !tally.add(kind, options.backend, options.fenced, result) {
            plan.play_again(kind);
        }
        let (done, all) = (tally.rounds(), plan.rounds());
        if done.is_multiple_of((all / 20).max(1)) {
            eprintln!("{done} of {all} rounds; {} stale writes refused", tally.stale_refused());
        }
    }
    locked(state).1.two_terms_at_once += swarm.terms.overlaps();
    Ok(())
}

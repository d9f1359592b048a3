//! The hive under a model checker: it explores every way in which a bounded number of faults can hit a small hive.
//!
//! The model uses the shipped code: three [`Member`](honeyflow_hive::Member)s talk to the rows of the memory backend,
//! which are the contract as a pure function. The model starts with a hive at rest (a queen and two shards are held,
//! clocks differ by up to five per cent) and continues event by event. At each event the checker may let it happen or
//! inject a [`Fault`] instead. Between faults everything is deterministic, so the explored states are exactly the
//! positions and kinds of faults.
//!
//! [`Depth`] bounds the exploration: how many faults, how late the first may come (more than one heartbeat, as a hive
//! at rest repeats itself) and how late each next one. After the last fault the hive runs until it must have recovered.

mod fault;
mod hive;
mod judge;
mod node;

use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, Property};

pub use fault::Fault;
pub use hive::Hive;

/// The bounds of an exploration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Depth {
    pub faults: u32,
    pub first_within: Duration,
    pub next_within: Duration,
}

/// The state in which an exploration begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beginning {
    /// The drift of each node's clock, per mille.
    pub drifts: [i64; 3],
    /// Whether the queen has just died; otherwise the hive is at rest.
    pub queen_died: bool,
    pub depth: Depth,
}

/// The explorations that run as tests: two faults anywhere in a heartbeat of a hive at rest and the 2 s after it, and
/// two faults close to each other during a succession. Clocks at rest: exact, the queen's slow, the queen's fast.
/// Clocks in a succession: exact, and those of the two other nodes apart, so that one reads the lease while the other
/// takes it.
pub const TESTED: [Beginning; 5] = {
    const fn depth(first_ms: u64, next_ms: u64) -> Depth {
        Depth { faults: 2, first_within: Duration::from_millis(first_ms), next_within: Duration::from_millis(next_ms) }
    }
    let rest = depth(550, 2_000);
    [
        Beginning { drifts: [0, 0, 0], queen_died: false, depth: rest },
        Beginning { drifts: [-49, 49, 0], queen_died: false, depth: rest },
        Beginning { drifts: [49, -49, 0], queen_died: false, depth: rest },
        Beginning { drifts: [0, 0, 0], queen_died: true, depth: depth(1_700, 700) },
        Beginning { drifts: [0, 49, -49], queen_died: true, depth: depth(1_700, 700) },
    ]
};

/// A choice of the checker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The next event happens.
    Goes,
    Fails(Fault),
    /// No further fault comes.
    Rests,
}

pub struct Futures {
    pub beginnings: Vec<Beginning>,
    /// The planted bug that is switched on in every thread of the checker.
    pub bug: Option<&'static str>,
}

/// Plants the bug in this thread.
#[cfg(feature = "planted")]
fn plant(bug: Option<&'static str>) {
    honeyflow_hive::planted::plant(bug);
}

#[cfg(not(feature = "planted"))]
fn plant(_: Option<&'static str>) {}

impl Model for Futures {
    type State = Hive;
    type Action = Choice;

    fn init_states(&self) -> Vec<Hive> {
        plant(None);
        self.beginnings.iter().map(Hive::begin).collect()
    }

    fn actions(&self, hive: &Hive, choices: &mut Vec<Choice>) {
        if hive.is_over() {
            return;
        }
        if hive.may_fail() {
            choices.push(Choice::Goes);
            choices.extend(hive.faults().into_iter().map(Choice::Fails));
        } else {
            choices.push(Choice::Rests);
        }
    }

    fn next_state(&self, hive: &Hive, choice: Choice) -> Option<Hive> {
        plant(self.bug);
        let mut next = hive.clone();
        match choice {
            Choice::Goes => next.step(),
            Choice::Fails(fault) => next.inject(fault),
            Choice::Rests => next.recover(),
        }
        next.seal();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Futures>> {
        vec![
            Property::always("HI-1", |_, hive: &Hive| hive.keeps("HI-1")),
            Property::always("HI-2", |_, hive: &Hive| hive.keeps("HI-2")),
            Property::always("HI-3", |_, hive: &Hive| hive.keeps("HI-3")),
            Property::always("HI-4", |_, hive: &Hive| hive.keeps("HI-4")),
            Property::always("HI-5", |_, hive: &Hive| hive.keeps("HI-5")),
            Property::always("HI-10", |_, hive: &Hive| hive.keeps("HI-10")),
            Property::sometimes("a node is removed", |_, hive: &Hive| hive.seen().buried),
            Property::sometimes("a lease is taken", |_, hive: &Hive| hive.seen().taken),
            Property::sometimes("a lease is handed over", |_, hive: &Hive| hive.seen().handed_over),
            Property::sometimes("a stale write is refused", |_, hive: &Hive| hive.seen().refused),
            Property::sometimes("the store is another one", |_, hive: &Hive| hive.seen().lineage),
        ]
    }
}

/// The result of an exploration.
#[derive(Debug)]
pub struct Exploration {
    pub states: usize,
    pub deepest: usize,
    /// The rules that were broken, each with the shortest known path to the breach.
    pub broken: Vec<(&'static str, Vec<Choice>, String)>,
    /// The properties that should have occurred at least once and never did.
    pub missed: Vec<&'static str>,
}

impl Exploration {
    pub fn holds(&self) -> bool {
        self.broken.is_empty() && self.missed.is_empty()
    }
}

/// Explores all futures, or stops when a rule is broken.
pub fn explore(futures: Futures) -> Exploration {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let properties = futures.properties();
    let checker = futures.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    let mut found = checker.discoveries();
    let mut explored = Exploration {
        states: checker.unique_state_count(),
        deepest: checker.max_depth(),
        broken: vec![],
        missed: vec![],
    };
    for property in properties {
        let path = found.remove(property.name);
        match (property.expectation, path) {
            (stateright::Expectation::Sometimes, None) => explored.missed.push(property.name),
            (stateright::Expectation::Always, Some(path)) => {
                let breach = path.last_state().breach(property.name);
                explored.broken.push((property.name, path.into_actions(), breach));
            }
            _ => {}
        }
    }
    explored
}

//! The hive under a model checker: every way in which so many faults can fall into the life of a small hive.
//!
//! Nothing is rewritten: three shipped [`Member`](honeyflow_hive::Member)s talk to the memory backend's rows, which are the
//! contract as a pure function. A hive that has come to rest (a queen and two shards held, clocks up to five per cent
//! apart) goes on event by event; at each event the checker may let it happen or let a [`Fault`] happen instead. Between
//! faults everything is determined, so the states that are explored are exactly the places and kinds of faults.
//!
//! How far is looked is said by [`Depth`]: how many faults, how long the first may be awaited (more than one heartbeat: a
//! hive at rest repeats itself) and how long each next one. After the last fault the hive runs on until it must have healed.

mod fault;
mod hive;
mod judge;
mod node;

use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, Property};

pub use fault::Fault;
pub use hive::Hive;

/// How far is looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Depth {
    pub faults: u32,
    pub first_within: Duration,
    pub next_within: Duration,
}

/// Where futures begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beginning {
    /// Of clocks, per mille.
    pub drifts: [i64; 3],
    /// She has just died; else the hive is at rest.
    pub queen_died: bool,
    pub depth: Depth,
}

/// Two faults wherever they fall into a heartbeat of a hive at rest and the 2 s after it, and two that fall close to each
/// other into a succession. Clocks: exact, the queen's slow, the queen's fast; in a succession exact, and those of her
/// successors apart, so that one of them asks while the other takes.
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

/// What the checker chooses from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The next event happens.
    Goes,
    Fails(Fault),
    /// No fault comes any more.
    Rests,
}

pub struct Futures {
    pub beginnings: Vec<Beginning>,
    /// Switched on in every thread of the checker.
    pub bug: Option<&'static str>,
}

/// In this thread.
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
            Choice::Goes => next.goes(),
            Choice::Fails(fault) => next.fails(fault),
            Choice::Rests => next.rests(),
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
            Property::sometimes("somebody is buried", |_, hive: &Hive| hive.seen().buried),
            Property::sometimes("a lease is taken", |_, hive: &Hive| hive.seen().taken),
            Property::sometimes("a lease is handed over", |_, hive: &Hive| hive.seen().handed_over),
            Property::sometimes("a stale write is refused", |_, hive: &Hive| hive.seen().refused),
            Property::sometimes("the store is another one", |_, hive: &Hive| hive.seen().lineage),
        ]
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Explored {
    pub states: usize,
    pub deepest: usize,
    /// The rules that were broken, each with the shortest known way there.
    pub broken: Vec<(&'static str, Vec<Choice>, String)>,
    /// What should have happened at least once, and never did.
    pub missed: Vec<&'static str>,
}

impl Explored {
    pub fn holds(&self) -> bool {
        self.broken.is_empty() && self.missed.is_empty()
    }
}

/// Explores everything, or until a rule is broken.
pub fn explore(futures: Futures) -> Explored {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let properties = futures.properties();
    let checker = futures.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    let mut found = checker.discoveries();
    let mut explored =
        Explored { states: checker.unique_state_count(), deepest: checker.max_depth(), broken: vec![], missed: vec![] };
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

//! The world: the whole state while a seed is played. One queue of future events drives it ([`queue`]). Submodules
//! handle the events of the databases, the nodes, their workers, and the faults.

mod change;
mod database;
mod faults;
mod nodes;
mod permits;
mod queue;
mod watch;
mod workers;

use std::collections::BTreeMap;

use honeyflow_engine::core::{Effect, fact::Fact};
use honeyflow_event::{Key, Stamp};
use honeyflow_hive::member;
use honeyflow_invariant::Breach;
use honeyflow_workflow::StepId;

use self::queue::{Happening, Queue};
use crate::{
    check, fault,
    history::History,
    model_sink::ModelSink,
    model_store::ModelStore,
    node::{Incarnation, LifeState},
    options::{EXTENSION, MILLI, Options, SECOND},
    random::Random,
    shapes::{self, Shapes},
    steps::LoadedRow,
    workload::Application,
};

/// The outcome of a seed.
#[derive(Debug)]
pub struct Outcome {
    pub options: Options,
    pub breaches: Vec<Breach>,
    /// The reasons why this seed proves nothing.
    pub void: Vec<String>,
    pub trace: u64,
    pub stats: Stats,
    /// The nodes that did not come to rest, as text.
    pub nodes: Vec<String>,
}

impl Outcome {
    pub fn is_good(&self) -> bool {
        self.breaches.is_empty() && self.void.is_empty()
    }
}

#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub simulated_us: u64,
    pub happenings: u64,
    pub changes: u64,
    pub runs: u64,
    pub faults: u64,
    pub planned: u64,
    pub stale_refused: u64,
    pub stale_answers: u64,
    pub fenced: u64,
    pub late_commits: u64,
    pub parked: u64,
    pub cancelled: u64,
    pub overdue: u64,
    pub fatals: u64,
    pub pages: u64,
    pub quiet_after_ms: Option<u64>,
}

pub fn run(seed: u64) -> Outcome {
    run_with(&Options::draw(seed))
}

/// Plays a seed with some of its options changed.
pub fn run_with(options: &Options) -> Outcome {
    let played = std::panic::catch_unwind(|| run_watching(options, None));
    played.unwrap_or_else(|panic| {
        // A core that panics is as wrong as one that answers wrongly.
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        let (options, breaches) = (options.clone(), vec![Breach::new("panic", text)]);
        Outcome { options, breaches, void: Vec::new(), trace: 0, stats: Stats::default(), nodes: Vec::new() }
    })
}

/// Plays a seed and prints on stderr what happens to one key.
pub fn run_watching(options: &Options, key: Option<String>) -> Outcome {
    let mut world = World::new(options.clone());
    world.watched = key;
    world.play();
    check::judge(world)
}

pub struct World {
    pub options: Options,
    pub shapes: Shapes,
    pub stores: Vec<ModelStore>,
    pub sinks: Vec<ModelSink>,
    pub application: Application,
    pub history: History,
    pub loads: BTreeMap<(Key, Stamp), LoadedRow>,
    pub incarnations: Vec<Incarnation>,
    pub stats: Stats,
    queue: Queue,
    now: u64,
    random: Random,
    trace: u64,
    healed: bool,
    watched: Option<String>,
    /// Until when each database is down, by database.
    down_until: Vec<u64>,
    migrating: bool,
    /// The step that answers `Fatal`, and the number of such answers when that began.
    broken: Option<((usize, StepId), u64)>,
    effects: Vec<Effect>,
    member_effects: Vec<member::Effect>,
    facts: Vec<Fact>,
    bucket: permits::Bucket,
}

impl World {
    pub fn new(options: Options) -> World {
        let shapes = shapes::draw(&options);
        let stores: Vec<ModelStore> =
            (0..options.stores).map(|store| ModelStore::new(if store == 0 { options.shards } else { 1 })).collect();
        let forgets_after_us = options.forgets_after * SECOND;
        World {
            sinks: shapes.sinks.iter().map(|name| ModelSink::new(name.clone(), forgets_after_us)).collect(),
            application: Application::new(&options),
            history: History::default(),
            loads: BTreeMap::new(),
            incarnations: Vec::new(),
            stats: Stats::default(),
            queue: Queue::default(),
            now: 0,
            random: Random::new(options.seed ^ 0x5EED_0004),
            trace: options.seed,
            healed: false,
            watched: None,
            down_until: vec![0; stores.len()],
            stores,
            migrating: false,
            broken: None,
            effects: Vec::new(),
            member_effects: Vec::new(),
            facts: Vec::new(),
            bucket: permits::Bucket::default(),
            shapes,
            options,
        }
    }

    pub fn trace(&self) -> u64 {
        self.trace
    }

    fn play(&mut self) {
        for node in 0..self.options.nodes {
            let at = self.random.below(SECOND);
            self.after(at, Happening::Restarts { node });
        }
        self.after(0, Happening::Begins);
        for planned in fault::plan(&self.options) {
            self.stats.planned += 1;
            self.after(planned.at, Happening::Strikes(planned.fault));
        }
        let safety = self.options.safety();
        self.until(safety);
        // Wait for planned faults that have not hit yet because their victim held no lease.
        while self.stats.faults < self.stats.planned && self.now < safety + EXTENSION {
            self.until(self.now + SECOND / 4);
        }
        let healed_at = self.now;
        self.heal();
        let mut look_at = self.now;
        while self.now < healed_at + self.options.liveness() {
            look_at += SECOND / 4;
            self.until(look_at);
            if self.is_quiet() {
                self.stats.quiet_after_ms = Some((self.now - healed_at) / MILLI);
                break;
            }
        }
        self.look_everywhere();
        self.stats.simulated_us = self.now;
    }

    /// Ends all faults; every lost node comes back.
    fn heal(&mut self) {
        self.healed = true;
        self.down_until.fill(0);
        self.sinks.iter_mut().for_each(|sink| sink.down_until = 0);
        self.migrating = false;
        self.broken = None;
        for store in &mut self.stores {
            store.schema_version += 1;
            store.paused.clear();
        }
        for incarnation in &mut self.incarnations {
            incarnation.cut_off_until = 0;
            incarnation.workers.values_mut().for_each(|worker| worker.hangs = false);
        }
        for node in 0..self.options.nodes {
            let running =
                |incarnation: &&Incarnation| incarnation.node == node && incarnation.life == LifeState::Running;
            if !self.incarnations.iter().any(|incarnation| running(&incarnation)) {
                self.after(MILLI, Happening::Restarts { node });
            }
        }
    }

    fn is_quiet(&self) -> bool {
        self.application.is_idle()
            && self.stores.iter().all(|store| store.outbox.is_empty())
            && self.incarnations.iter().all(|one| !one.is_alive() || one.core.in_memory() == (0, 0))
    }
}

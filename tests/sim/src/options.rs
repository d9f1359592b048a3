//! Everything that a seed decides before the first event: sizes, settings, and which faults happen. Printed on failure.

use std::time::Duration;

use honeyflow_engine::core::plan::Limits;
use honeyflow_runtime::Backoff;

use crate::random::Random;

pub const SECOND: u64 = 1_000_000;
pub const MILLI: u64 = 1_000;
/// How much longer the safety phase may last if a planned fault has not found its victim yet.
pub const EXTENSION: u64 = 40 * SECOND;
/// How long a healed cluster may take to come to rest.
const LIVENESS: u64 = 60 * SECOND;
/// How much longer it may take if a late fatal answer stopped a workflow, which is tried again after a minute.
const STOPPED: u64 = 75 * SECOND;

#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    /// Which of the two generators draws the work; they share only the form of a transaction.
    pub generator: u64,
    /// The length of the safety phase, in which anything may fail.
    pub seconds: u64,
    /// The number of changes after which the application stops.
    pub changes_max: u64,
    pub nodes: usize,
    /// The number of databases. The second one has its own outbox, leases and event ids.
    pub stores: u16,
    /// The number of shards of the first database.
    pub shards: u16,
    pub ttl_ms: u64,
    /// The drift of the clocks, per mille and by node.
    pub drift: Vec<i64>,
    pub keys: u64,
    pub change_every_us: u64,
    pub long_transactions: u64,
    pub poison: u64,
    /// Per mille of changes that hit one key.
    pub hot: u64,
    /// Per mille of events with a drawn priority.
    pub mixed: u64,
    /// The number of authors. A change of an author leads to all of its books; with 0 no row leads to another one.
    pub authors: u64,
    /// The number of books above which a change of an author is worked off page by page.
    pub containers_max: u64,
    /// After how many seconds sinks forget a delete; 0: never.
    pub forgets_after: u64,
    /// Which graph the tags have; see `shapes`.
    pub graph: u64,
    pub graph_steps: u64,
    /// How long a run over the drawn graph may take, in milliseconds; 0: without a limit.
    pub deadline_ms: u64,
    /// The number of versions of each workflow. With two, nodes differ in which one is the newest.
    pub versions: u64,
    /// Whether books have a second workflow.
    pub second: u64,
    /// Whether books have a workflow that begins for inserted books alone.
    pub filtered: u64,
    pub store: StoreFaults,
    pub steps: StepFaults,
    pub plan: FaultPlan,
    pub workers: u32,
    pub room: u32,
    pub batch_max: u32,
    pub limits: Limits,
    /// Permits per second for some steps, for all nodes together; 0: no limit.
    pub permits: u64,
}

/// Faults of the store, per mille of calls.
#[derive(Clone, Debug, Default)]
pub struct StoreFaults {
    pub latency_us: u64,
    pub refused: u64,
    pub unknown: u64,
    pub slow: u64,
}

/// Faults of steps, per mille of batches, or of items where the name says so.
#[derive(Clone, Debug, Default)]
pub struct StepFaults {
    pub latency_us: u64,
    pub retry_items: u64,
    pub retry_after: u64,
    pub unknown: u64,
    pub late: u64,
    pub twice: u64,
    pub partial: u64,
    pub slow: u64,
}

/// How many faults of each kind happen during the safety phase.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    pub crashes: u64,
    pub pauses: u64,
    pub doubles: u64,
    pub partitions: u64,
    pub drains: u64,
    pub worker_deaths: u64,
    pub worker_hangs: u64,
    pub store_outages: u64,
    pub sink_outages: u64,
    pub sinks_ahead: u64,
    pub migrations: u64,
    pub broken: u64,
    pub holds: u64,
    pub cancels: u64,
}

/// Access to options by name, so that a failing seed can be minimised and played again from the command line.
macro_rules! knobs {
    ($($name:literal: $($field:ident).+, $least:literal;)*) => {
        impl Options {
            /// Name, value, and the least value that makes sense.
            pub fn knobs(&self) -> Vec<(&'static str, u64, u64)> {
                vec![$(($name, u64::try_from(self.$($field).+).unwrap_or(u64::MAX), $least)),*]
            }

            /// # Errors
            /// If there is no such option, or the value does not fit.
            pub fn set(&mut self, name: &str, value: u64) -> Result<(), String> {
                match name {
                    $($name => {
                        self.$($field).+ = value.try_into().map_err(|_| format!("{name}: {value} is too large"))?;
                    })*
                    _ => return Err(format!("there is no option `{name}`")),
                }
                Ok(())
            }
        }
    };
}

knobs! {
    "crashes": plan.crashes, 0;
    "pauses": plan.pauses, 0;
    "doubles": plan.doubles, 0;
    "partitions": plan.partitions, 0;
    "drains": plan.drains, 0;
    "worker-deaths": plan.worker_deaths, 0;
    "worker-hangs": plan.worker_hangs, 0;
    "store-outages": plan.store_outages, 0;
    "sink-outages": plan.sink_outages, 0;
    "sinks-ahead": plan.sinks_ahead, 0;
    "migrations": plan.migrations, 0;
    "broken": plan.broken, 0;
    "holds": plan.holds, 0;
    "cancels": plan.cancels, 0;
    "store-refused": store.refused, 0;
    "store-unknown": store.unknown, 0;
    "store-slow": store.slow, 0;
    "step-retry": steps.retry_items, 0;
    "step-retry-after": steps.retry_after, 0;
    "step-unknown": steps.unknown, 0;
    "step-late": steps.late, 0;
    "step-twice": steps.twice, 0;
    "step-partial": steps.partial, 0;
    "step-slow": steps.slow, 0;
    "long-transactions": long_transactions, 0;
    "poison": poison, 0;
    "hot": hot, 0;
    "mixed": mixed, 0;
    "authors": authors, 0;
    "forgets-after": forgets_after, 0;
    "second": second, 0;
    "filtered": filtered, 0;
    "graph": graph, 0;
    "graph-steps": graph_steps, 3;
    "deadline": deadline_ms, 0;
    "versions": versions, 1;
    "stores": stores, 1;
    "shards": shards, 1;
    "nodes": nodes, 1;
    "workers": workers, 1;
    "seconds": seconds, 3;
    "changes": changes_max, 1;
    "keys": keys, 1;
    "permits": permits, 0;
}

impl Options {
    pub fn draw(seed: u64) -> Options {
        let mut random = Random::new(seed);
        let r = &mut random;
        let nodes = usize::try_from(r.between(1, 3)).unwrap_or(1);
        let shards = u16::try_from(r.between(1, 2)).unwrap_or(1);
        let calm = r.one_in(12);
        let some = |r: &mut Random, most: u64| if calm || r.one_in(2) { 0 } else { r.between(1, most) };
        let several = nodes > 1;
        let plan = FaultPlan {
            crashes: some(r, 3),
            pauses: if several { some(r, 3) } else { 0 },
            doubles: some(r, 2),
            partitions: some(r, 2),
            drains: some(r, 2),
            worker_deaths: some(r, 4),
            worker_hangs: some(r, 2),
            store_outages: some(r, 2),
            sink_outages: some(r, 2),
            sinks_ahead: if r.one_in(3) { some(r, 3) } else { 0 },
            migrations: if r.one_in(4) { some(r, 1) } else { 0 },
            ..FaultPlan::default()
        };
        let store = StoreFaults {
            latency_us: *r.pick(&[200, 2_000, 10_000]),
            refused: some(r, 30),
            unknown: some(r, 50),
            slow: some(r, 10),
        };
        let steps = StepFaults {
            latency_us: *r.pick(&[500, 5_000, 30_000]),
            retry_items: some(r, 60),
            retry_after: some(r, 20),
            unknown: some(r, 40),
            late: some(r, 10),
            twice: some(r, 50),
            partial: some(r, 30),
            slow: some(r, 20),
        };
        let batch_max = u32::try_from(*r.pick(&[1, 2, 5, 50, 500])).unwrap_or(1);
        let mut wide = Random::new(seed ^ 0x5EED_0005);
        let w = &mut wide;
        let plan = FaultPlan {
            broken: if w.one_in(3) { some(w, 2) } else { 0 },
            holds: if w.one_in(2) { some(w, 3) } else { 0 },
            cancels: if w.one_in(2) { some(w, 6) } else { 0 },
            ..plan
        };
        let mut later = Random::new(seed ^ 0x5EED_0006);
        let l = &mut later;
        let mut options = Options {
            seed,
            generator: w.between(1, 2),
            seconds: 40,
            changes_max: u64::MAX,
            nodes,
            stores: u16::try_from(if w.one_in(3) { 2 } else { 1 }).unwrap_or(1),
            shards,
            ttl_ms: *r.pick(&[1_500, 3_000, 6_000]),
            drift: (0..nodes).map(|_| i64::try_from(r.between(0, 100)).unwrap_or(50) - 50).collect(),
            keys: *r.pick(&[4, 20, 100]),
            change_every_us: r.between(40, 120) * MILLI,
            long_transactions: r.between(0, 60),
            poison: r.between(0, 25),
            hot: *w.pick(&[0, 0, 900]),
            mixed: *w.pick(&[200, 200, 900]),
            authors: *w.pick(&[0, 1, 3]),
            containers_max: *w.pick(&[1, 4, 100]),
            forgets_after: *w.pick(&[0, 20, 30]),
            graph: w.below(9),
            graph_steps: *w.pick(&[6, 12, 12, 50]),
            deadline_ms: *l.pick(&[0, 0, 0, 1_000, 4_000]),
            versions: l.between(1, 2),
            second: w.below(2),
            filtered: u64::from(Random::new(seed ^ 0x5EED_0142).one_in(3)),
            store,
            steps,
            plan,
            workers: u32::try_from(r.between(1, 3)).unwrap_or(1),
            room: u32::try_from(r.between(1, 4)).unwrap_or(1),
            batch_max,
            limits: limits(r),
            // Only set by its option.
            permits: 0,
        };
        // In most seeds work rises soon: nothing waits for half a minute here.
        options.limits.rises_after = Duration::from_millis(*l.pick(&[50, 500, 5_000]));
        options.settle(r)
    }

    pub fn safety(&self) -> u64 {
        self.seconds * SECOND
    }

    pub fn liveness(&self) -> u64 {
        // If changes of a key do not merge, a hot key has one run after the other.
        let in_turn = if self.limits.rows_per_key_max == 1 { LIVENESS } else { 0 };
        LIVENESS + in_turn + if self.plan.broken > 0 { STOPPED } else { 0 }
    }

    pub fn sources(&self) -> u16 {
        self.shards + self.stores - 1
    }

    /// Adjusts options that do not fit together. A pause proves something only if work is in progress, and short
    /// batches leave nothing in progress: so with pauses, changes come more often.
    fn settle(mut self, r: &mut Random) -> Options {
        if self.plan.pauses > 0 {
            self.change_every_us = self.change_every_us.min(60 * MILLI);
            self.ttl_ms = self.ttl_ms.min(3_000);
        }
        if self.limits.poll_rows_max == 1 || self.limits.runs_max == 4 {
            // A node that works on one change at a time needs more time.
            self.change_every_us = self.change_every_us.max(90 * MILLI);
            self.graph_steps = self.graph_steps.min(6);
            // One change of an author would cause many runs.
            self.authors = 0;
            self.filtered = 0;
        }
        if self.limits.settle_rows_max == 1 || self.batch_max < 5 {
            self.authors = 0;
        }
        if self.authors > 0 {
            let scarce = self.limits.runs_max <= 20 || self.limits.poll_rows_max <= 10;
            self.keys = self.keys.min(if scarce { 6 } else { 20 });
        }
        if self.batch_max < 50 || self.steps.latency_us > 5_000 {
            self.graph_steps = self.graph_steps.min(12);
        }
        if r.one_in(3) {
            self.limits.sequence_max = 64;
        }
        self
    }
}

fn limits(r: &mut Random) -> Limits {
    let millis = Duration::from_millis;
    let runs_max = usize::try_from(*r.pick(&[4, 20, 200, 20_000])).unwrap_or(20);
    Limits {
        runs_max,
        rows_max: runs_max * 3,
        rows_per_key_max: usize::try_from(*r.pick(&[1, 4, 256])).unwrap_or(4),
        poll_rows_max: u32::try_from(*r.pick(&[1, 10, 500])).unwrap_or(1),
        settle_rows_max: usize::try_from(*r.pick(&[1, 10, 2_000])).unwrap_or(10),
        poll_busy: millis(r.between(2, 30)),
        poll_quiet: millis(r.between(10, 40)),
        poll_idle: millis(r.between(60, 150)),
        store_backoff: Backoff::new(millis(20), millis(1_000)),
        retry_backoff: Backoff::new(millis(50), millis(2_000)),
        reject_waits: [millis(100), millis(200), millis(400), millis(800)],
        parked_per_minute_max: u32::try_from(*r.pick(&[3, 100, 100])).unwrap_or(100),
        sweep_idle: Duration::from_secs(r.between(2, 10)),
        fan_out_page: u32::try_from(*r.pick(&[3, 3, 50])).unwrap_or(3),
        fan_out_pending_max: u32::try_from(*r.pick(&[50, 1_000])).unwrap_or(50),
        ..Limits::default()
    }
}

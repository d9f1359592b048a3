//! Everything that a seed decides before the first event: sizes, knobs, which faults there are. Printed on failure.

use std::time::Duration;

use honeyflow_engine::core::plan::Limits;
use honeyflow_runtime::Backoff;

use crate::random::Random;

pub const SECOND: u64 = 1_000_000;
pub const MILLI: u64 = 1_000;
/// How long anything may fail.
pub const SAFETY: u64 = 40 * SECOND;
/// And how much longer, if a planned fault has not found its victim yet.
pub const EXTENSION: u64 = 40 * SECOND;
/// How long a healed cluster may take to come to rest.
pub const LIVENESS: u64 = 60 * SECOND;

#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    pub nodes: usize,
    pub shards: u16,
    pub ttl_ms: u64,
    /// Per mille, by node: clocks run at different rates.
    pub drift: Vec<i64>,
    pub keys: u64,
    pub change_every_us: u64,
    pub long_transactions: u64,
    pub poison: u64,
    pub store: StoreFaults,
    pub steps: StepFaults,
    pub plan: FaultPlan,
    pub workers: u32,
    pub room: u32,
    pub batch_max: u32,
    pub limits: Limits,
}

/// Per mille of calls.
#[derive(Clone, Debug, Default)]
pub struct StoreFaults {
    pub latency_us: u64,
    pub refused: u64,
    pub unknown: u64,
    pub slow: u64,
}

/// Per mille of batches, except where it says items.
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

/// How many of each strike during the safety phase.
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
        let options = Options {
            seed,
            nodes,
            shards,
            ttl_ms: *r.pick(&[1_500, 3_000, 6_000]),
            drift: (0..nodes).map(|_| i64::try_from(r.between(0, 100)).unwrap_or(50) - 50).collect(),
            keys: *r.pick(&[4, 20, 100]),
            change_every_us: r.between(40, 120) * MILLI,
            long_transactions: r.between(0, 60),
            poison: r.between(0, 25),
            store,
            steps,
            plan,
            workers: u32::try_from(r.between(1, 3)).unwrap_or(1),
            room: u32::try_from(r.between(1, 4)).unwrap_or(1),
            batch_max,
            limits: limits(r),
        };
        options.settle(r)
    }

    /// A pause can only be seen to be harmless if something was under way: short batches leave nothing.
    fn settle(mut self, r: &mut Random) -> Options {
        if self.plan.pauses > 0 {
            self.change_every_us = self.change_every_us.min(60 * MILLI);
            self.ttl_ms = self.ttl_ms.min(3_000);
        }
        if self.limits.poll_rows_max == 1 || self.limits.runs_max == 4 {
            // whoever takes one at a time must be given time
            self.change_every_us = self.change_every_us.max(90 * MILLI);
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
        ..Limits::default()
    }
}

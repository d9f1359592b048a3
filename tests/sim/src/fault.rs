//! Planned faults: each happens at a drawn time, as soon as there is a victim.

use crate::{
    options::{MILLI, Options, SECOND},
    random::Random,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A node loses its state; what it has sent may still arrive.
    Crash,
    /// A node is paused for longer than its lease; what it was about to send goes out afterwards.
    Pause,
    /// A new incarnation starts while the old one continues, cut off from the database.
    Double,
    /// A node cannot reach the database; it can reach targets.
    CutOff,
    Drain,
    WorkerDies,
    WorkerHangs,
    StoreOutage,
    SinkOutage,
    /// A sink holds a later epoch than the database knows, as after a restore.
    SinkAhead,
    /// A table is missing for a while.
    Migration,
    /// A step answers `Fatal` until it is repaired.
    Broken,
    /// The operator pauses a workflow, and resumes it.
    Hold,
    /// The operator cancels a run.
    Cancel,
}

#[derive(Clone, Copy, Debug)]
pub struct PlannedFault {
    pub at: u64,
    pub fault: Fault,
}

pub fn plan(options: &Options) -> Vec<PlannedFault> {
    let mut random = Random::new(options.seed ^ 0x5EED_0003);
    let plan = &options.plan;
    let kinds = [
        (Fault::Crash, plan.crashes),
        (Fault::Pause, plan.pauses),
        (Fault::Double, plan.doubles),
        (Fault::CutOff, plan.partitions),
        (Fault::Drain, plan.drains),
        (Fault::WorkerDies, plan.worker_deaths),
        (Fault::WorkerHangs, plan.worker_hangs),
        (Fault::StoreOutage, plan.store_outages),
        (Fault::SinkOutage, plan.sink_outages),
        (Fault::SinkAhead, plan.sinks_ahead),
        (Fault::Migration, plan.migrations),
        (Fault::Broken, plan.broken),
        (Fault::Hold, plan.holds),
        (Fault::Cancel, plan.cancels),
    ];
    let safety = options.safety();
    let mut planned = Vec::new();
    for (fault, count) in kinds {
        for _ in 0..count {
            // Not before there is load, and early enough that its end is seen.
            let before_end = if fault == Fault::Pause { 10 * SECOND } else { 2 * SECOND };
            planned.push(PlannedFault { at: random.between(2 * SECOND, safety.saturating_sub(before_end)), fault });
        }
    }
    planned.sort_by_key(|planned| planned.at);
    planned
}

/// How long to wait before looking for a victim again.
pub const AGAIN: u64 = 50 * MILLI;

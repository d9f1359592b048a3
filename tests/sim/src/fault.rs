//! Faults that are planned: each strikes at a drawn time, as soon as there is someone to hit.

use crate::{
    options::{MILLI, Options, SECOND},
    random::Random,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// State is dropped; what was sent may still arrive.
    Crash,
    /// Longer than the lease; what was about to go out goes out afterwards.
    Pause,
    /// A new incarnation starts while the old one runs on, cut off from the database.
    Double,
    /// The database cannot be reached, targets can.
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
    /// A step answers `Fatal` until something is put right.
    Broken,
    /// A person pauses a workflow, and resumes it.
    Hold,
    /// A person cancels a run.
    Cancel,
}

#[derive(Clone, Copy, Debug)]
pub struct Planned {
    pub at: u64,
    pub fault: Fault,
}

pub fn plan(options: &Options) -> Vec<Planned> {
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
            // not before there is load, and early enough to be seen to end
            let before_end = if fault == Fault::Pause { 10 * SECOND } else { 2 * SECOND };
            planned.push(Planned { at: random.between(2 * SECOND, safety.saturating_sub(before_end)), fault });
        }
    }
    planned.sort_by_key(|planned| planned.at);
    planned
}

/// How long to wait for a victim.
pub const AGAIN: u64 = 50 * MILLI;

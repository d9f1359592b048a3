//! Deadlines of runs, waits and delays included. The time counts from the run's beginning.
//!
//! With its first checkpoint a run stores its deadline, by the store's clock, so that the next owner knows it. A run
//! without a checkpoint begins again at the next owner, and its time begins again too; so does that of a parked run
//! that a person retries.

use std::{collections::BTreeSet, time::Duration};

use honeyflow_runtime::{Failure, Moment};
use honeyflow_store::{
    Op,
    write::{Checkpoint, CheckpointOutcome, WHOLE_RUN_STEP},
};

use super::{Core, input::Effect, run::RunPhase, settle::OnCommit};
use crate::{codes, slots::Slot};

#[derive(Default)]
pub(crate) struct Deadlines {
    /// The deadlines of the open runs whose workflows set one.
    set: BTreeSet<(Moment, Slot)>,
}

impl Deadlines {
    pub fn next(&self) -> Moment {
        self.set.first().map_or(Moment::FAR, |(at, _)| *at)
    }
}

/// Returns how long a run of an earlier owner may still take, if its deadline was stored.
pub(crate) fn time_left(checkpoints: &[Checkpoint], store_now_ms: i64) -> Option<Duration> {
    let kept = checkpoints.iter().find(|checkpoint| *checkpoint.step == *WHOLE_RUN_STEP)?;
    let CheckpointOutcome::Until(at_ms) = kept.outcome else { return None };
    Some(Duration::from_millis(u64::try_from(at_ms.saturating_sub(store_now_ms)).unwrap_or(0)))
}

impl Core {
    pub(crate) fn set_deadline(&mut self, slot: Slot) {
        let Some(run) = self.runs.get_mut(slot) else { return };
        let Some(deadline) = run.plan.graph.definition.deadline else { return };
        if run.deadline == Moment::FAR {
            run.deadline = self.now.after(deadline);
        }
        self.deadlines.set.insert((run.deadline, slot));
    }

    pub(crate) fn forget_deadline(&mut self, slot: Slot) {
        if let Some(run) = self.runs.get(slot).filter(|run| run.deadline != Moment::FAR) {
            self.deadlines.set.remove(&(run.deadline, slot));
        }
    }

    /// Stores the run's deadline together with its first checkpoint.
    pub(crate) fn store_deadline(&mut self, first: &Checkpoint, slot: Slot) {
        let Some(run) = self.runs.get_mut(slot).filter(|run| run.deadline != Moment::FAR) else { return };
        let extras = run.extras.get_or_insert_default();
        if std::mem::replace(&mut extras.deadline_stored, true) {
            return;
        }
        let (source, deadline) = (run.source, run.deadline);
        let at_ms = i64::try_from(deadline.0 / 1000).unwrap_or(i64::MAX / 4);
        let outcome = CheckpointOutcome::Until(at_ms.saturating_add(self.sources[source as usize].store_ahead_ms));
        let kept = Checkpoint { step: WHOLE_RUN_STEP.into(), index: 0, outcome, emit: Vec::new(), ..first.clone() };
        self.push_op(source, Op::Checkpoint(Box::new(kept)), OnCommit::Nothing);
    }

    pub(crate) fn end_overdue_runs(&mut self, effects: &mut Vec<Effect>) {
        while let Some((at, slot)) = self.deadlines.set.first().copied()
            && at <= self.now
        {
            self.deadlines.set.pop_first();
            let Some(run) = self.runs.get(slot).filter(|run| run.phase == RunPhase::Open) else { continue };
            let after = run.plan.graph.definition.deadline.unwrap_or_default();
            self.counters.overdue += 1;
            let message = format!(
                "the run did not end within the workflow's deadline of {}",
                honeyflow_workflow::duration::text(after)
            );
            self.end_early(slot, Failure::reject(codes::DEADLINE, message), effects);
        }
    }
}

//! Runs that may take only so long, waits and delays included. The time counts from the run's beginning.
//!
//! With its first checkpoint a run writes down when its time is over, by the store's clock, so that the next owner knows
//! it. What has written nothing begins anew there, and so does its time; likewise what is taken out of the parked ones.

use std::{collections::BTreeSet, time::Duration};

use honeyflow_runtime::{Failure, Moment};
use honeyflow_store::{
    Op,
    write::{Checkpoint, Checkpointed, OF_RUN},
};

use super::{Core, input::Effect, run::Life, settle::After};
use crate::slots::Slot;

#[derive(Default)]
pub(crate) struct Deadlines {
    /// Of open runs, where their workflows set one.
    set: BTreeSet<(Moment, Slot)>,
}

impl Deadlines {
    pub fn next(&self) -> Moment {
        self.set.first().map_or(Moment::FAR, |(at, _)| *at)
    }
}

/// How long a run of an earlier owner may still take, if that was written down.
pub(crate) fn left(checkpoints: &[Checkpoint], store_now_ms: i64) -> Option<Duration> {
    let kept = checkpoints.iter().find(|checkpoint| *checkpoint.step == *OF_RUN)?;
    let Checkpointed::Until(at_ms) = kept.outcome else { return None };
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

    /// Goes with the run's first checkpoint.
    pub(crate) fn keep_deadline(&mut self, first: &Checkpoint, slot: Slot) {
        let Some(run) = self.runs.get_mut(slot).filter(|run| run.deadline != Moment::FAR) else { return };
        let extras = run.extras.get_or_insert_default();
        if std::mem::replace(&mut extras.deadline_kept, true) {
            return;
        }
        let (source, deadline) = (run.source, run.deadline);
        let at_ms = i64::try_from(deadline.0 / 1000).unwrap_or(i64::MAX / 4);
        let outcome = Checkpointed::Until(at_ms.saturating_add(self.sources[source as usize].store_ahead_ms));
        let kept = Checkpoint { step: OF_RUN.into(), index: 0, outcome, emit: Vec::new(), ..first.clone() };
        self.push_op(source, Op::Checkpoint(Box::new(kept)), After::Nothing);
    }

    pub(crate) fn end_overdue_runs(&mut self, effects: &mut Vec<Effect>) {
        while let Some((at, slot)) = self.deadlines.set.first().copied()
            && at <= self.now
        {
            self.deadlines.set.pop_first();
            let Some(run) = self.runs.get(slot).filter(|run| run.life == Life::Open) else { continue };
            let after = run.plan.graph.definition.deadline.unwrap_or_default();
            self.counters.overdue += 1;
            let message = format!("the run was not done within the workflow's deadline of {}", said(after));
            self.abandon(slot, Failure::reject("deadline", message), effects);
        }
    }
}

fn said(duration: Duration) -> String {
    honeyflow_workflow::duration::text(duration)
}

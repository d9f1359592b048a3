//! Runs that are cancelled by a person, or because their deadline has passed.
//!
//! | from       | input                                          | to         | effect                                |
//! |------------|------------------------------------------------|------------|---------------------------------------|
//! | open       | cancel or deadline, no worker holds an attempt | settling   | parked                                |
//! | open       | cancel or deadline                             | cancelling | open steps cancelled, worker informed |
//! | cancelling | last attempt is back, or grace period is over  | settling   | parked                                |
//!
//! Until then the key is held: an attempt that a worker still executes must not overlap with one of the next run. If an
//! attempt of a step with checkpoints ends within the grace period, its output is stored for a later retry of the run;
//! a later answer is refused.

use std::time::Duration;

use honeyflow_runtime::Failure;
use honeyflow_step::Outcome;
use honeyflow_store::write::CheckpointOutcome;
use honeyflow_workflow::{Checkpoint, State};

use super::{
    Core,
    input::Effect,
    plan::EXPRESSION,
    run::{RunPhase, RunState},
    settle::OnCommit,
    timer::{Timer, WaitingStep},
};
use crate::{codes, slots::Slot};

/// The grace period in which workers may still answer.
const GRACE: Duration = Duration::from_secs(10);

impl Core {
    /// Cancels the run of a key on a person's request.
    pub(crate) fn cancel(&mut self, workflow: &str, entity: &str, key: &str, effects: &mut Vec<Effect>) {
        let of_key = |run: &RunState| {
            *run.plan.name == *workflow && *run.entity == *entity && *self.keys.get(run.key).key == *key
        };
        let found = self.runs.iter().find(|(_, run)| run.phase == RunPhase::Open && of_key(run)).map(|(slot, _)| slot);
        if let Some(slot) = found {
            self.end_early(slot, Failure::reject(codes::CANCELLED, "cancelled by hand"), effects);
        }
    }

    /// Ends the run: none of its steps is begun any more, and it is parked with the failure `why`.
    pub(crate) fn end_early(&mut self, slot: Slot, why: Failure, effects: &mut Vec<Effect>) {
        self.stop_waiting(slot);
        self.forget_deadline(slot);
        let Some(run) = self.runs.get_mut(slot) else { return };
        let graph = run.plan.graph.clone();
        let step = graph.ids().find(|step| run.run.state(&graph, *step) == State::Ready).unwrap_or(0);
        run.run.cancel(&graph);
        let attempt = run.attempt;
        run.extras.get_or_insert_default().failed.insert(0, (step, 0, attempt, why));
        if run.leased == 0 {
            self.conclude_if_ended(slot);
            return;
        }
        run.phase = RunPhase::Cancelling;
        self.timers.set(self.now.after(GRACE), Timer::Grace(slot));
        self.withdraw(slot, effects);
    }

    fn withdraw(&mut self, slot: Slot, effects: &mut Vec<Effect>) {
        let is_wanted = |run: Slot| self.runs.get(run).is_some_and(|run| run.phase == RunPhase::Open);
        let mut told: Vec<Effect> = Vec::new();
        // Expressions have no side effects and are answered soon.
        for held in self.dispatch.batches.values().filter(|held| held.kind != EXPRESSION) {
            let places = (0..held.items.len()).filter(|place| held.items[*place].run == slot);
            let items: Vec<usize> = places.collect();
            if !items.is_empty() {
                let whole = !held.items.iter().any(|item| is_wanted(item.run));
                told.push(Effect::Withdraw { worker: held.worker, batch: held.batch, items, whole });
            }
        }
        told.sort_by_key(|effect| if let Effect::Withdraw { batch, .. } = effect { *batch } else { 0 });
        effects.append(&mut told);
    }

    /// A worker has ended an attempt of a run that is no longer open.
    pub(crate) fn on_attempt_ended(&mut self, waiting: WaitingStep, attempt: u32, outcome: Option<Outcome>) {
        let Some(run) = self.runs.get(waiting.run).filter(|run| run.phase == RunPhase::Cancelling) else { return };
        let definition = &run.plan.graph.steps[waiting.step as usize];
        if let (Some(Outcome::Done(output)), Checkpoint::Always) = (outcome, definition.checkpoint) {
            self.checkpoint(waiting, attempt, CheckpointOutcome::Done(output), Vec::new(), OnCommit::Nothing);
        }
        if self.runs.get(waiting.run).is_some_and(|run| run.leased == 0) {
            self.end_cancelled(waiting.run);
        }
    }

    /// Concludes a cancelled run: its attempts are back, or the grace period is over.
    pub(crate) fn end_cancelled(&mut self, slot: Slot) {
        let Some(run) = self.runs.get_mut(slot).filter(|run| run.phase == RunPhase::Cancelling) else { return };
        run.phase = RunPhase::Open;
        self.conclude_if_ended(slot);
    }
}

//! Runs that are ended from outside: by a person, or because their time is over.
//!
//! | from       | input                                      | to         | effect                                       |
//! |------------|--------------------------------------------|------------|----------------------------------------------|
//! | open       | cancel or deadline, no attempt in a hand   | settling   | parked                                       |
//! | open       | cancel or deadline                         | cancelling | what has not ended is cancelled, workers told |
//! | cancelling | the last attempt is back, or the grace over | settling  | parked                                       |
//!
//! Until then the key is held: an attempt that is still at work must not meet one of the next run. What an attempt of a
//! journaled step has done within the grace is kept for whoever tries the run again; anything later is refused.

use std::time::Duration;

use honeyflow_runtime::Failure;
use honeyflow_step::Outcome;
use honeyflow_store::write::Checkpointed;
use honeyflow_workflow::{Checkpoint, State};

use super::{
    Core,
    input::Effect,
    plan::EXPRESSION,
    run::{Life, RunState},
    settle::After,
    timer::{Timer, Waiting},
};
use crate::slots::Slot;

/// For workers to end what they were told to.
const GRACE: Duration = Duration::from_secs(10);

impl Core {
    /// A person ends the run of a key.
    pub(crate) fn cancel(&mut self, workflow: &str, entity: &str, key: &str, effects: &mut Vec<Effect>) {
        let of_key = |run: &RunState| {
            *run.plan.name == *workflow && *run.entity == *entity && *self.keys.get(run.key).key == *key
        };
        let found = self.runs.iter().find(|(_, run)| run.life == Life::Open && of_key(run)).map(|(slot, _)| slot);
        if let Some(slot) = found {
            self.abandon(slot, Failure::reject("cancelled", "cancelled by hand"), effects);
        }
    }

    /// Nothing more of the run is begun; why, is what it is parked with.
    pub(crate) fn abandon(&mut self, slot: Slot, why: Failure, effects: &mut Vec<Effect>) {
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
        run.life = Life::Cancelling;
        self.timers.set(self.now.after(GRACE), Timer::Grace(slot));
        self.withdraw(slot, effects);
    }

    fn withdraw(&mut self, slot: Slot, effects: &mut Vec<Effect>) {
        let is_wanted = |run: Slot| self.runs.get(run).is_some_and(|run| run.life == Life::Open);
        let mut told: Vec<Effect> = Vec::new();
        // Expressions touch nothing, and are answered soon.
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

    /// An attempt of a run that is not open any more is out of its worker's hands.
    pub(crate) fn came_back(&mut self, waiting: Waiting, attempt: u32, outcome: Option<Outcome>) {
        let Some(run) = self.runs.get(waiting.run).filter(|run| run.life == Life::Cancelling) else { return };
        let definition = &run.plan.graph.steps[waiting.step as usize];
        if let (Some(Outcome::Done(output)), Checkpoint::Always) = (outcome, definition.checkpoint) {
            self.checkpoint(waiting, attempt, Checkpointed::Done(output), Vec::new(), After::Nothing);
        }
        if self.runs.get(waiting.run).is_some_and(|run| run.leased == 0) {
            self.end_cancelled(waiting.run);
        }
    }

    /// Its attempts are back, or are waited for no longer.
    pub(crate) fn end_cancelled(&mut self, slot: Slot) {
        let Some(run) = self.runs.get_mut(slot).filter(|run| run.life == Life::Cancelling) else { return };
        run.life = Life::Open;
        self.conclude_if_ended(slot);
    }
}

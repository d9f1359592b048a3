//! Handles the answer to a batch, or its absence. For a failure, its class alone decides what follows.

use std::time::Duration;

use honeyflow_event::{Document, Stamp};
use honeyflow_runtime::{Backoff, Class, Failure, Moment};
use honeyflow_step::Outcome;
use honeyflow_store::{
    Op,
    write::{Checkpoint, CheckpointOutcome, LIST_INDEX},
};
use honeyflow_workflow::{End, Role, StepId};

use super::{
    Core,
    dispatch::HeldBatch,
    fact::Fact,
    for_each,
    input::{BatchId, Effect},
    ready::ReadyItem,
    run::RunPhase,
    settle::OnCommit,
    timer::{Timer, WaitingStep},
};
use crate::{codes, slots::Slot};

/// Rejects that no further attempt can change.
const FINAL_CODES: &[&str] =
    &[codes::KILLS_WORKER, codes::TOO_SLOW, codes::PLAN_LIMIT, codes::OUTPUT_TOO_LARGE, codes::BAD_ANSWER];
/// The weight of the death of a worker that held no other batch. If the worker held several, the death weighs 1:
/// another batch may have killed it.
const LONE_DEATH: u32 = 4;
const DEATHS_MAX: u32 = 3 * LONE_DEATH;

/// Why a batch has no usable answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Its worker died while it held no other batch, or its step panicked.
    Death,
    /// Its worker died while it held other batches too.
    SharedDeath,
    /// The worker held it past its deadline.
    TimeOut,
    /// The number of answers differs from the number of items.
    Unclear,
}

impl Core {
    pub(crate) fn on_outcomes(&mut self, batch: BatchId, outcomes: Vec<Outcome>, effects: &mut Vec<Effect>) {
        let batch =
            if crate::planted::on("PB-21") { self.dispatch.similar_batch(batch, outcomes.len()) } else { batch };
        let late = self.dispatch.taken_back.remove(&batch);
        let Some(held) = late.or_else(|| self.close_batch(batch)) else {
            self.counters.stale_answers += 1;
            return;
        };
        self.adjust_batch_size(&held);
        self.ready.queues[held.queue].finished += 1;
        let (workflow, step, target) = {
            let queue = &self.ready.queues[held.queue];
            (queue.workflow, queue.step, queue.target)
        };
        let complete = outcomes.len() == held.items.len();
        if !complete && held.items.len() > 1 {
            // The answers cannot be assigned to the items: one bad item must not fail the others.
            self.suspect(&held, Cause::Unclear);
            return;
        }
        let mut outcomes = outcomes;
        if crate::planted::on("PB-25") {
            let bad =
                |outcome: &&Outcome| matches!(outcome, Outcome::Failed(failure) if failure.class == Class::Reject);
            if let Some(bad) = outcomes.iter().find(bad).cloned() {
                outcomes.fill(bad);
            }
        }
        let mut outcomes = outcomes.into_iter();
        let (mut fine, mut failed) = (0, 0);
        let mut again = Vec::new();
        let mut stopped = None;
        let mut tries = 0;
        for item in &held.items {
            let outcome = match outcomes.next() {
                Some(outcome) if complete => outcome,
                _ => Outcome::Failed(Failure::reject(
                    codes::BAD_ANSWER,
                    "the step answered with another number of outcomes",
                )),
            };
            let Some(run) = self.runs.get_mut(item.run) else { continue };
            run.leased -= 1;
            let waiting = WaitingStep { run: item.run, step, index: item.index };
            if run.phase != RunPhase::Open {
                self.on_attempt_ended(waiting, item.attempt, Some(outcome));
                continue;
            }
            match outcome {
                Outcome::Done(output) => {
                    fine += 1;
                    self.on_done(waiting, item.attempt, output);
                }
                Outcome::Stale { stored } => {
                    fine += 1;
                    self.on_stale(waiting, item.stamp, stored, effects);
                }
                Outcome::Failed(failure) => {
                    self.counters.count_failed(workflow, step, failure.class);
                    match failure.class {
                        Class::Retry => {
                            failed += 1;
                            if let Some(retries) = self.retry(waiting, &failure) {
                                tries = tries.max(retries);
                                again.push(waiting);
                            }
                            self.gates.note(target, &failure);
                        }
                        Class::RetryAfter => {
                            let until = self.now.after(failure.after.unwrap_or(Duration::from_secs(1)));
                            self.gates.note(target, &failure);
                            self.gates.open_until(target, until);
                            self.timers.set(until, Timer::Cohort(vec![waiting]));
                        }
                        Class::Reject => {
                            fine += 1;
                            self.reject(waiting, failure);
                        }
                        Class::Fatal => {
                            stopped = Some(self.stop_workflow(workflow, failure, effects));
                            self.enqueue(waiting, true);
                        }
                    }
                }
            }
        }
        if let Some(until) = stopped {
            self.timers.set(until, Timer::Gate);
        }
        let random = self.random();
        let was_passing = self.gates.is_passing(target);
        if let Some(until) = self.gates.record(target, fine, failed, self.now, random) {
            self.counters.breaker_closed += 1;
            self.timers.set(until, Timer::Gate);
            let name = self.plan.targets[target as usize].clone();
            effects.push(Effect::Alarm {
                code: codes::alarm::BREAKER_CLOSED,
                message: format!("target {name} keeps failing: its breaker is open for a while"),
            });
        }
        if !was_passing && self.gates.is_passing(target) {
            self.budgets.allow_all(target);
        }
        if !again.is_empty() {
            let own = self.plan.workflows[workflow].graph.steps[step as usize].backoff;
            let backoff = own.map_or(self.plan.limits.retry_backoff, |own| Backoff::new(own.base, own.cap));
            let wait = backoff.wait(tries.saturating_sub(1), self.random());
            self.schedule_retries(target, self.now.after(wait), again);
        }
    }

    /// Stops the workflow: none of its steps is given out until the returned time.
    pub(crate) fn stop_workflow(&mut self, workflow: usize, failure: Failure, effects: &mut Vec<Effect>) -> Moment {
        let message = format!("workflow {} has stopped: {failure}", self.plan.workflows[workflow].name);
        let (until, is_news) = self.gates.stop(workflow, failure, self.now);
        if is_news {
            effects.push(Effect::Alarm { code: codes::alarm::WORKFLOW_STOPPED, message });
        }
        until
    }

    fn adjust_batch_size(&mut self, held: &HeldBatch) {
        let target = self.plan.limits.batch_target;
        let took = self.now.since(held.given_at);
        let queue = &mut self.ready.queues[held.queue];
        let role = self.plan.workflows[queue.workflow].graph.steps[queue.step as usize].role;
        if role == Role::Sink {
            return; // A sink spends most of its time waiting for its commit.
        }
        let size = u32::try_from(held.items.len()).unwrap_or(u32::MAX);
        if took > target * 2 && size >= queue.batch_now {
            queue.batch_now = (queue.batch_now / 2).max(1);
        } else if took < target / 2 && size >= queue.batch_now {
            queue.batch_now = queue.batch_now.saturating_mul(2).min(queue.batch_max);
        }
    }

    fn on_done(&mut self, waiting: WaitingStep, attempt: u32, output: Document) {
        let WaitingStep { run: slot, step, index } = waiting;
        let Some(run) = self.runs.get_mut(slot) else { return };
        let definition = &run.plan.graph.steps[step as usize];
        if definition.role == Role::Load && output.is_none() {
            run.run.set_missing();
        }
        if let Some(extras) = &mut run.extras
            && let Some(extra) = extras.steps.iter_mut().find(|extra| extra.step == step && extra.index == index)
        {
            (extra.retries, extra.retrying_since, extra.deaths) = (0, None, 0);
        }
        let always = definition.checkpoint == honeyflow_workflow::Checkpoint::Always;
        if always && crate::planted::on("checkpoint after the dependent started") {
            self.finish(waiting, End::Succeeded, output.clone());
            self.checkpoint(waiting, attempt, CheckpointOutcome::Done(output), Vec::new(), OnCommit::Nothing);
        } else if always {
            self.checkpoint(
                waiting,
                attempt,
                CheckpointOutcome::Done(output.clone()),
                Vec::new(),
                OnCommit::Finished(waiting, output),
            );
        } else {
            self.finish(waiting, End::Succeeded, output);
        }
    }

    /// Writes an outcome to the journal; `after` happens once the write has committed.
    pub(crate) fn checkpoint(
        &mut self,
        waiting: WaitingStep,
        attempt: u32,
        outcome: CheckpointOutcome,
        emit: Vec<honeyflow_store::NewEvent>,
        after: OnCommit,
    ) {
        let Some(run) = self.runs.get_mut(waiting.run) else { return };
        // The checkpoint fixes the rows of the run: no other row may join it.
        run.given = true;
        let Some(run) = self.runs.get(waiting.run) else { return };
        let checkpoint = Checkpoint {
            run: self.run_identity(run),
            version: self.plan.number(run.source, run.workflow),
            covers: self.row_ids(run),
            phase: 0,
            step: run.plan.graph.steps[waiting.step as usize].name.clone(),
            index: waiting.index,
            attempt,
            stamp: run.stamp,
            outcome,
            emit,
        };
        let source = run.source;
        self.store_deadline(&checkpoint, waiting.run);
        self.push_op(source, Op::Checkpoint(Box::new(checkpoint)), after);
    }

    /// Ends a step, or one instance of it.
    pub(crate) fn finish(&mut self, waiting: WaitingStep, end: End, output: Document) {
        let WaitingStep { run: slot, step, index } = waiting;
        let Some(run) = self.runs.get_mut(slot) else { return };
        let workflow = run.workflow;
        let (mut end, mut output) = (end, output);
        if let Some(each) = run.each(step) {
            if let Some(place) = each.outputs.get_mut(index as usize) {
                *place = output;
            }
            let Some(fine) = each.instances.end(index, end != End::Failed) else {
                self.start_instances(slot, step);
                return;
            };
            end = if fine { End::Succeeded } else { End::Failed };
            output = for_each::collect_outputs(&each.outputs);
        }
        if end == End::Succeeded {
            run.store_output(step, output);
        }
        let graph = run.plan.graph.clone();
        let mut ready = std::mem::take(&mut self.scratch_steps);
        ready.clear();
        if run.run.end(&graph, step, end, &mut ready) {
            self.facts.note(|| Fact::Ended { run: run.number, step });
        }
        if end == End::Failed
            && !graph.steps[step as usize].optional
            && graph.definition.on_failure == honeyflow_workflow::OnFailure::Stop
        {
            run.run.stop(&graph);
        }
        self.counters.count_ended_step(workflow, step, end == End::Succeeded);
        self.make_ready(slot, &mut ready);
        self.scratch_steps = ready;
        self.note_dormant(slot);
    }

    /// Counts a retry, which is no counted attempt. Returns `None` if the step was retried for longer than
    /// `give_up_after` allows and has failed.
    fn retry(&mut self, waiting: WaitingStep, failure: &Failure) -> Option<u32> {
        let now = self.now;
        let run = self.runs.get_mut(waiting.run)?;
        let give_up_after = run.plan.graph.steps[waiting.step as usize].give_up_after;
        let extra = run.extra(waiting.step, waiting.index);
        extra.retries += 1;
        let since = *extra.retrying_since.get_or_insert(now);
        let retries = extra.retries;
        if give_up_after.is_some_and(|limit| now.since(since) > limit) {
            self.fail(waiting, failure.clone());
            return None;
        }
        Some(retries)
    }

    fn reject(&mut self, waiting: WaitingStep, failure: Failure) {
        let random = self.random();
        let Some(run) = self.runs.get_mut(waiting.run) else { return };
        let tries = run.plan.graph.steps[waiting.step as usize].tries;
        let extra = run.extra(waiting.step, waiting.index);
        extra.counted_attempts += 1;
        let charges = extra.counted_attempts;
        if charges >= tries || FINAL_CODES.contains(&&*failure.code) {
            self.fail(waiting, failure);
            return;
        }
        let waits = &self.plan.limits.reject_waits;
        let ceiling = waits[(charges as usize - 1).min(waits.len() - 1)];
        // From half of the stated wait to one and a half times it.
        let micros = u64::try_from(ceiling.as_micros()).unwrap_or(u64::MAX);
        let wait = ceiling / 2 + Duration::from_micros(random % micros.max(1));
        let Some(run) = self.runs.get(waiting.run) else { return };
        let op = Op::Charge {
            run: self.run_identity(run),
            step: run.plan.graph.steps[waiting.step as usize].name.clone(),
            index: waiting.index,
            attempts: charges,
            due_in: wait,
            failure,
        };
        let source = run.source;
        self.push_op(source, op, OnCommit::Nothing);
        self.timers.set(self.now.after(wait), Timer::Cohort(vec![waiting]));
    }

    /// Ends the step as failed; no further attempt follows.
    pub(crate) fn fail(&mut self, waiting: WaitingStep, failure: Failure) {
        let Some(run) = self.runs.get_mut(waiting.run) else { return };
        // The attempts of this step alone: `run.attempt` counts those of all steps.
        let extra = run.extra(waiting.step, waiting.index);
        let tries = (extra.counted_attempts + extra.retries + extra.deaths.div_ceil(LONE_DEATH)).max(1);
        let failed = &mut run.extras.get_or_insert_default().failed;
        if failed.len() < 10 {
            failed.push((waiting.step, waiting.index, tries, failure));
        }
        self.finish(waiting, End::Failed, None);
    }

    /// The target holds a newer stamp. If it has our epoch, our write was superseded, and the step is done. If it has a
    /// higher epoch, either this node is stale or the sink is ahead of a restored database; then the core takes a
    /// higher epoch and the run begins again.
    fn on_stale(&mut self, waiting: WaitingStep, sent: Stamp, stored: Stamp, effects: &mut Vec<Effect>) {
        self.counters.stale_writes += 1;
        let Some(run) = self.runs.get_mut(waiting.run) else { return };
        if stored.epoch() <= sent.epoch() || crate::planted::on("PB-7") {
            self.finish(waiting, End::Succeeded, None);
            return;
        }
        let source = run.source;
        let ours = self.sources[source as usize].term.as_ref().map(honeyflow_hive::Term::epoch);
        if ours.is_some_and(|ours| ours <= stored.epoch()) {
            self.mint(source, stored.epoch(), effects);
            effects.push(Effect::Alarm {
                code: codes::alarm::SINK_AHEAD,
                message: format!("a sink holds stamp {stored}, newer than this node's epoch: taking a higher epoch"),
            });
        }
        self.begin_again(waiting.run);
    }

    /// Drops the run's outputs but keeps its counted attempts and checkpoints. The run moves to another slot, so that
    /// late answers to its old attempts find no run.
    fn begin_again(&mut self, slot: Slot) {
        self.stop_waiting(slot);
        self.forget_deadline(slot);
        let Some(mut run) = self.runs.remove(slot) else { return };
        let graph = run.plan.graph.clone();
        let is_kept = |step: &StepId| {
            let definition = &graph.steps[*step as usize];
            definition.checkpoint == honeyflow_workflow::Checkpoint::Always
                && (definition.for_each.is_none() || run.has_each(*step))
                && !run.run.is_missing()
                && run.run.state(&graph, *step) == honeyflow_workflow::State::Succeeded
        };
        let kept: Vec<(StepId, End)> = graph.ids().filter(is_kept).map(|step| (step, End::Succeeded)).collect();
        if let Some(outputs) = &mut run.outputs {
            for step in graph.ids().filter(|step| !kept.iter().any(|(other, _)| other == step)) {
                outputs[step as usize] = None;
            }
        }
        for_each::reopen(&mut run);
        if let Some(extras) = &mut run.extras {
            extras.failed.clear();
            for extra in &mut extras.steps {
                let listed = extras.instances.iter().any(|each| each.step == extra.step);
                (extra.evaluated, extra.input) = (listed, None);
            }
        }
        run.stamp = honeyflow_event::Stamp::default();
        run.leased = 0;
        let mut ready = Vec::new();
        run.run = honeyflow_workflow::Run::restore(&graph, &kept, &mut ready);
        let key = run.key;
        self.facts.note(|| Fact::Closed { run: run.number });
        run.number = self.facts.next_run();
        self.note_opened(&run);
        for (step, _) in kept {
            self.facts.note(|| Fact::Ended { run: run.number, step });
        }
        let moved = self.runs.insert(run);
        self.set_deadline(moved);
        if let Some(key) = self.keys.get_mut(key) {
            key.open.iter_mut().filter(|open| **open == slot).for_each(|open| *open = moved);
        }
        self.make_ready(moved, &mut ready);
    }

    pub(crate) fn on_unanswered(&mut self, batch: BatchId) {
        if let Some(held) = self.close_batch(batch) {
            if crate::planted::on("leak a slot at worker death")
                && let Some(worker) = self.dispatch.workers.get_mut(&held.worker)
            {
                worker.room[held.kind as usize] -= 1;
            }
            self.suspect(&held, Cause::Death);
        }
    }

    pub(crate) fn on_timed_out(&mut self, batch: BatchId) {
        if let Some(held) = self.close_batch(batch) {
            self.counters.timed_out += 1;
            self.suspect(&held, Cause::TimeOut);
        }
    }

    /// Ends the batch, so that its worker and the gates it passed have room again.
    pub(crate) fn close_batch(&mut self, batch: BatchId) -> Option<HeldBatch> {
        let held = self.dispatch.close(batch)?;
        let queue = &self.ready.queues[held.queue];
        if queue.kind != super::plan::EXPRESSION {
            self.gates.on_returned(queue.target, held.items.len());
        }
        Some(held)
    }

    fn keep_taken_back(&mut self, held: &HeldBatch) {
        for item in &held.items {
            if let Some(run) = self.runs.get_mut(item.run) {
                run.leased += 1;
            }
        }
        self.dispatch.taken_back.insert(held.batch, held.clone());
    }

    /// Handles a batch without an answer. Its items go out again in halves, down to single items on trial, one trial at
    /// a time, because an item is not guilty just because it was in one batch with an item that kills workers. Only an
    /// item on trial is blamed; for a time-out only if the step has finished other batches meanwhile, since otherwise
    /// the target itself hangs.
    pub(crate) fn suspect(&mut self, held: &HeldBatch, cause: Cause) {
        let queue = &self.ready.queues[held.queue];
        let (step, finished) = (queue.step, queue.finished);
        let mut group = Vec::with_capacity(held.items.len());
        for item in &held.items {
            let Some(run) = self.runs.get_mut(item.run) else { continue };
            run.leased -= 1;
            if run.phase == RunPhase::Open {
                group.push(ReadyItem { run: item.run, index: item.index, since: self.now, level: run.level });
            } else {
                self.on_attempt_ended(WaitingStep { run: item.run, step, index: item.index }, item.attempt, None);
            }
        }
        self.counters.suspected += group.len() as u64;
        if crate::planted::on("PB-22") {
            self.keep_taken_back(held);
        }
        let guilty = match cause {
            Cause::Death | Cause::SharedDeath => held.trial,
            Cause::TimeOut => held.trial && finished > held.finished_before,
            Cause::Unclear => false,
        };
        if let ([alone], true) = (&group[..], guilty) {
            let waiting = WaitingStep { run: alone.run, step, index: alone.index };
            let Some(run) = self.runs.get_mut(alone.run) else { return };
            let extra = run.extra(step, alone.index);
            let weight = if cause == Cause::SharedDeath { 1 } else { LONE_DEATH };
            extra.deaths += if crate::planted::on("PB-24") { 0 } else { weight };
            if extra.deaths >= DEATHS_MAX {
                self.fail(
                    waiting,
                    Failure::reject(codes::KILLS_WORKER, "every worker that took this item alone has died or hung"),
                );
                return;
            }
        }
        if crate::planted::on("charge a whole batch") {
            for ReadyItem { run: slot, index, .. } in group.clone() {
                let Some(run) = self.runs.get_mut(slot) else { continue };
                let extra = run.extra(step, index);
                extra.deaths += LONE_DEATH;
                if extra.deaths >= 2 * LONE_DEATH {
                    self.fail(
                        WaitingStep { run: slot, step, index },
                        Failure::reject(codes::KILLS_WORKER, "one of these"),
                    );
                }
            }
        }
        if group.is_empty() {
            return;
        }
        let half = group.len().div_ceil(2);
        let rest = group.split_off(half);
        let queue = &mut self.ready.queues[held.queue];
        queue.push_suspects(group);
        if !rest.is_empty() {
            queue.push_suspects(rest);
        }
    }

    pub(crate) fn fire_timers(&mut self, effects: &mut Vec<Effect>) {
        self.end_overdue_waits();
        self.end_overdue_runs(effects);
        while let Some(timer) = self.timers.pop_due(self.now) {
            match timer {
                Timer::Cohort(waiting) => {
                    for waiting in waiting {
                        self.wake(waiting);
                    }
                }
                Timer::Retries(target, items) => self.retry_due(target, items),
                Timer::Batch(batch) => {
                    if let Some(held) = self.close_batch(batch) {
                        self.counters.timed_out += 1;
                        effects.push(Effect::Cancel { worker: held.worker, batch });
                        self.suspect(&held, Cause::TimeOut);
                    }
                }
                Timer::Grace(run) => self.end_cancelled(run),
                Timer::Gate => {}
            }
        }
    }

    pub(crate) fn wake(&mut self, waiting: WaitingStep) {
        if waiting.index == LIST_INDEX {
            self.start_instances(waiting.run, waiting.step);
            return;
        }
        let Some(run) = self.runs.get(waiting.run) else { return };
        let slept = run.plan.graph.steps[waiting.step as usize].role == Role::Sleep
            && run.find_extra(waiting.step, waiting.index).is_some_and(|extra| extra.evaluated);
        if slept {
            self.finish(waiting, End::Succeeded, None);
        } else {
            self.enqueue(waiting, true);
        }
    }
}

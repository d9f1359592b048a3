//! Gives batches to workers and remembers which worker holds which. A batch is one step of one workflow; it lives until
//! the worker answers it, it is taken back at its deadline, or the worker is lost. Only a live batch can be answered.

use std::sync::Arc;

use hashbrown::HashMap;
use honeyflow_event::Document;
use honeyflow_runtime::Moment;
use honeyflow_step::{Batch, Context, Item};
use honeyflow_workflow::{Role, StepId, graph::ContextReads};
use serde_json::{Map, Value};
use smallvec::SmallVec;

use super::{
    Core,
    fact::Fact,
    input::{BatchId, Effect, EvaluationItem, Work, WorkerId},
    outcome::Cause,
    plan::{EXPRESSION, KindId},
    ready::{Queue, ReadyItem, must_evaluate},
    run::{RunPhase, RunState},
    timer::{Timer, WaitingStep},
};
use crate::slots::Slot;

/// Added to a step's time-out before its batch is taken back, so that the worker notices the time-out first.
const DEADLINE_GRACE: std::time::Duration = std::time::Duration::from_secs(5);

/// The time-out for evaluating an `event.wait`. The evaluator answers within half of it even if an expression hangs;
/// it is exceeded only if the worker is lost.
const WAIT_EVALUATION: std::time::Duration = std::time::Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Dispatch {
    pub workers: HashMap<WorkerId, Worker>,
    pub batches: HashMap<BatchId, HeldBatch>,
    /// Batches that were taken back and whose answers still count: a planted bug, else empty.
    pub taken_back: HashMap<BatchId, HeldBatch>,
    /// The batch of the trial under way.
    trial: Option<BatchId>,
    next: BatchId,
    scratch: Vec<ReadyItem>,
}

pub(crate) struct Worker {
    /// The number of further batches that it can take, by kind.
    pub room: Vec<u32>,
    /// The number of batches that it takes at once, by kind.
    pub offered: Vec<u32>,
}

impl Worker {
    pub fn offers(&self, kind: KindId) -> bool {
        self.offered[kind as usize] > 0
    }
}

/// A batch that a worker holds.
#[derive(Clone)]
pub(crate) struct HeldBatch {
    pub batch: BatchId,
    pub worker: WorkerId,
    pub queue: usize,
    pub kind: KindId,
    pub items: Vec<HeldItem>,
    pub given_at: Moment,
    /// The batch has one suspect alone: if its worker dies too, this item is the cause.
    pub trial: bool,
    /// The number of batches that the step had finished when this one was given out.
    pub finished_before: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct HeldItem {
    pub run: Slot,
    /// The stamp that this attempt carries; the run may have drawn another since.
    pub stamp: honeyflow_event::Stamp,
    pub index: u32,
    pub attempt: u32,
}

impl Dispatch {
    pub fn add_worker(&mut self, worker: WorkerId, room: &[(KindId, u32)], kinds: usize) {
        let mut by_kind = vec![0; kinds];
        for (kind, batches) in room {
            by_kind[*kind as usize] = *batches;
        }
        self.workers.insert(worker, Worker { offered: by_kind.clone(), room: by_kind });
    }

    /// A planted bug: an answer to a batch that is gone counts for another batch of the same size.
    pub fn similar_batch(&self, batch: BatchId, items: usize) -> BatchId {
        let other = self.batches.iter().filter(|(_, held)| held.items.len() == items).map(|(id, _)| *id).min();
        if self.batches.contains_key(&batch) { batch } else { other.unwrap_or(batch) }
    }

    /// Whether a suspect may be tried alone; only one trial runs at a time.
    pub fn can_start_trial(&self) -> bool {
        self.trial.is_none()
    }

    /// Ends the batch, so that its worker has room again.
    pub fn close(&mut self, batch: BatchId) -> Option<HeldBatch> {
        let held = self.batches.remove(&batch)?;
        if self.trial == Some(batch) {
            self.trial = None;
        }
        if let Some(worker) = self.workers.get_mut(&held.worker) {
            worker.room[held.kind as usize] += 1;
        }
        Some(held)
    }
}

impl Core {
    /// Queues steps that have become ready; in a run whose row is gone, steps that need the row are passed over.
    pub(crate) fn make_ready(&mut self, slot: Slot, steps: &mut Vec<StepId>) {
        let Some(run) = self.runs.get_mut(slot) else { return };
        let graph = run.plan.graph.clone();
        // Steps whose `for-each` list an earlier owner has stored.
        let mut listed: SmallVec<[StepId; 4]> = SmallVec::new();
        while let Some(step) = steps.pop() {
            if run.run.passes(&graph, step) {
                run.run.end(&graph, step, honeyflow_workflow::End::Succeeded, steps);
                self.facts.note(|| Fact::Ended { run: run.number, step });
                continue;
            }
            self.facts.note(|| Fact::Ready { run: run.number, step });
            if run.has_each(step) {
                listed.push(step);
                continue;
            }
            let definition = &graph.steps[step as usize];
            let evaluated = run.find_extra(step, 0).is_some_and(|extra| extra.evaluated);
            let evaluate =
                must_evaluate(definition) && !evaluated && (definition.on_missing_run || !run.run.is_missing());
            let queue = self.ready.queue(run.workflow, step, evaluate);
            self.ready.push(
                queue,
                run.level,
                ReadyItem { run: slot, index: 0, since: self.now, level: run.level },
                false,
            );
        }
        for step in listed {
            self.start_instances(slot, step);
        }
        self.conclude_if_ended(slot);
    }

    /// Puts a step of a run back into its queue: after a delay, or because its workflow was stopped.
    pub(crate) fn enqueue(&mut self, waiting: WaitingStep, front: bool) {
        let WaitingStep { run: slot, step, index } = waiting;
        let Some(run) = self.runs.get(slot) else { return };
        let definition = &run.plan.graph.steps[step as usize];
        let evaluated = index > 0 || run.find_extra(step, index).is_some_and(|extra| extra.evaluated);
        let evaluate = must_evaluate(definition) && !evaluated && (definition.on_missing_run || !run.run.is_missing());
        let queue = self.ready.queue(run.workflow, step, evaluate);
        self.ready.push(queue, run.level, ReadyItem { run: slot, index, since: self.now, level: run.level }, front);
    }

    pub(crate) fn dispatch_all(&mut self, effects: &mut Vec<Effect>) {
        if self.draining {
            return;
        }
        let mut workers: Vec<WorkerId> = self.dispatch.workers.keys().copied().collect();
        workers.sort_unstable();
        for worker in workers {
            for kind in 0..self.plan.kinds.len() {
                while self.dispatch.workers[&worker].room[kind] > 0 {
                    if !self.give_one(worker, super::id(kind), effects) {
                        break;
                    }
                }
            }
        }
    }

    /// Gives one batch of a kind to a worker; false if there is nothing to give.
    fn give_one(&mut self, worker: WorkerId, kind: KindId, effects: &mut Vec<Effect>) -> bool {
        let (gates, budgets, limited) = (&self.gates, &self.budgets, &self.limits);
        let (plan, now, may_try) = (&self.plan, self.now, self.dispatch.can_start_trial());
        let passes = |queue: &Queue| gates.passes(queue, now) && budgets.admits(plan, queue);
        let allowed = |queue: &Queue| if passes(queue) { limited.allowed(queue) } else { 0 };
        let waiting = if self.facts.on { self.ready.waiting_levels(kind, now, allowed) } else { Vec::new() };
        let Some(pick) = self.ready.pick(kind, now, may_try, allowed) else {
            return false;
        };
        let (at, level) = (pick.queue, pick.level);
        let mut entries = std::mem::take(&mut self.dispatch.scratch);
        entries.clear();
        let queue = &mut self.ready.queues[at];
        let (workflow, step) = (queue.workflow, queue.step);
        let (mut trial, mut suspects) = (false, false);
        let permitted = self.limits.allowed(queue);
        if let Some(group) = queue.take_suspects(may_try, permitted) {
            (trial, suspects) = (group.len() == 1, true);
            entries.extend(group);
        } else {
            let max = (queue.batch_now as usize).min(self.gates.allowed(queue)).min(permitted);
            queue.take(level, max, &mut entries);
        }
        self.ready.note_served(pick, entries.len());
        let (level, items) = ((!suspects).then_some(level), entries.len());
        self.facts.note(|| Fact::Served { kind, level, items, waiting });
        let given = self.give(worker, kind, (at, workflow, step), (&entries, trial), effects);
        self.dispatch.scratch = entries;
        given
    }

    fn give(
        &mut self,
        worker: WorkerId,
        kind: KindId,
        (queue, workflow, step): (usize, usize, StepId),
        (entries, trial): (&[ReadyItem], bool),
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(plan) = entries.iter().find_map(|ready| self.runs.get(ready.run)).map(|run| run.plan.clone()) else {
            // All entries were of runs that are gone. The queue is shorter now: try again.
            return true;
        };
        let definition = &plan.graph.steps[step as usize];
        let mut held = Vec::with_capacity(entries.len());
        let mut items = Vec::with_capacity(if kind == EXPRESSION { 0 } else { entries.len() });
        let mut to_evaluate = Vec::new();
        let mut first = 0;
        for ready in entries {
            let Some(run) =
                self.runs.get(ready.run).filter(|run| run.phase == RunPhase::Open && run.level == ready.level)
            else {
                continue;
            };
            let (source, needs_stamp) = (run.source, definition.role == Role::Load || run.stamp.0 == 0);
            if !self.is_trusted(source) || self.sources[source as usize].leaving {
                self.sources[source as usize].stalled.push((queue, *ready));
                continue;
            }
            if kind == EXPRESSION {
                to_evaluate.push(self.to_evaluate(ready.run, step));
            } else {
                let stamp = if needs_stamp {
                    match self.draw_stamp(source, effects) {
                        Some(stamp) => stamp,
                        None => {
                            self.sources[source as usize].stalled.push((queue, *ready));
                            continue;
                        }
                    }
                } else {
                    run.stamp
                };
                let item = self.item(ready, step, stamp);
                self.note_given(ready, step, item.event.id);
                items.push(item);
            }
            let Some(run) = self.runs.get_mut(ready.run) else { continue };
            first += usize::from(run.find_extra(step, ready.index).is_none_or(|extra| extra.retries == 0));
            run.given = true;
            run.leased += 1;
            run.attempt += 1;
            held.push(HeldItem { run: ready.run, stamp: run.stamp, index: ready.index, attempt: run.attempt });
        }
        if held.is_empty() {
            // The queue is shorter now: try again.
            return true;
        }
        self.dispatch.next += 1;
        let batch = self.dispatch.next;
        if let Some(worker) = self.dispatch.workers.get_mut(&worker) {
            worker.room[kind as usize] -= 1;
        }
        let permits = self.limits.use_permits(&self.ready.queues[queue], held.len());
        if let Some(look_at) = self.gates.on_given(&self.ready.queues[queue], held.len(), self.now) {
            self.timers.set(look_at, Timer::Gate);
        }
        if kind != EXPRESSION {
            self.budgets.earn(self.ready.queues[queue].target, first);
        }
        self.counters.count_given(held.len());
        // The time-out of a wait step is the length of its wait; here the step is only evaluated.
        let timeout = if definition.role == Role::Wait { WAIT_EVALUATION } else { definition.timeout };
        self.timers.set(self.now.after(timeout + DEADLINE_GRACE), Timer::Batch(batch));
        if trial {
            self.dispatch.trial = Some(batch);
        }
        let finished_before = self.ready.queues[queue].finished;
        let given_at = self.now;
        self.dispatch
            .batches
            .insert(batch, HeldBatch { batch, worker, queue, kind, items: held, given_at, trial, finished_before });
        let work = if kind == EXPRESSION {
            Work::Evaluate { graph: plan.graph.clone(), step, items: to_evaluate }
        } else {
            let batch = Batch { workflow: plan.name.clone(), step: definition.name.clone(), items, timeout };
            Work::Execute { workflow, step, batch }
        };
        if crate::planted::on("PB-17") && definition.role == Role::Sink && kind != EXPRESSION {
            for ready in entries {
                let Some(run) = self.runs.get(ready.run) else { continue };
                let op = honeyflow_store::Op::Settle { events: self.row_ids(run), runs: Vec::new() };
                let source = run.source;
                self.push_op(source, op, super::settle::OnCommit::Nothing);
            }
        }
        effects.push(Effect::Give { worker, batch, kind, work, permits });
        true
    }

    fn item(&mut self, ready: &ReadyItem, step: StepId, stamp: honeyflow_event::Stamp) -> Item {
        let run = self.runs.get(ready.run).expect("looked up by the caller");
        let event = self.newest_event(run);
        let input = self.step_input(run, step, ready.index);
        let context = self.context_of(run, step, ready.index);
        let (entity, attempt) = (run.entity.clone(), run.attempt + 1);
        let install_id = self.plan.sources[run.source as usize].install_id;
        let key = self.keys.get(run.key).key.clone();
        let run = self.runs.get_mut(ready.run).expect("looked up by the caller");
        run.stamp = stamp;
        let sink = run.plan.graph.steps[step as usize].role == Role::Sink;
        let stamp = match crate::planted::on("PB-3") && sink {
            true => honeyflow_event::Stamp::new(stamp.epoch(), honeyflow_event::Stamp::SEQUENCE_MAX),
            false => stamp,
        };
        Item { install_id, entity, key, stamp, event, input, context, phase: 0, index: ready.index, attempt }
    }

    /// Returns the values that the step's own expressions name; in most steps there are none.
    fn context_of(&self, run: &RunState, step: StepId, index: u32) -> Option<Arc<Context>> {
        let graph = &run.plan.graph;
        let sees = &graph.steps[step as usize].sees;
        if *sees == ContextReads::default() {
            return None;
        }
        let each = run.extras.as_ref().and_then(|extras| extras.instances.iter().find(|each| each.step == step));
        let name = |id: &StepId| graph.steps[*id as usize].name.clone();
        Some(Arc::new(Context {
            event: sees.event.then(|| Arc::new(self.event_view(run).as_json())),
            run: sees.run.then(|| Arc::new(self.run_name(run).as_json())),
            steps: sees.steps.iter().map(|id| (name(id), run.output(*id))).collect(),
            item: each.filter(|_| sees.item).and_then(|each| each.items.get(index as usize).cloned().flatten()),
        }))
    }

    fn note_given(&mut self, ready: &ReadyItem, step: StepId, event: honeyflow_event::EventId) {
        let Some(run) = self.runs.get(ready.run).filter(|_| self.facts.on) else { return };
        let newest = self.row_ids(run).into_iter().max().unwrap_or(event);
        let (run, index) = (run.number, ready.index);
        self.facts.note(|| Fact::Given { run, step, index, event, newest });
    }

    fn to_evaluate(&self, slot: Slot, step: StepId) -> EvaluationItem {
        let run = self.runs.get(slot).expect("looked up by the caller");
        let (event, run_name) = (self.event_view(run), self.run_name(run));
        EvaluationItem { outputs: outputs(run), input: self.default_input(run, step), event, run: run_name }
    }

    /// Queues all items of the lost worker again: at once, and apart from other items.
    pub(crate) fn on_worker_lost(&mut self, worker: WorkerId) {
        self.dispatch.workers.remove(&worker);
        let mut lost: Vec<BatchId> =
            self.dispatch.batches.iter().filter(|(_, held)| held.worker == worker).map(|(id, _)| *id).collect();
        lost.sort_unstable();
        let cause = if lost.len() > 1 { Cause::SharedDeath } else { Cause::Death };
        for batch in lost {
            if let Some(held) = self.close_batch(batch) {
                self.suspect(&held, cause);
            }
        }
    }
}

/// Returns the stored outputs of the run's steps: only outputs that another step or expression reads are stored.
pub(crate) fn outputs(run: &RunState) -> Vec<(StepId, Document)> {
    run.plan.graph.ids().map(|id| (id, run.output(id))).filter(|(_, output)| output.is_some()).collect()
}

impl Core {
    /// Returns the input of a step.
    fn step_input(&self, run: &RunState, step: StepId, index: u32) -> Document {
        if run.run.is_missing() {
            return None;
        }
        if let Some(each) = run.extras.as_ref().and_then(|e| e.instances.iter().find(|each| each.step == step)) {
            return each.inputs.get(index as usize).cloned().flatten();
        }
        if let Some(input) = run.find_extra(step, index).and_then(|extra| extra.input.clone()) {
            return input;
        }
        self.default_input(run, step)
    }

    /// Returns the input of a step without an `input` expression: the event for a root, the need's output for one need,
    /// `{need: output}` for several; a sink takes the output of its first need.
    fn default_input(&self, run: &RunState, step: StepId) -> Document {
        let graph = &run.plan.graph;
        let role = graph.steps[step as usize].role;
        match graph.needs(step) {
            _ if role == Role::Load => None,
            [] => Some(Arc::new(self.event_view(run).as_json())),
            [(need, _)] => run.output(*need),
            [(need, _), ..] if role == Role::Sink => run.output(*need),
            needs => {
                let fields = needs.iter().map(|(need, _)| {
                    let output = run.output(*need).map_or(Value::Null, |output| (*output).clone());
                    (graph.steps[*need as usize].name.to_string(), output)
                });
                Some(Arc::new(Value::Object(fields.collect::<Map<_, _>>())))
            }
        }
    }
}

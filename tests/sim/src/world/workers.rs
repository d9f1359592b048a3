//! Workers: they execute a batch a little later; they answer late, twice, partly or never, and some batches kill them.

use honeyflow_engine::{
    core::{BatchId, Input, WorkerId, input::Work, plan::SourceId},
    shell::evaluate,
};
use honeyflow_event::Name;
use honeyflow_invariant::Breach;
use honeyflow_step::{Batch, Outcome};
use honeyflow_store::RunKey;
use honeyflow_workflow::{Checkpoint, StepId};

use super::{World, change, queue::Happening};
use crate::{
    model_store::shard_of,
    node::Worker,
    options::{MILLI, SECOND},
    shapes::PLACED,
    steps::{BatchResult, Surroundings},
    workload::store_of,
};

/// How a batch is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    after: u64,
    twice: bool,
    partial: bool,
    never: bool,
}

pub(super) fn workflow_of(work: &Work) -> Name {
    match work {
        Work::Execute { batch, .. } => batch.workflow.clone(),
        Work::Evaluate { graph, .. } => graph.name.clone(),
    }
}

impl World {
    pub(super) fn give(&mut self, who: usize, worker: WorkerId, batch: BatchId, work: Work) {
        let faults = self.options.steps.clone();
        let r = &mut self.random;
        let mut begin = 1 + r.below(faults.latency_us);
        let mut answer = Answer { after: 1 + r.below(faults.latency_us), twice: false, partial: false, never: false };
        if !self.healed {
            answer.twice = r.per_mille(faults.twice);
            answer.partial = r.per_mille(faults.partial);
            if r.per_mille(faults.slow) {
                begin += r.below(SECOND);
            }
            if r.per_mille(faults.late) {
                answer.after += r.between(SECOND, 12 * SECOND);
            }
            if let Some(worker) = self.incarnations[who].workers.get_mut(&worker) {
                answer.never = std::mem::take(&mut worker.hangs);
            }
        }
        self.after(begin, Happening::Works { who, worker, batch, work, answer });
    }

    pub(super) fn works(&mut self, who: usize, worker: WorkerId, batch: BatchId, work: Work, answer: Answer) {
        if let Some(wait) = self.deferred(who) {
            self.after(wait, Happening::Works { who, worker, batch, work, answer });
            return;
        }
        // Half of the work that a dead worker or node had begun still reaches its target.
        let alive = self.incarnations[who].is_alive() && self.incarnations[who].workers.contains_key(&worker);
        if !alive && batch.is_multiple_of(2) {
            return;
        }
        let input = match work {
            Work::Evaluate { graph, step, items } => {
                let wrong = items.iter().filter_map(change::wrong_view);
                self.history.breaches.extend(wrong.map(|what| Breach::new("WF-143", what)));
                Input::Evaluated { batch, results: evaluate::evaluate_all(&graph, step, &items) }
            }
            Work::Execute { workflow, step, batch: work } => {
                let workflow = self.shapes.number(workflow);
                if *self.shapes.workflows[workflow].graph.name == *PLACED {
                    let wrong = work.items.iter().filter_map(change::not_asked_for);
                    self.history.breaches.extend(wrong.map(|what| Breach::new("WF-142", what)));
                    let begun = work.items.iter().map(|item| (item.key.clone(), item.event.id));
                    self.history.placed.extend(begun);
                }
                let mut surroundings = Surroundings {
                    options: &self.options,
                    shapes: &self.shapes,
                    application: &self.application,
                    sinks: &mut self.sinks,
                    loads: &mut self.loads,
                    random: &mut self.random,
                    stores: &self.stores,
                    effects: &mut self.history.effects,
                    begun: &mut self.history.begun,
                    broken: self.broken.map(|(broken, _)| broken),
                    fatals: &mut self.stats.fatals,
                    faulty: !self.healed,
                    now: (self.now, self.stats.happenings),
                };
                let executed = surroundings.execute(workflow, step, &work);
                self.note_repeats(who, workflow, step, &work);
                for item in &work.items {
                    let (step, size) = (&work.step, work.items.len());
                    self.watch(&item.key, || {
                        format!("incarnation {who} batch {batch}/{size} executes {step}: {item:?}")
                    });
                }
                match executed {
                    BatchResult::Outcomes(outcomes) => Input::Outcomes { batch, outcomes },
                    BatchResult::Died if alive => return self.worker_dies_of(who, worker, batch),
                    BatchResult::Died => return,
                }
            }
        };
        if !alive || answer.never {
            return;
        }
        self.answer(who, input, answer);
    }

    /// Records a breach if a step runs again though its checkpoint was stored before the node took over the shard.
    fn note_repeats(&mut self, who: usize, workflow: usize, step: StepId, work: &Batch) {
        let graph = &self.shapes.workflows[workflow].graph;
        if graph[step].checkpoint != Checkpoint::Always {
            return;
        }
        for item in &work.items {
            let store = &self.stores[store_of(&item.entity)];
            let shard = shard_of(&item.key, store.shards);
            let planned = self
                .shapes
                .plan
                .sources
                .iter()
                .position(|source| source.port == store_of(&item.entity) && source.shard == shard);
            let source = SourceId::try_from(planned.unwrap_or(0)).unwrap_or(0);
            let Some(recovered_at) = self.incarnations[who].recovered_at.get(&source) else { continue };
            let run = RunKey {
                tenant: item.event.tenant.clone(),
                entity: item.entity.clone(),
                key: item.key.clone(),
                workflow: graph.name.clone(),
            };
            if store.was_done(&(run, work.step.clone(), item.index), item.event.id, *recovered_at) {
                let what = format!("{} {} of {} was done before, and is done again", work.step, item.index, item.key);
                self.history.breaches.push(Breach::new("WF-80", what));
            }
        }
    }

    fn answer(&mut self, who: usize, mut input: Input, answer: Answer) {
        if let (Input::Outcomes { outcomes, .. }, true) = (&mut input, answer.partial) {
            // A missing answer for a single item is a bad answer and counts as an attempt, so only larger batches are
            // cut.
            if outcomes.len() > 1 {
                outcomes.pop();
            }
        }
        if let (Input::Outcomes { batch, outcomes }, true) = (&input, answer.twice) {
            let again = Input::Outcomes { batch: *batch, outcomes: reordered(outcomes) };
            self.after(answer.after + 5 * MILLI, Happening::Hears { who, input: again });
        }
        self.after(answer.after, Happening::Hears { who, input });
    }

    fn worker_dies_of(&mut self, who: usize, worker: WorkerId, batch: BatchId) {
        if batch.is_multiple_of(2) {
            self.after(MILLI, Happening::Hears { who, input: Input::Unanswered { batch } });
        } else {
            self.worker_dies(who, worker);
        }
    }

    pub(super) fn worker_dies(&mut self, who: usize, worker: WorkerId) {
        if self.incarnations[who].workers.remove(&worker).is_some() {
            self.after(MILLI, Happening::Hears { who, input: Input::WorkerLost { worker } });
            self.after(100 * MILLI, Happening::NewWorker { who });
        }
    }

    pub(super) fn new_worker(&mut self, who: usize) {
        let incarnation = &mut self.incarnations[who];
        if !incarnation.is_alive() {
            return;
        }
        incarnation.next_worker += 1;
        let worker = incarnation.next_worker;
        incarnation.workers.insert(worker, Worker::default());
        let kinds = u16::try_from(self.shapes.plan.kinds.len()).unwrap_or(1);
        let room = (0..kinds).map(|kind| (kind, self.options.room)).collect();
        self.after(0, Happening::Hears { who, input: Input::Hello { worker, room } });
    }
}

/// The second answer of a worker that answers twice, which differs from the first.
fn reordered(outcomes: &[Outcome]) -> Vec<Outcome> {
    outcomes.iter().rev().cloned().collect()
}

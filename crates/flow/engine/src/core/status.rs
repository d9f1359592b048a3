//! The status of a node: counters and reasons to wait, made from the core's state.

use honeyflow_event::Name;
use honeyflow_runtime::{Class, Failure, Moment};
use honeyflow_workflow::StepId;
use serde::Serialize;

use super::{Core, gate::ClosedGate, plan::Plan, run::RunState, version_pin::StrandedVersion};

#[derive(Default)]
pub(crate) struct Counters {
    pub events: u64,
    pub merged: u64,
    pub unmatched: u64,
    /// Events that a workflow with `change` or `columns` passed over because the row does not say what changed.
    pub unknown_changes: u64,
    /// Events stored as signals.
    pub signals: u64,
    pub overflowed: u64,
    pub seen_again: u64,
    pub polls: u64,
    pub poll_failures: u64,
    pub sweeps: u64,
    pub writes: u64,
    pub write_failures: u64,
    pub fenced: u64,
    pub steps: u64,
    pub attempts: u64,
    pub batches: u64,
    pub parked: u64,
    pub forgotten: u64,
    /// Runs that were ended by their deadline.
    pub overdue: u64,
    pub leases_lost: u64,
    pub minted: u64,
    pub stale_answers: u64,
    pub stale_writes: u64,
    pub suspected: u64,
    pub timed_out: u64,
    pub breaker_closed: u64,
    pub retries: u64,
    pub rejects: u64,
    pub fatals: u64,
    last_store_failure: Option<Failure>,
    workflows: Vec<WorkflowCounters>,
}

#[derive(Clone, Default)]
struct WorkflowCounters {
    open: usize,
    ended: u64,
    run_micros: u64,
    steps: Vec<StepCounts>,
}

/// The results of a step's attempts.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct StepCounts {
    /// Times that the step has succeeded.
    pub done: u64,
    /// Attempts that failed because of the target: they are retried, and are not counted attempts.
    pub retried: u64,
    /// Attempts that failed because of the item or the configuration.
    pub failed: u64,
}

impl Counters {
    pub fn size(&mut self, plan: &Plan) {
        let sized =
            |steps| WorkflowCounters { steps: vec![StepCounts::default(); steps], ..WorkflowCounters::default() };
        self.workflows = plan.workflows.iter().map(|workflow| sized(workflow.graph.steps.len())).collect();
    }

    pub fn count_opened(&mut self, run: &RunState) {
        self.workflows[run.workflow].open += 1;
    }

    pub fn count_closed(&mut self, run: &RunState) {
        self.workflows[run.workflow].open -= 1;
    }

    pub fn count_ended_run(&mut self, run: &RunState, now: Moment) {
        let counts = &mut self.workflows[run.workflow];
        counts.ended += 1;
        counts.run_micros += u64::try_from(now.since(run.opened_at).as_micros()).unwrap_or(0);
    }

    pub fn open_runs(&self, workflow: usize) -> usize {
        self.workflows[workflow].open
    }

    pub fn count_given(&mut self, items: usize) {
        self.batches += 1;
        self.attempts += items as u64;
    }

    pub fn count_failed(&mut self, workflow: usize, step: StepId, class: Class) {
        let (all, of_step): (_, fn(&mut StepCounts) -> &mut u64) = match class {
            Class::Retry | Class::RetryAfter => (&mut self.retries, |counts| &mut counts.retried),
            Class::Reject => (&mut self.rejects, |counts| &mut counts.failed),
            Class::Fatal => (&mut self.fatals, |counts| &mut counts.failed),
        };
        *all += 1;
        if let Some(counts) = self.workflows[workflow].steps.get_mut(usize::from(step)) {
            *of_step(counts) += 1;
        }
    }

    /// A step has ended.
    pub fn count_ended_step(&mut self, workflow: usize, step: StepId, well: bool) {
        self.steps += 1;
        if let Some(counts) = self.workflows[workflow].steps.get_mut(usize::from(step)).filter(|_| well) {
            counts.done += 1;
        }
    }

    pub fn note_store_failure(&mut self, failure: &Failure) {
        self.last_store_failure = Some(failure.clone());
    }
}

/// The state of a node's core, for status, metrics and the page.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Status {
    pub open_runs: usize,
    pub settling_runs: usize,
    /// Runs that only wait, for a time or an event.
    pub dormant_runs: usize,
    pub rows_in_flight: usize,
    pub keys_in_work: usize,
    pub ready: usize,
    pub held_by_workers: usize,
    pub draining: bool,
    pub events: u64,
    pub merged: u64,
    pub unmatched: u64,
    pub unknown_changes: u64,
    pub attempts: u64,
    pub batches: u64,
    pub steps: u64,
    pub parked: u64,
    pub retries: u64,
    pub rejects: u64,
    pub fatals: u64,
    pub polls: u64,
    pub poll_failures: u64,
    pub sweeps: u64,
    pub writes: u64,
    pub write_failures: u64,
    pub fenced: u64,
    pub stale_answers: u64,
    pub stale_writes: u64,
    pub suspected: u64,
    pub timed_out: u64,
    pub leases_lost: u64,
    pub minted: u64,
    pub breaker_closed: u64,
    /// Runs that were ended by their deadline.
    pub overdue: u64,
    pub last_store_failure: Option<String>,
    pub closed: Vec<ClosedGate>,
    pub no_worker: Vec<StrandedVersion>,
    pub sources: Vec<SourceStatus>,
    pub workflows: Vec<WorkflowStatus>,
    /// Earlier versions of workflows, for the runs that continue by them.
    pub older: Vec<WorkflowStatus>,
    pub workers: Vec<WorkerStatus>,
}

#[derive(Clone, Debug, Serialize)]
pub struct WorkerStatus {
    pub id: u32,
    pub batches: usize,
    pub items: usize,
    /// For each kind, the number of further batches that it can take.
    pub room: Vec<(Name, u32)>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SourceStatus {
    pub name: Name,
    /// The number of its shards that this node owns.
    pub shards_owned: usize,
    pub shards: usize,
    /// The highest epoch of the shards that this node owns, with its sequence.
    pub epoch: Option<u64>,
    pub sequence: u32,
    pub in_flight: usize,
    pub held: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct WorkflowStatus {
    pub name: Name,
    pub version: u32,
    pub open: usize,
    pub ended: u64,
    pub mean_run_ms: f64,
    /// For each step, the number of items that are ready and wait for a worker.
    pub ready: Vec<usize>,
    /// The counts of each step.
    pub steps: Vec<StepCounts>,
}

impl Core {
    pub fn status(&self) -> Status {
        let c = &self.counters;
        let settling = self.runs.iter().filter(|(_, run)| run.phase == super::run::RunPhase::Settling).count();
        Status {
            open_runs: self.runs.len(),
            settling_runs: settling,
            dormant_runs: self.dormant_runs(),
            rows_in_flight: self.rows.len(),
            keys_in_work: self.keys.len(),
            ready: self.ready.waiting() + self.sources.iter().map(|source| source.stalled.len()).sum::<usize>(),
            held_by_workers: self.dispatch.batches.values().map(|held| held.items.len()).sum(),
            draining: self.draining,
            events: c.events,
            merged: c.merged,
            unmatched: c.unmatched,
            unknown_changes: c.unknown_changes,
            attempts: c.attempts,
            batches: c.batches,
            steps: c.steps,
            parked: c.parked,
            retries: c.retries,
            rejects: c.rejects,
            fatals: c.fatals,
            polls: c.polls,
            poll_failures: c.poll_failures,
            sweeps: c.sweeps,
            writes: c.writes,
            write_failures: c.write_failures,
            fenced: c.fenced,
            stale_answers: c.stale_answers,
            stale_writes: c.stale_writes,
            suspected: c.suspected,
            timed_out: c.timed_out,
            leases_lost: c.leases_lost,
            minted: c.minted,
            breaker_closed: c.breaker_closed,
            overdue: c.overdue,
            last_store_failure: c.last_store_failure.as_ref().map(|failure| failure.message.clone()),
            closed: self.closed_gates(),
            no_worker: self.stranded_versions(),
            sources: self.source_status(),
            workers: self.worker_status(),
            workflows: self.workflow_statuses(false),
            older: self.workflow_statuses(true),
        }
    }

    fn closed_gates(&self) -> Vec<ClosedGate> {
        let crowded = self.budgets.crowded_targets().map(|(target, delayed)| ClosedGate {
            name: self.plan.targets[target].clone(),
            reason: "crowded",
            detail: format!("{delayed} items wait to be retried; no run that leads there begins until there are fewer"),
        });
        let gates = self.gates.closed_gates(&self.plan, self.now).into_iter().chain(self.limits.closed_gates(self.now));
        gates.chain(crowded).chain(self.stranded_gates()).collect()
    }

    fn source_status(&self) -> Vec<SourceStatus> {
        let mut all: Vec<SourceStatus> = Vec::new();
        for (plan, state) in self.plan.sources.iter().zip(&self.sources) {
            let epoch = state.term.as_ref().map(|term| term.epoch().0);
            let held = state.poll.held.iter().map(|(entity, why)| format!("{entity}: {why}"));
            if let Some(source) = all.last_mut().filter(|source| source.name == plan.name) {
                source.shards += 1;
                source.shards_owned += usize::from(epoch.is_some());
                source.in_flight += state.in_flight.len();
                if epoch > source.epoch {
                    (source.epoch, source.sequence) = (epoch, state.sequence);
                }
                for held in held.filter(|held| !source.held.contains(held)).collect::<Vec<_>>() {
                    source.held.push(held);
                }
            } else {
                all.push(SourceStatus {
                    name: plan.name.clone(),
                    shards_owned: usize::from(epoch.is_some()),
                    shards: 1,
                    epoch,
                    sequence: state.sequence,
                    in_flight: state.in_flight.len(),
                    held: held.collect(),
                });
            }
        }
        all
    }

    fn workflow_statuses(&self, older: bool) -> Vec<WorkflowStatus> {
        let wanted = self.plan.workflows.iter().enumerate().filter(|(_, plan)| plan.older == older);
        wanted.map(|(at, plan)| self.workflow_status(at, plan)).collect()
    }

    fn worker_status(&self) -> Vec<WorkerStatus> {
        let mut workers: Vec<WorkerStatus> = self
            .dispatch
            .workers
            .iter()
            .map(|(id, worker)| {
                let held = || self.dispatch.batches.values().filter(|held| held.worker == *id);
                WorkerStatus {
                    id: *id,
                    batches: held().count(),
                    items: held().map(|held| held.items.len()).sum(),
                    room: self.plan.kinds.iter().cloned().zip(worker.room.iter().copied()).collect(),
                }
            })
            .collect();
        workers.sort_by_key(|worker| worker.id);
        workers
    }

    fn workflow_status(&self, at: usize, plan: &super::plan::WorkflowPlan) -> WorkflowStatus {
        let counts = &self.counters.workflows[at];
        #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
        let mean = if counts.ended == 0 { 0.0 } else { counts.run_micros as f64 / counts.ended as f64 / 1000.0 };
        let ready = |step| {
            let step = super::id(step);
            [true, false].map(|evaluate| self.ready.queues[self.ready.queue(at, step, evaluate)].len()).iter().sum()
        };
        WorkflowStatus {
            name: plan.name.clone(),
            version: plan.graph.version,
            open: counts.open,
            ended: counts.ended,
            mean_run_ms: mean,
            ready: (0..plan.graph.steps.len()).map(ready).collect(),
            steps: counts.steps.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_by_step_and_in_total() {
        let of_workflow = WorkflowCounters { steps: vec![StepCounts::default(); 2], ..WorkflowCounters::default() };
        let mut counters = Counters { workflows: vec![of_workflow], ..Counters::default() };
        for class in [Class::Retry, Class::RetryAfter, Class::Reject, Class::Fatal] {
            counters.count_failed(0, 1, class);
        }
        counters.count_ended_step(0, 1, true);
        counters.count_ended_step(0, 1, false);
        counters.count_ended_step(0, 0, true);
        let steps = &counters.workflows[0].steps;
        assert_eq!(steps[0], StepCounts { done: 1, retried: 0, failed: 0 });
        assert_eq!(steps[1], StepCounts { done: 1, retried: 2, failed: 2 });
        assert_eq!((counters.steps, counters.retries, counters.rejects, counters.fatals), (3, 2, 1, 1));
        counters.count_failed(0, 9, Class::Reject);
        assert_eq!(counters.rejects, 2, "a step of another version is counted in all");
    }
}

//! The reason why a run waits, derived from where its steps are: at a worker, in a queue, at a timer or in a write. A
//! run that is in none of these would wait for ever; the simulator checks that there is none.

use hashbrown::{HashMap, HashSet};

use super::{
    Core,
    plan::{EXPRESSION, KindId, SourceId},
    run::{RunPhase, RunState},
};
use crate::slots::Slot;

/// A queue that contains a step of the run; `on_trial` if the step is a suspect that waits to be tried alone.
#[derive(Clone, Copy)]
struct QueuedStep {
    queue: usize,
    on_trial: bool,
}

#[derive(Default)]
pub(crate) struct RunPlaces {
    leased: HashSet<Slot>,
    queued: HashMap<Slot, Vec<QueuedStep>>,
    /// Runs with steps taken from their queue until the shard can draw stamps again.
    stalled: HashSet<Slot>,
    timed: HashSet<Slot>,
    written: HashSet<Slot>,
}

/// Where the steps of a run are: lets the simulator check the reason that `waits_for` gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunLocation {
    pub run: u64,
    pub waits_for: &'static str,
    pub settling: bool,
    pub leased: bool,
    pub queued: bool,
    /// A step of it is a suspect that waits to be tried alone.
    pub tried: bool,
    pub timed: bool,
    pub written: bool,
    /// The kind of a step that could be given out now if a worker had room for it.
    pub could_go: Option<KindId>,
}

impl Core {
    pub(crate) fn run_places(&self) -> RunPlaces {
        let mut places = RunPlaces::default();
        for held in self.dispatch.batches.values() {
            places.leased.extend(held.items.iter().map(|item| item.run));
        }
        let queues = self.ready.queues.iter().enumerate();
        let in_queues =
            queues.flat_map(|(at, queue)| queue.entries().map(move |(ready, on_trial)| (at, ready, on_trial)));
        let stalled = self.sources.iter().flat_map(|source| &source.stalled).map(|(at, ready)| (*at, ready, false));
        for (queue, ready, on_trial) in in_queues.chain(stalled) {
            if self.runs.get(ready.run).is_some_and(|run| run.level == ready.level) {
                places.queued.entry(ready.run).or_default().push(QueuedStep { queue, on_trial });
            }
        }
        places.timed.extend(self.timers.waiting().chain(self.waits.waiting()).map(|waiting| waiting.run));
        for source in &self.sources {
            places.stalled.extend(source.stalled.iter().map(|(_, ready)| ready.run));
            source.settling.collect_runs(&mut places.written);
        }
        places
    }

    /// Returns the reason why the run waits; every open run has one. Progress goes before waiting: a run with one step
    /// at a worker is `working`.
    pub(crate) fn reason(&self, slot: Slot, run: &RunState, places: &RunPlaces) -> &'static str {
        if run.phase == RunPhase::Settling {
            return "settling";
        }
        if run.phase == RunPhase::Cancelling {
            return "cancelling";
        }
        if places.leased.contains(&slot) {
            return "working";
        }
        if let Some(queued) = places.queued.get(&slot).and_then(|queued| queued.first()) {
            return self.reason_in_queue(run, queued.queue);
        }
        if places.stalled.contains(&slot) {
            return "shard-moving";
        }
        if places.written.contains(&slot) {
            return "settling";
        }
        if run.waits_for_event() {
            return "awaiting";
        }
        if places.timed.contains(&slot) {
            let failed = |extra: &super::run::StepExtra| extra.counted_attempts > 0 || extra.retries > 0;
            let failed = run.extras.as_ref().is_some_and(|extras| extras.steps.iter().any(failed));
            return if failed { "back-off" } else { "delay" };
        }
        "nothing"
    }

    /// Whether steps of a source may be given out: not while its lease is not trusted, it is to be transferred to
    /// another node, or a new epoch is awaited.
    fn can_give_out(&self, source: SourceId) -> bool {
        let state = &self.sources[source as usize];
        !self.draining && self.is_trusted(source) && !state.leaving && !state.awaits_epoch()
    }

    fn reason_in_queue(&self, run: &RunState, queue: usize) -> &'static str {
        let queue = &self.ready.queues[queue];
        let closed = self.gates.reason(queue.workflow, queue.target, queue.kind == EXPRESSION, queue.begins, self.now);
        if let Some(reason) = closed {
            return reason;
        }
        if !self.budgets.admits(&self.plan, queue) {
            return "crowded";
        }
        if !self.can_give_out(run.source) {
            return "shard-moving";
        }
        if self.limits.is_waiting(queue, self.now) {
            return "limit";
        }
        // A worker that is full counts too: it still executes this kind.
        let offered = |worker: &super::dispatch::Worker| worker.offers(queue.kind);
        if self.dispatch.workers.values().any(offered) { "behind" } else { "no-worker" }
    }

    /// Returns where every open run is, and for each kind whether a worker has room; for the simulator's checks.
    pub fn run_locations(&self) -> (Vec<RunLocation>, Vec<bool>) {
        let places = self.run_places();
        let one = |(slot, run): (Slot, &RunState)| {
            let queued = places.queued.get(&slot);
            let free = |queued: &&QueuedStep| {
                let queue = &self.ready.queues[queued.queue];
                let passes = self.gates.passes(queue, self.now) && self.budgets.admits(&self.plan, queue);
                let held = self.limits.is_waiting(queue, self.now);
                self.can_give_out(run.source) && !queued.on_trial && passes && !held
            };
            let could_go = queued.and_then(|queued| queued.iter().find(free));
            RunLocation {
                run: run.number,
                waits_for: self.reason(slot, run, &places),
                settling: run.phase == RunPhase::Settling,
                leased: places.leased.contains(&slot),
                queued: queued.is_some() || places.stalled.contains(&slot),
                tried: queued.is_some_and(|queued| queued.iter().any(|queued| queued.on_trial)),
                timed: places.timed.contains(&slot) || run.has_pending_answers(),
                written: places.written.contains(&slot),
                could_go: could_go.filter(|_| run.phase == RunPhase::Open).map(|at| self.ready.queues[at.queue].kind),
            }
        };
        let room = (0..self.plan.kinds.len())
            .map(|kind| self.dispatch.workers.values().any(|worker| worker.room[kind] > 0))
            .collect();
        (self.runs.iter().map(one).collect(), room)
    }

    /// Returns for each worker and kind the number of batches offered, free and held.
    pub fn slots(&self) -> Vec<(super::WorkerId, KindId, u32, u32, u32)> {
        let mut slots = Vec::new();
        for (id, worker) in &self.dispatch.workers {
            for kind in 0..super::id(self.plan.kinds.len()) {
                let of_kind = |held: &&super::dispatch::HeldBatch| held.worker == *id && held.kind == kind;
                let held = self.dispatch.batches.values().filter(of_kind).count();
                let (offered, free) = (worker.offered[kind as usize], worker.room[kind as usize]);
                slots.push((*id, kind, offered, free, u32::try_from(held).unwrap_or(u32::MAX)));
            }
        }
        slots
    }
}

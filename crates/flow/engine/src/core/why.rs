//! Why a run waits, told from where its steps are. They are with a worker, in a queue, at a timer or in a write: a run
//! that is nowhere would wait for ever, and whoever checks the core asks for that.

use hashbrown::{HashMap, HashSet};

use super::{
    Core,
    plan::{EXPRESSION, KindId, SourceId},
    run::{Life, RunState},
};
use crate::slots::Slot;

/// A queue in which a step of the run stands; `tried` while it waits for its turn to be tried alone.
#[derive(Clone, Copy)]
struct Queued {
    queue: usize,
    tried: bool,
}

#[derive(Default)]
pub(crate) struct Places {
    leased: HashSet<Slot>,
    queued: HashMap<Slot, Vec<Queued>>,
    /// Taken from its queue until the shard can give stamps again.
    stalled: HashSet<Slot>,
    timed: HashSet<Slot>,
    written: HashSet<Slot>,
}

/// Where a run is, for whoever checks what it is said to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whereabouts {
    pub run: u64,
    pub waits_for: &'static str,
    pub settling: bool,
    pub leased: bool,
    pub queued: bool,
    /// It waits for its turn to be tried alone.
    pub tried: bool,
    pub timed: bool,
    pub written: bool,
    /// A step that could be given out now, if only a worker asked for its kind.
    pub could_go: Option<KindId>,
}

impl Core {
    pub(crate) fn places(&self) -> Places {
        let mut places = Places::default();
        for held in self.dispatch.batches.values() {
            places.leased.extend(held.items.iter().map(|item| item.run));
        }
        let queues = self.ready.queues.iter().enumerate();
        let in_queues = queues.flat_map(|(at, queue)| queue.entries().map(move |(ready, tried)| (at, ready, tried)));
        let stalled = self.sources.iter().flat_map(|source| &source.stalled).map(|(at, ready)| (*at, ready, false));
        for (queue, ready, tried) in in_queues.chain(stalled) {
            if self.runs.get(ready.run).is_some_and(|run| run.level == ready.level) {
                places.queued.entry(ready.run).or_default().push(Queued { queue, tried });
            }
        }
        places.timed.extend(self.timers.waiting().chain(self.waits.waiting()).map(|waiting| waiting.run));
        for source in &self.sources {
            places.stalled.extend(source.stalled.iter().map(|(_, ready)| ready.run));
            source.settling.each_run(&mut places.written);
        }
        places
    }

    /// Every open run has one. What can be done goes before what holds: a run with one step in work works.
    pub(crate) fn reason(&self, slot: Slot, run: &RunState, places: &Places) -> &'static str {
        if run.life == Life::Settling {
            return "settling";
        }
        if run.life == Life::Cancelling {
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
        if run.awaits() {
            return "awaiting";
        }
        if places.timed.contains(&slot) {
            let failed = |extra: &super::run::StepExtra| extra.charges > 0 || extra.retries > 0;
            let failed = run.extras.as_ref().is_some_and(|extras| extras.steps.iter().any(failed));
            return if failed { "back-off" } else { "delay" };
        }
        "nothing"
    }

    /// Nothing of a source is given out while its lease is not trusted, another node is to have it, or an epoch is
    /// awaited.
    fn gives_out(&self, source: SourceId) -> bool {
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
        if !self.gives_out(run.source) {
            return "shard-moving";
        }
        if self.limited.holds(queue, self.now) {
            return "limit";
        }
        // Room that is taken up by batches counts: whoever offered it still does.
        let offered = |worker: &super::dispatch::Worker| worker.offers(queue.kind);
        if self.dispatch.workers.values().any(offered) { "behind" } else { "no-worker" }
    }

    /// Where every open run is, and for which kinds a worker has room: for whoever checks the core.
    pub fn whereabouts(&self) -> (Vec<Whereabouts>, Vec<bool>) {
        let places = self.places();
        let one = |(slot, run): (Slot, &RunState)| {
            let queued = places.queued.get(&slot);
            let free = |queued: &&Queued| {
                let queue = &self.ready.queues[queued.queue];
                let passes = self.gates.passes(queue, self.now) && self.budgets.admits(&self.plan, queue);
                let held = self.limited.holds(queue, self.now);
                self.gives_out(run.source) && !queued.tried && passes && !held
            };
            let could_go = queued.and_then(|queued| queued.iter().find(free));
            Whereabouts {
                run: run.number,
                waits_for: self.reason(slot, run, &places),
                settling: run.life == Life::Settling,
                leased: places.leased.contains(&slot),
                queued: queued.is_some() || places.stalled.contains(&slot),
                tried: queued.is_some_and(|queued| queued.iter().any(|queued| queued.tried)),
                timed: places.timed.contains(&slot) || run.is_asked(),
                written: places.written.contains(&slot),
                could_go: could_go.filter(|_| run.life == Life::Open).map(|at| self.ready.queues[at.queue].kind),
            }
        };
        let room = (0..self.plan.kinds.len())
            .map(|kind| self.dispatch.workers.values().any(|worker| worker.room[kind] > 0))
            .collect();
        (self.runs.iter().map(one).collect(), room)
    }

    /// By worker and kind: batches offered, free and held.
    pub fn slots(&self) -> Vec<(super::WorkerId, KindId, u32, u32, u32)> {
        let mut slots = Vec::new();
        for (id, worker) in &self.dispatch.workers {
            for kind in 0..super::id(self.plan.kinds.len()) {
                let of_kind = |held: &&super::dispatch::Held| held.worker == *id && held.kind == kind;
                let held = self.dispatch.batches.values().filter(of_kind).count();
                let (offered, free) = (worker.offered[kind as usize], worker.room[kind as usize]);
                slots.push((*id, kind, offered, free, u32::try_from(held).unwrap_or(u32::MAX)));
            }
        }
        slots
    }
}

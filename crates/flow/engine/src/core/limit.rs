//! Permits of named limits. The core requests them when a step could be given out. Each granted permit either goes out
//! with a batch or goes back within the same input: none is stored, because permits expire.
//!
//! | what happened                         | what follows                                                     |
//! |---------------------------------------|------------------------------------------------------------------|
//! | a step is ready and a worker has room | a permit per item is requested, one request at a time per limit  |
//! | m of n are granted                    | m items go out, by priority; the others wait in their queues     |
//! | some fit no ready step any more       | they are given back                                              |
//! | none is granted                       | the gate stays closed for as long as the limit said              |
//!
//! A slot of a concurrency limit goes out with its batch and is free again when the batch has ended in any way: the
//! batch names the permits it has ([`BatchPermits`]), and the worker keeps them until then.
//!
//! Waiting for a permit is no attempt and no failure, and delays no step that has another limit or none.

use std::time::Duration;

use honeyflow_event::Name;
use honeyflow_runtime::Moment;

use super::{
    Core,
    gate::ClosedGate,
    input::{BatchPermits, Effect, TakeId},
    plan::Plan,
    ready::Queue,
    timer::Timer,
};

pub type LimitId = u16;

/// If granted permits fitted no step, the next request waits this long.
const UNFIT_WAIT: Duration = Duration::from_millis(50);
/// A limit that is used up is asked again after this long at the latest: it may have been raised.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The most permits in one request.
const PERMITS_MAX: u64 = 10_000;

pub(crate) struct LimitPermits {
    pub names: Vec<Name>,
    limits: Vec<Permits>,
    takes: TakeId,
}

#[derive(Clone, Copy, Default, Debug)]
struct Permits {
    /// The request under way.
    requested: Option<TakeId>,
    /// Permits granted for the request `granted_by` and not given out yet.
    granted: u64,
    granted_by: TakeId,
    /// No request is made before this time.
    again_at: Moment,
}

/// Returns the names of all limits that steps use; the index is the [`LimitId`].
pub(crate) fn names(plan: &Plan) -> Vec<Name> {
    let steps = plan.workflows.iter().flat_map(|workflow| &workflow.graph.steps);
    let mut names: Vec<Name> = steps.filter_map(|step| step.limit.clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl LimitPermits {
    pub fn new(plan: &Plan) -> LimitPermits {
        let names = names(plan);
        LimitPermits { limits: vec![Permits::default(); names.len()], names, takes: 0 }
    }

    /// Returns how many items of this queue may go out now.
    pub fn allowed(&self, queue: &Queue) -> usize {
        match queue.limit {
            None => usize::MAX,
            Some(limit) => usize::try_from(self.limits[usize::from(limit)].granted).unwrap_or(usize::MAX),
        }
    }

    /// Uses one permit per item; `None` if the queue has no limit.
    pub fn use_permits(&mut self, queue: &Queue, items: usize) -> Option<BatchPermits> {
        let at = usize::from(queue.limit?);
        let permits = &mut self.limits[at];
        permits.granted = permits.granted.saturating_sub(items as u64);
        Some(BatchPermits { limit: self.names[at].clone(), take: permits.granted_by, permits: items as u64 })
    }

    /// Whether the queue waits for its limit.
    pub fn is_waiting(&self, queue: &Queue, now: Moment) -> bool {
        queue.limit.is_some_and(|limit| {
            let permits = &self.limits[usize::from(limit)];
            permits.requested.is_some() || permits.again_at > now
        })
    }

    pub fn closed_gates(&self, now: Moment) -> impl Iterator<Item = ClosedGate> + '_ {
        let held = self.names.iter().zip(&self.limits).filter(move |(_, permits)| permits.again_at > now);
        held.map(move |(name, permits)| {
            let wait = permits.again_at.since(now);
            ClosedGate {
                name: name.clone(),
                reason: "limit",
                detail: format!("used up; the next request is in {wait:?}"),
            }
        })
    }
}

impl Core {
    pub(crate) fn on_permits(&mut self, limit: &Name, take: TakeId, granted: u64, wait: Option<Duration>) {
        let Some(at) = self.limits.names.iter().position(|name| name == limit) else { return };
        let permits = &mut self.limits.limits[at];
        if permits.requested != Some(take) {
            return;
        }
        *permits = Permits { requested: None, granted, granted_by: take, again_at: permits.again_at };
        if let Some(wait) = wait {
            permits.again_at = self.now.after(wait.min(WAIT_MAX));
            let at = permits.again_at;
            self.timers.set(at, Timer::Gate);
        }
    }

    /// Gives back the permits that no step could use, and requests new ones. Runs after all batches were given out.
    pub(crate) fn return_and_request_permits(&mut self, effects: &mut Vec<Effect>) {
        for at in 0..self.limits.limits.len() {
            let Permits { granted, granted_by, .. } = self.limits.limits[at];
            if granted > 0 {
                let limit = self.limits.names[at].clone();
                self.limits.limits[at].granted = 0;
                let again_at = self.now.after(UNFIT_WAIT);
                self.limits.limits[at].again_at = self.limits.limits[at].again_at.max(again_at);
                self.timers.set(again_at, Timer::Gate);
                effects.push(Effect::GiveBack { limit, take: granted_by, permits: granted });
            }
            self.request_permits(at, effects);
        }
    }

    fn request_permits(&mut self, at: usize, effects: &mut Vec<Effect>) {
        let permits = &self.limits.limits[at];
        if self.draining || permits.requested.is_some() || permits.again_at > self.now {
            return;
        }
        let wanted = self.wanted_permits(super::id(at)).min(PERMITS_MAX);
        if wanted > 0 {
            self.limits.takes += 1;
            let take = self.limits.takes;
            self.limits.limits[at].requested = Some(take);
            effects.push(Effect::Take { limit: self.limits.names[at].clone(), take, permits: wanted });
        }
    }

    /// Returns how many items workers would take now if the limit allowed it.
    fn wanted_permits(&self, limit: LimitId) -> u64 {
        let may_try = self.dispatch.can_start_trial();
        let queues = self.ready.queues.iter().filter(|queue| queue.limit == Some(limit));
        let passes = |queue: &Queue| self.gates.passes(queue, self.now) && self.budgets.admits(&self.plan, queue);
        let open = queues.filter(|queue| passes(queue));
        let each = open.map(|queue| {
            let room: u32 = self.dispatch.workers.values().map(|worker| worker.room[usize::from(queue.kind)]).sum();
            let batches = u64::from(room) * u64::from(queue.batch_now);
            (queue.ready(may_try) as u64).min(batches).min(self.gates.allowed(queue) as u64)
        });
        each.sum()
    }
}

//! Permits of named limits. They are asked for when a step could be given out, and either go out with a batch or go back
//! within the same input: none is kept, for they spoil.
//!
//! | what happened                         | what follows                                                     |
//! |---------------------------------------|------------------------------------------------------------------|
//! | a step is ready and a worker has room | so many permits are asked for, one question at a time and limit   |
//! | m of n are granted                    | m go, by priority; the others wait in their queues                |
//! | some find nobody any more             | they go back                                                      |
//! | none, for now                         | the gate stays closed for as long as the limit said               |
//!
//! What a limit on how many at once gives out goes with its batch, and is free again when that has ended, however it
//! did: the batch says whose permits it has ([`Under`]), and whoever works on it keeps them.
//!
//! Waiting for a permit is no attempt and no failure, and holds up nobody whose step has another limit, or none.

use std::time::Duration;

use honeyflow_event::Name;
use honeyflow_runtime::Moment;

use super::{
    Core,
    gate::Closed,
    input::{Effect, TakeId, Under},
    plan::Plan,
    ready::Queue,
    timer::Timer,
};

pub type LimitId = u16;

/// Permits that came and fitted nobody are not asked for again at once.
const UNFIT_WAIT: Duration = Duration::from_millis(50);
/// A limit that is gone for the moment is asked again after this long at the latest: it may have been raised.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// In one question.
const PERMITS_MAX: u64 = 10_000;

pub(crate) struct Limited {
    pub names: Vec<Name>,
    limits: Vec<Permits>,
    takes: TakeId,
}

#[derive(Clone, Copy, Default, Debug)]
struct Permits {
    /// The question under way.
    asked: Option<TakeId>,
    /// Granted by this one, and not given out yet.
    granted: u64,
    granted_by: TakeId,
    /// Nothing is asked for before this.
    again_at: Moment,
}

/// All that steps name, by their numbers.
pub(crate) fn names(plan: &Plan) -> Vec<Name> {
    let steps = plan.workflows.iter().flat_map(|workflow| &workflow.graph.steps);
    let mut names: Vec<Name> = steps.filter_map(|step| step.limit.clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl Limited {
    pub fn new(plan: &Plan) -> Limited {
        let names = names(plan);
        Limited { limits: vec![Permits::default(); names.len()], names, takes: 0 }
    }

    /// How many items of this queue may go out now.
    pub fn allowed(&self, queue: &Queue) -> usize {
        match queue.limit {
            None => usize::MAX,
            Some(limit) => usize::try_from(self.limits[usize::from(limit)].granted).unwrap_or(usize::MAX),
        }
    }

    /// One permit each; nothing if the queue has no limit.
    pub fn used(&mut self, queue: &Queue, items: usize) -> Option<Under> {
        let at = usize::from(queue.limit?);
        let permits = &mut self.limits[at];
        permits.granted = permits.granted.saturating_sub(items as u64);
        Some(Under { limit: self.names[at].clone(), take: permits.granted_by, permits: items as u64 })
    }

    /// It is a limit that keeps this queue waiting.
    pub fn holds(&self, queue: &Queue, now: Moment) -> bool {
        queue.limit.is_some_and(|limit| {
            let permits = &self.limits[usize::from(limit)];
            permits.asked.is_some() || permits.again_at > now
        })
    }

    pub fn closed(&self, now: Moment) -> impl Iterator<Item = Closed> + '_ {
        let held = self.names.iter().zip(&self.limits).filter(move |(_, permits)| permits.again_at > now);
        held.map(move |(name, permits)| {
            let wait = permits.again_at.since(now);
            Closed { name: name.clone(), reason: "limit", detail: format!("used up; asked again in {wait:?}") }
        })
    }
}

impl Core {
    pub(crate) fn permitted(&mut self, limit: &Name, take: TakeId, granted: u64, wait: Option<Duration>) {
        let Some(at) = self.limited.names.iter().position(|name| name == limit) else { return };
        let permits = &mut self.limited.limits[at];
        if permits.asked != Some(take) {
            return;
        }
        *permits = Permits { asked: None, granted, granted_by: take, again_at: permits.again_at };
        if let Some(wait) = wait {
            permits.again_at = self.now.after(wait.min(WAIT_MAX));
            let at = permits.again_at;
            self.timers.set(at, Timer::Gate);
        }
    }

    /// After everything that could go has gone.
    pub(crate) fn see_to_permits(&mut self, effects: &mut Vec<Effect>) {
        for at in 0..self.limited.limits.len() {
            let Permits { granted, granted_by, .. } = self.limited.limits[at];
            if granted > 0 {
                let limit = self.limited.names[at].clone();
                self.limited.limits[at].granted = 0;
                let again_at = self.now.after(UNFIT_WAIT);
                self.limited.limits[at].again_at = self.limited.limits[at].again_at.max(again_at);
                self.timers.set(again_at, Timer::Gate);
                effects.push(Effect::GiveBack { limit, take: granted_by, permits: granted });
            }
            self.ask_for_permits(at, effects);
        }
    }

    fn ask_for_permits(&mut self, at: usize, effects: &mut Vec<Effect>) {
        let permits = &self.limited.limits[at];
        if self.draining || permits.asked.is_some() || permits.again_at > self.now {
            return;
        }
        let wanted = self.wanted(super::id(at)).min(PERMITS_MAX);
        if wanted > 0 {
            self.limited.takes += 1;
            let take = self.limited.takes;
            self.limited.limits[at].asked = Some(take);
            effects.push(Effect::Take { limit: self.limited.names[at].clone(), take, permits: wanted });
        }
    }

    /// What workers would take now, if only the limit let it go.
    fn wanted(&self, limit: LimitId) -> u64 {
        let may_try = self.dispatch.may_try();
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

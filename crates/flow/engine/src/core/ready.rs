//! The queues of ready steps: two per step of a workflow (before and after its expressions), each ordered by priority.
//! A stale entry is dropped when it is taken out.
//!
//! An entry of levels 1 to 6 rises one level per 30 s of waiting, at most three levels. Of each kind, a level with work
//! gets at least 5 % of the items given out ([`super::share`]). Among the workflows of a level, the one served longest
//! ago goes first.

use std::{collections::VecDeque, time::Duration};

use honeyflow_event::{PRIORITY_LEVELS, Priority};
use honeyflow_runtime::Moment;
use honeyflow_workflow::{Role, StepId};

use super::{
    fact::WaitingLevel,
    limit::LimitId,
    plan::{EXPRESSION, KindId, Plan, TargetId},
    share::{Shares, Turn},
};
use crate::slots::Slot;

const RISES_MAX: u128 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadyItem {
    pub run: Slot,
    pub index: u32,
    pub since: Moment,
    /// The level at which it was queued. If the run has a better level by now, it was queued there too and this entry
    /// is stale.
    pub level: Priority,
}

pub(crate) struct Queue {
    pub workflow: usize,
    pub step: StepId,
    pub kind: KindId,
    pub target: TargetId,
    /// Each item given out takes a permit of this limit.
    pub limit: Option<LimitId>,
    /// Runs begin with this step: it has no needs.
    pub begins: bool,
    levels: [VecDeque<ReadyItem>; PRIORITY_LEVELS],
    /// Suspects: items of batches that were not answered. Each group is given out as a batch, apart from other items.
    pub suspects: VecDeque<Vec<ReadyItem>>,
    len: usize,
    pub batch_max: u32,
    /// The batch size, adjusted to the step's duration so that a batch takes about
    /// [`super::plan::Limits::batch_target`].
    pub batch_now: u32,
    /// The number of batches answered so far.
    pub finished: u64,
    /// When each level was served last, as a number of batches.
    served_at: [u64; PRIORITY_LEVELS],
}

impl Queue {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns all entries of the queue, each with `true` if it is a suspect that waits to be tried alone.
    pub fn entries(&self) -> impl Iterator<Item = (&ReadyItem, bool)> {
        let fresh = self.levels.iter().flatten().map(|ready| (ready, false));
        fresh.chain(self.suspects.iter().flat_map(|group| group.iter().map(|ready| (ready, group.len() == 1))))
    }

    /// Returns the turn of this queue, whose index is `at`, at a level with work.
    fn turn(&self, at: usize, level: usize, allowed: usize) -> Option<Turn> {
        let items = self.levels[level].len().min(self.batch_now as usize).min(allowed);
        (items > 0).then_some(Turn { served_at: self.served_at[level], queue: at, items })
    }

    fn effective_level(&self, level: usize, now: Moment, rises_after: Duration) -> usize {
        let Some(head) = self.levels[level].front() else { return usize::MAX };
        if !(1..=6).contains(&level) || crate::planted::on("PB-41") {
            return level;
        }
        let rises = (now.since(head.since).as_millis() / rises_after.as_millis().max(1)).min(RISES_MAX);
        level.saturating_sub(usize::try_from(rises).unwrap_or(0))
    }

    /// Takes up to `max` entries, first those of `level`, then by priority.
    pub fn take(&mut self, level: usize, max: usize, out: &mut Vec<ReadyItem>) {
        for level in std::iter::once(level).chain(0..PRIORITY_LEVELS) {
            let count = self.levels[level].len().min(max - out.len());
            out.extend(self.levels[level].drain(..count));
            self.len -= count;
        }
    }

    /// Returns the first group that may go out. A single suspect is a trial, and only one trial runs at a time; a limit
    /// of `max` items can make a trial of a larger group.
    fn next_suspects(&self, may_try: bool, max: usize) -> Option<usize> {
        self.suspects.iter().position(|group| may_try || group.len().min(max) > 1)
    }

    pub fn take_suspects(&mut self, may_try: bool, max: usize) -> Option<Vec<ReadyItem>> {
        let at = self.next_suspects(may_try, max)?;
        let group = self.suspects.get_mut(at)?;
        let taken = if group.len() > max { group.drain(..max).collect() } else { self.suspects.remove(at)? };
        self.len -= taken.len();
        Some(taken)
    }

    /// Returns how many items could be given out, apart from gates and limits.
    pub fn ready(&self, may_try: bool) -> usize {
        let held_back = self.suspects.iter().filter(|group| !may_try && group.len() == 1).count();
        self.len - held_back
    }

    pub fn push_suspects(&mut self, group: Vec<ReadyItem>) {
        self.len += group.len();
        self.suspects.push_back(group);
    }
}

pub(crate) struct ReadyQueues {
    pub queues: Vec<Queue>,
    /// The index of each workflow's first queue. Each step has two queues: before and after its expressions.
    first: Vec<usize>,
    by_kind: Vec<Vec<usize>>,
    served: u64,
    rises_after: Duration,
    /// The shares of the levels, by kind of step.
    shares: Vec<Shares>,
}

/// The queue and level to serve next.
#[derive(Clone, Copy)]
pub(crate) struct Pick {
    pub queue: usize,
    pub level: usize,
    /// A better level has work, but this one is owed its share.
    is_share: bool,
}

impl ReadyQueues {
    pub fn new(plan: &Plan) -> ReadyQueues {
        let mut all = ReadyQueues {
            queues: Vec::new(),
            first: Vec::new(),
            by_kind: vec![Vec::new(); plan.kinds.len()],
            served: 0,
            rises_after: plan.limits.rises_after,
            shares: vec![Shares::default(); plan.kinds.len()],
        };
        let limits = super::limit::names(plan);
        for (workflow, planned) in plan.workflows.iter().enumerate() {
            all.first.push(all.queues.len());
            for (step, definition) in planned.graph.steps.iter().enumerate() {
                let kinds = [EXPRESSION, planned.kinds[step]];
                let limit = definition.limit.as_ref().and_then(|name| limits.binary_search(name).ok()).map(super::id);
                for kind in kinds {
                    let batch_max = definition.batch_max.max(1);
                    all.by_kind[kind as usize].push(all.queues.len());
                    all.queues.push(Queue {
                        workflow,
                        step: super::id(step),
                        kind,
                        target: planned.targets[step],
                        limit: limit.filter(|_| kind != EXPRESSION),
                        begins: planned.graph.needs(super::id(step)).is_empty(),
                        levels: std::array::from_fn(|_| VecDeque::new()),
                        suspects: VecDeque::new(),
                        len: 0,
                        batch_max,
                        batch_now: batch_max,
                        finished: 0,
                        served_at: [0; PRIORITY_LEVELS],
                    });
                }
            }
        }
        all
    }

    pub fn queue(&self, workflow: usize, step: StepId, evaluate: bool) -> usize {
        self.first[workflow] + usize::from(step) * 2 + usize::from(!evaluate)
    }

    pub fn push(&mut self, queue: usize, level: Priority, ready: ReadyItem, front: bool) {
        let queue = &mut self.queues[queue];
        queue.len += 1;
        let level = &mut queue.levels[usize::from(level).min(PRIORITY_LEVELS - 1)];
        if front { level.push_front(ready) } else { level.push_back(ready) }
    }

    /// Returns the queue and level to serve next for a kind, among the queues for which `allowed` is not zero.
    pub fn pick(&self, kind: KindId, now: Moment, may_try: bool, allowed: impl Fn(&Queue) -> usize) -> Option<Pick> {
        let mut best: Option<((usize, usize, u64), usize)> = None;
        let mut turns = [None; PRIORITY_LEVELS];
        for at in &self.by_kind[kind as usize] {
            let queue = &self.queues[*at];
            let allowed = if queue.len == 0 { 0 } else { allowed(queue) };
            if allowed == 0 {
                continue;
            }
            if queue.next_suspects(may_try, allowed).is_some() {
                return Some(Pick { queue: *at, level: 0, is_share: false });
            }
            for (level, turn) in turns.iter_mut().enumerate() {
                let Some(next) = queue.turn(*at, level, allowed) else { continue };
                let rank = (queue.effective_level(level, now, self.rises_after), level, next.served_at);
                if best.is_none_or(|(other, _)| rank < other) {
                    best = Some((rank, *at));
                }
                *turn = Some(turn.map_or(next, |other: Turn| other.min(next)));
            }
        }
        let ((_, level, _), queue) = best?;
        match self.shares[kind as usize].owed(&turns, level) {
            Some((owed, turn)) => Some(Pick { queue: turn.queue, level: owed, is_share: owed != level }),
            None => Some(Pick { queue, level, is_share: false }),
        }
    }

    /// Returns the levels of a kind with work that could go out; for the simulator's checks.
    pub fn waiting_levels(&self, kind: KindId, now: Moment, allowed: impl Fn(&Queue) -> usize) -> Vec<WaitingLevel> {
        let queues = self.by_kind[kind as usize].iter().map(|at| (*at, &self.queues[*at]));
        let open: Vec<_> = queues.filter(|(_, queue)| queue.len > 0 && allowed(queue) > 0).collect();
        let of_level = |level: usize| {
            let heads = open.iter().filter_map(|(_, queue)| queue.levels[level].front());
            let turns = open.iter().filter_map(|(at, queue)| queue.turn(*at, level, allowed(queue)));
            Some(WaitingLevel {
                level,
                waited: now.since(heads.map(|head| head.since).min()?),
                items: turns.min()?.items,
            })
        };
        (0..PRIORITY_LEVELS).filter_map(of_level).collect()
    }

    pub fn note_served(&mut self, pick: Pick, count: usize) {
        self.served += 1;
        self.queues[pick.queue].served_at[pick.level] = self.served;
        let kind = self.queues[pick.queue].kind as usize;
        let waits = |level: usize| self.by_kind[kind].iter().any(|at| !self.queues[*at].levels[level].is_empty());
        let waiting = std::array::from_fn(waits);
        self.shares[kind].note_served(pick.level, count, pick.is_share, waiting);
    }

    pub fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.len).sum()
    }
}

/// Whether the step has expressions to evaluate before it can be given out.
pub(crate) fn must_evaluate(step: &honeyflow_workflow::Step) -> bool {
    step.when.is_some()
        || step.for_each.is_some()
        || step.input.is_some()
        || matches!(step.role, Role::Sleep | Role::Emit | Role::Wait)
}

//! The queues of ready steps: two per step of a workflow (before and after its expressions), each ordered by priority.
//! A stale entry is dropped when it is taken out.
//!
//! An entry of levels 1 to 6 rises one level per 30 s of waiting, at most three levels. Each level with work gets at
//! least 5 % of the items given out. Among workflows, the one served longest ago goes first.

use std::{collections::VecDeque, time::Duration};

use honeyflow_event::{PRIORITY_LEVELS, Priority};
use honeyflow_runtime::Moment;
use honeyflow_workflow::{Role, StepId};

use super::{
    limit::LimitId,
    plan::{EXPRESSION, KindId, Plan, TargetId},
};
use crate::slots::Slot;

const AGES_AFTER: Duration = Duration::from_secs(30);
const RISES_MAX: u64 = 3;
const SHARE_PERCENT: u64 = 5;

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
    served_at: u64,
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

    fn effective_level(&self, level: usize, now: Moment) -> usize {
        let Some(head) = self.levels[level].front() else { return usize::MAX };
        if !(1..=6).contains(&level) {
            return level;
        }
        let rises = (now.since(head.since).as_secs() / AGES_AFTER.as_secs()).min(RISES_MAX);
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
    credit: [u64; PRIORITY_LEVELS],
}

impl ReadyQueues {
    pub fn new(plan: &Plan) -> ReadyQueues {
        let mut all = ReadyQueues {
            queues: Vec::new(),
            first: Vec::new(),
            by_kind: vec![Vec::new(); plan.kinds.len()],
            served: 0,
            credit: [0; PRIORITY_LEVELS],
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
                        served_at: 0,
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
    pub fn pick(
        &self,
        kind: KindId,
        now: Moment,
        may_try: bool,
        allowed: impl Fn(&Queue) -> usize,
    ) -> Option<(usize, usize)> {
        let mut best: Option<((usize, usize, u64), usize, usize)> = None;
        let mut starving: Option<(usize, usize)> = None;
        for at in &self.by_kind[kind as usize] {
            let queue = &self.queues[*at];
            let allowed = if queue.len == 0 { 0 } else { allowed(queue) };
            if allowed == 0 {
                continue;
            }
            if queue.next_suspects(may_try, allowed).is_some() {
                return Some((*at, 0));
            }
            for level in 0..PRIORITY_LEVELS {
                if queue.levels[level].is_empty() {
                    continue;
                }
                let owed = queue.levels[level].len().min(queue.batch_now as usize) as u64 * 100;
                if self.credit[level] >= owed {
                    starving.get_or_insert((*at, level));
                }
                let rank = (queue.effective_level(level, now), level, queue.served_at);
                if best.as_ref().is_none_or(|(other, ..)| rank < *other) {
                    best = Some((rank, *at, level));
                }
            }
        }
        starving.or(best.map(|(_, at, level)| (at, level)))
    }

    pub fn note_served(&mut self, queue: usize, level: usize, count: usize) {
        self.served += 1;
        self.queues[queue].served_at = self.served;
        let count = count as u64;
        let waiting: [bool; PRIORITY_LEVELS] =
            std::array::from_fn(|level| self.queues.iter().any(|queue| !queue.levels[level].is_empty()));
        for (other, waits) in waiting.into_iter().enumerate() {
            if other == level || !waits {
                self.credit[other] = 0;
            } else {
                self.credit[other] = (self.credit[other] + count * SHARE_PERCENT).min(100_000_000);
            }
        }
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

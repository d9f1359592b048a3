//! Timers for groups of items, batches and gates. Items that wait for the same time share one timer.

use std::{cmp::Reverse, collections::BinaryHeap};

use honeyflow_runtime::Moment;

use super::{input::BatchId, plan::TargetId};
use crate::slots::Slot;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// Items that failed together are tried again together.
    Cohort(Vec<WaitingStep>),
    /// The same for retries of a target, within its retry budget.
    Retries(TargetId, Vec<WaitingStep>),
    /// A worker has held the batch past its deadline.
    Batch(BatchId),
    /// A cancelled run no longer waits for the answers to its attempts.
    Grace(Slot),
    /// A gate may open.
    Gate,
}

/// A step of a run that waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct WaitingStep {
    pub run: Slot,
    pub step: u16,
    pub index: u32,
}

#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Moment, u64, Timer)>>,
    number: u64,
}

impl Timers {
    pub fn set(&mut self, at: Moment, timer: Timer) {
        self.number += 1;
        self.heap.push(Reverse((at, self.number, timer)));
    }

    pub fn next(&self) -> Moment {
        self.heap.peek().map_or(Moment::FAR, |Reverse((at, ..))| *at)
    }

    /// Returns the steps that wait for a timer.
    pub fn waiting(&self) -> impl Iterator<Item = &WaitingStep> {
        self.heap.iter().flat_map(|Reverse((_, _, timer))| match timer {
            Timer::Cohort(waiting) | Timer::Retries(_, waiting) => waiting.as_slice(),
            Timer::Batch(_) | Timer::Grace(_) | Timer::Gate => &[],
        })
    }

    pub fn pop_due(&mut self, now: Moment) -> Option<Timer> {
        if self.next() > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, _, timer))| timer)
    }
}

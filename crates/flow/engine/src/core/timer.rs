//! Timers of cohorts, batches and gates; never of single items.

use std::{cmp::Reverse, collections::BinaryHeap};

use honeyflow_runtime::Moment;

use super::{input::BatchId, plan::TargetId};
use crate::slots::Slot;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// Items that failed together come back together.
    Cohort(Vec<Waiting>),
    /// The same for a target's retries, as far as its budget goes.
    Retries(TargetId, Vec<Waiting>),
    /// A batch has been held for too long.
    Batch(BatchId),
    /// A cancelled run has waited long enough for the answers of its attempts.
    Grace(Slot),
    /// A gate may open.
    Gate,
}

/// A step of a run that waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Waiting {
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

    /// Steps that wait for their time.
    pub fn waiting(&self) -> impl Iterator<Item = &Waiting> {
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

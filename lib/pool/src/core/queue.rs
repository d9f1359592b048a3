//! The queue of waiters, ordered by arrival shifted by class. A higher class goes first, but only by its head start, so
//! no waiter waits for ever. Inside a class, waiters are served in the order of their arrival.
//!
//! Arrivals of one class come in order, so each class is a plain queue, and the next waiter is the earliest of three
//! heads. A waiter that leaves from the middle leaves a gap. The gap is dropped when it reaches the front, or when
//! there are more gaps than waiters.

use std::{collections::VecDeque, time::Duration};

use honeyflow_runtime::Moment;

use super::slot_map::Key;

/// How urgent a request is, compared with other waiting requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Class {
    High,
    #[default]
    Normal,
    Low,
}

impl Class {
    pub const ALL: [Class; 3] = [Class::High, Class::Normal, Class::Low];

    /// The time that is added to the arrival.
    pub const fn handicap(self) -> Duration {
        match self {
            Class::High => Duration::ZERO,
            Class::Normal => Duration::from_secs(1),
            Class::Low => Duration::from_secs(4),
        }
    }
}

/// A position in the queue. A request keeps it for its whole life, also when it is put back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct QueuePosition {
    pub arrival: Moment,
    pub sequence: u64,
}

#[derive(Debug, Default)]
pub struct Queue {
    classes: [ClassQueue; 3],
}

#[derive(Debug, Default)]
struct ClassQueue {
    entries: VecDeque<(QueuePosition, Key)>,
    live: usize,
}

/// Whether a waiter in the queue can be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaiterFit {
    Yes,
    No,
    /// The waiter has left the queue.
    Gone,
}

impl ClassQueue {
    #[inline]
    fn first(&mut self, fits: impl Fn(Key) -> WaiterFit) -> Option<(QueuePosition, Key)> {
        let mut at = 0;
        loop {
            let found = *self.entries.get(at)?;
            match fits(found.1) {
                WaiterFit::Yes => return Some(found),
                WaiterFit::Gone if at == 0 => {
                    self.entries.pop_front();
                }
                WaiterFit::No | WaiterFit::Gone => at += 1,
            }
        }
    }
}

impl Queue {
    #[inline]
    pub fn put(&mut self, class: Class, position: QueuePosition, waiter: Key) {
        let line = &mut self.classes[class as usize];
        line.live += 1;
        if line.entries.back().is_none_or(|(last, _)| *last < position) {
            line.entries.push_back((position, waiter));
        } else {
            // A waiter that is put back returns to its old position, near the front.
            let at = line.entries.partition_point(|(other, _)| *other < position);
            line.entries.insert(at, (position, waiter));
        }
    }

    /// Notes that a waiter has left; `waits` says whether a waiter is still queued.
    #[inline]
    pub fn remove(&mut self, class: Class, waiter: Key, waits: impl Fn(Key) -> bool) {
        let line = &mut self.classes[class as usize];
        line.live = line.live.saturating_sub(1);
        if line.live == 0 {
            line.entries.clear();
        } else if line.entries.front().is_some_and(|(_, first)| *first == waiter) {
            line.entries.pop_front();
        } else if line.entries.len() > 2 * line.live + 32 {
            line.entries.retain(|(_, waiter)| waits(*waiter));
        }
    }

    /// The first waiter that fits. Drops gaps at the front of each class. The caller removes the waiter with
    /// [`Queue::remove`].
    #[inline]
    pub fn first(&mut self, fits: impl Fn(Key) -> WaiterFit) -> Option<(QueuePosition, Key)> {
        let mut best: Option<(QueuePosition, Key)> = None;
        for line in self.classes.iter_mut().filter(|line| line.live > 0) {
            let found = line.first(&fits);
            if best.is_none_or(|best| found.is_some_and(|found| found.0 < best.0)) {
                best = found;
            }
        }
        best
    }

    pub fn last(&self, waits: impl Fn(Key) -> bool) -> Option<(QueuePosition, Key)> {
        let lasts = self.classes.iter().filter_map(|line| line.entries.iter().rev().find(|(_, waiter)| waits(*waiter)));
        lasts.max_by_key(|(position, _)| *position).copied()
    }

    pub fn len(&self) -> usize {
        self.classes.iter().map(|line| line.live).sum()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.classes.iter().all(|line| line.live == 0)
    }

    pub fn len_of(&self, class: Class) -> usize {
        self.classes[class as usize].live
    }

    /// The number of waiters of this class and of higher ones.
    pub fn ahead_of(&self, class: Class) -> usize {
        Class::ALL.iter().filter(|other| **other <= class).map(|other| self.len_of(*other)).sum()
    }
}

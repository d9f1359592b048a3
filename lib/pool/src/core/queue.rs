//! The order of waiters: by arrival, shifted by class. A higher class goes first, but only by its head start, so nobody
//! waits for ever; inside a class nobody is overtaken.
//!
//! Arrivals of one class come in order, so each class is a plain queue and the next waiter is the earliest of three
//! heads. Whoever leaves from the middle leaves a gap, which is dropped when it comes to the front or gaps prevail.

use std::{collections::VecDeque, time::Duration};

use honeyflow_runtime::Moment;

use super::slots::Key;

/// How urgent a request is, compared with others that wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Class {
    High,
    #[default]
    Normal,
    Low,
}

impl Class {
    pub const ALL: [Class; 3] = [Class::High, Class::Normal, Class::Low];

    /// How much later it counts as having arrived.
    pub const fn handicap(self) -> Duration {
        match self {
            Class::High => Duration::ZERO,
            Class::Normal => Duration::from_secs(1),
            Class::Low => Duration::from_secs(4),
        }
    }
}

/// A place in the order; kept for as long as the request lives, also when it is put back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    pub arrival: Moment,
    pub sequence: u64,
}

#[derive(Debug, Default)]
pub struct Queue {
    classes: [Line; 3],
}

#[derive(Debug, Default)]
struct Line {
    entries: VecDeque<(Place, Key)>,
    live: usize,
}

/// What is known of one who stands in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fits {
    Yes,
    No,
    /// It has left.
    Gone,
}

impl Line {
    #[inline]
    fn first(&mut self, fits: impl Fn(Key) -> Fits) -> Option<(Place, Key)> {
        let mut at = 0;
        loop {
            let found = *self.entries.get(at)?;
            match fits(found.1) {
                Fits::Yes => return Some(found),
                Fits::Gone if at == 0 => {
                    self.entries.pop_front();
                }
                Fits::No | Fits::Gone => at += 1,
            }
        }
    }
}

impl Queue {
    #[inline]
    pub fn put(&mut self, class: Class, place: Place, waiter: Key) {
        let line = &mut self.classes[class as usize];
        line.live += 1;
        if line.entries.back().is_none_or(|(last, _)| *last < place) {
            line.entries.push_back((place, waiter));
        } else {
            // Put back: its old place is among the first.
            let at = line.entries.partition_point(|(other, _)| *other < place);
            line.entries.insert(at, (place, waiter));
        }
    }

    /// Takes note that a waiter has left; `waits` tells who still does.
    #[inline]
    pub fn left(&mut self, class: Class, waiter: Key, waits: impl Fn(Key) -> bool) {
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

    /// The first who may be served; gaps at the fronts are dropped on the way. To be taken with [`Queue::left`].
    #[inline]
    pub fn first(&mut self, fits: impl Fn(Key) -> Fits) -> Option<(Place, Key)> {
        let mut best: Option<(Place, Key)> = None;
        for line in self.classes.iter_mut().filter(|line| line.live > 0) {
            let found = line.first(&fits);
            if best.is_none_or(|best| found.is_some_and(|found| found.0 < best.0)) {
                best = found;
            }
        }
        best
    }

    pub fn last(&self, waits: impl Fn(Key) -> bool) -> Option<(Place, Key)> {
        let lasts = self.classes.iter().filter_map(|line| line.entries.iter().rev().find(|(_, waiter)| waits(*waiter)));
        lasts.max_by_key(|(place, _)| *place).copied()
    }

    pub fn len(&self) -> usize {
        self.classes.iter().map(|line| line.live).sum()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.classes.iter().all(|line| line.live == 0)
    }

    pub fn of(&self, class: Class) -> usize {
        self.classes[class as usize].live
    }

    /// Those of this class and of higher ones.
    pub fn ahead_of(&self, class: Class) -> usize {
        Class::ALL.iter().filter(|other| **other <= class).map(|other| self.of(*other)).sum()
    }
}

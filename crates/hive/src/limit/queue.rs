//! The waiters of one key: higher classes first, in order of arrival within a class, and each until its deadline.

use std::collections::VecDeque;

/// The longest queue of a key; further requests are refused.
pub const WAITERS_MAX: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Class {
    High,
    #[default]
    Normal,
    Low,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// The request waits for an answer of the store, but not for permits.
    Immediate,
    /// The request waits for permits until its deadline.
    UntilDeadline,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiter<W> {
    /// Identifies the caller, who gets the result.
    pub token: W,
    pub cost: u64,
    /// The most slots that it takes if more than the cost are free; for permits the same as the cost.
    pub up_to: u64,
    pub class: Class,
    pub patience: Patience,
    pub since_ns: u64,
    pub deadline_ns: u64,
}

pub struct Queue<W> {
    classes: [VecDeque<Waiter<W>>; 3],
}

impl<W> Default for Queue<W> {
    fn default() -> Queue<W> {
        Queue { classes: [const { VecDeque::new() }; 3] }
    }
}

impl<W> Queue<W> {
    pub fn len(&self) -> usize {
        self.classes.iter().map(VecDeque::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.classes.iter().all(VecDeque::is_empty)
    }

    pub fn push(&mut self, waiter: Waiter<W>) {
        self.classes[waiter.class as usize].push_back(waiter);
    }

    /// Puts a waiter back to the front of its class.
    pub fn push_front(&mut self, waiter: Waiter<W>) {
        self.classes[waiter.class as usize].push_front(waiter);
    }

    pub fn head(&self) -> Option<&Waiter<W>> {
        self.classes.iter().find_map(VecDeque::front)
    }

    pub fn pop(&mut self) -> Option<Waiter<W>> {
        self.classes.iter_mut().find_map(VecDeque::pop_front)
    }

    pub fn cost(&self) -> u64 {
        self.classes.iter().flatten().map(|waiter| waiter.cost).fold(0, u64::saturating_add)
    }

    /// The sum of the most that all waiters would take, which may be more than their cost.
    pub fn up_to(&self) -> u64 {
        self.classes.iter().flatten().map(|waiter| waiter.up_to.max(waiter.cost)).fold(0, u64::saturating_add)
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.classes.iter().flatten().map(|waiter| waiter.deadline_ns).min()
    }

    /// Removes the waiters that match, in order.
    pub fn remove(&mut self, mut matches: impl FnMut(&Waiter<W>) -> bool) -> Vec<Waiter<W>> {
        let mut removed = Vec::new();
        for class in &mut self.classes {
            let (out, kept) = std::mem::take(class).into_iter().partition(&mut matches);
            *class = kept;
            removed.extend(VecDeque::into_iter(out));
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(token: u32, class: Class, deadline_ns: u64) -> Waiter<u32> {
        Waiter { token, cost: 2, up_to: 3, class, patience: Patience::UntilDeadline, since_ns: 0, deadline_ns }
    }

    /// HV-69
    #[test]
    fn hv_69_classes_first_then_arrival() {
        let mut queue = Queue::default();
        queue.push(waiter(1, Class::Low, 9));
        queue.push(waiter(2, Class::Normal, 5));
        queue.push(waiter(3, Class::High, 7));
        queue.push(waiter(4, Class::High, 8));
        assert_eq!((queue.len(), queue.cost(), queue.up_to(), queue.deadline_ns()), (4, 8, 12, Some(5)));
        assert_eq!(queue.remove(|waiter| waiter.deadline_ns <= 5).len(), 1);
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop().map(|waiter| waiter.token)).collect();
        assert_eq!(order, [3, 4, 1]);
    }
}

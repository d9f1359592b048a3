//! Who waits for permits of one key: better classes first, in order of arrival within a class, nobody past its deadline.

use std::collections::VecDeque;

/// Every queue has an end; who comes later is refused.
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
    /// Waits for the store's word, not for permits.
    Door,
    /// Waits for permits, until its deadline.
    Step,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiter<W> {
    /// Whoever is to be told.
    pub token: W,
    pub cost: u64,
    /// Of slots it takes up to so many, if more than the cost are there.
    pub wish: u64,
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

    /// Back to where it was, before those of its class.
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

    /// With what would be taken beyond the cost.
    pub fn wish(&self) -> u64 {
        self.classes.iter().flatten().map(|waiter| waiter.wish.max(waiter.cost)).fold(0, u64::saturating_add)
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.classes.iter().flatten().map(|waiter| waiter.deadline_ns).min()
    }

    /// Takes out those that match, in order.
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
        Waiter { token, cost: 2, wish: 3, class, patience: Patience::Step, since_ns: 0, deadline_ns }
    }

    /// HV-69
    #[test]
    fn hv_69_classes_first_then_arrival() {
        let mut queue = Queue::default();
        queue.push(waiter(1, Class::Low, 9));
        queue.push(waiter(2, Class::Normal, 5));
        queue.push(waiter(3, Class::High, 7));
        queue.push(waiter(4, Class::High, 8));
        assert_eq!((queue.len(), queue.cost(), queue.wish(), queue.deadline_ns()), (4, 8, 12, Some(5)));
        assert_eq!(queue.remove(|waiter| waiter.deadline_ns <= 5).len(), 1);
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop().map(|waiter| waiter.token)).collect();
        assert_eq!(order, [3, 4, 1]);
    }
}

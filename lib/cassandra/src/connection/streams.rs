//! The stream numbers of a connection, and the requests that use them. A number is free again only when its answer has
//! come.

#[derive(Debug)]
pub struct Streams<T> {
    taken: Vec<Option<T>>,
    /// A stack, so that few and small numbers are in use.
    free: Vec<u16>,
    max: usize,
}

impl<T> Streams<T> {
    pub fn new(max: u16) -> Self {
        let max = usize::from(max.clamp(1, super::settings::STREAMS_MAX));
        Self { taken: Vec::new(), free: Vec::new(), max }
    }

    pub fn has_free(&self) -> bool {
        !self.free.is_empty() || self.taken.len() < self.max
    }

    pub fn len(&self) -> usize {
        self.taken.len() - self.free.len()
    }

    /// Takes a free number; `None` if all are in use.
    pub fn take(&mut self, by: T) -> Option<i16> {
        if let Some(number) = self.free.pop() {
            self.taken[usize::from(number)] = Some(by);
            return i16::try_from(number).ok();
        }
        if self.taken.len() >= self.max {
            return None;
        }
        self.taken.push(Some(by));
        i16::try_from(self.taken.len() - 1).ok()
    }

    /// Frees a number and returns its request; `None` if it was not in use.
    pub fn free(&mut self, stream: i16) -> Option<T> {
        let number = u16::try_from(stream).ok()?;
        let user = self.taken.get_mut(usize::from(number))?.take()?;
        self.free.push(number);
        Some(user)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.taken.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn cq_1_a_number_is_given_again_only_after_it_was_freed() {
        let mut streams = Streams::new(3);
        let numbers: BTreeSet<i16> = (0..3).map(|n| streams.take(n).unwrap()).collect();
        assert_eq!(numbers.len(), 3);
        assert_eq!((streams.take(9), streams.has_free()), (None, false));
        assert_eq!(streams.free(1), Some(1));
        assert_eq!(streams.free(1), None);
        assert_eq!(streams.take(4), Some(1));
        assert_eq!(streams.len(), 3);
    }

    #[test]
    fn cq_1_a_number_that_was_not_taken_cannot_be_freed() {
        let mut streams = Streams::<()>::new(3);
        streams.take(()).unwrap();
        for stream in [1, 2, 3, i16::MAX, -1, i16::MIN] {
            assert_eq!(streams.free(stream), None);
        }
        assert_eq!(Streams::<()>::new(u16::MAX).max, 32_768);
    }
}

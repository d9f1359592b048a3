//! The instances of one `for-each` step: which may start, and whether the step as a whole has succeeded.
//!
//! A skipped instance ends with `ok`: its output is `null`, but it did not fail.

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instances {
    count: u32,
    parallel: u32,
    tolerate: u32,
    /// The next instance to start; all before it were started.
    next: u32,
    running: u32,
    ended: u32,
    failed: u32,
    /// One bit per instance that was started and has not ended.
    open: Vec<u64>,
    /// One bit per instance that has succeeded: it is not started again.
    over: Vec<u64>,
}

impl Instances {
    /// `parallel` is raised to at least 1. Without instances, [`Instances::verdict`] is there at once.
    pub fn new(count: u32, parallel: u32, tolerate: u32) -> Instances {
        let words = (count as usize).div_ceil(64);
        let parallel = parallel.max(1);
        let (open, over) = (vec![0; words], vec![0; words]);
        Instances { count, parallel, tolerate, next: 0, running: 0, ended: 0, failed: 0, open, over }
    }

    /// Restores instances of which some have succeeded before, according to the journal.
    pub fn restore(count: u32, parallel: u32, tolerate: u32, ended: impl IntoIterator<Item = u32>) -> Instances {
        let mut instances = Instances::new(count, parallel, tolerate);
        for index in ended {
            if index < count && !instances.is_over(index) {
                instances.over[index as usize / 64] |= 1 << (index % 64);
                instances.ended += 1;
            }
        }
        instances
    }

    /// Lets all running and failed instances be started again.
    pub fn reopen(&mut self) {
        self.open.fill(0);
        let failed = std::mem::take(&mut self.failed);
        (self.next, self.running, self.ended) = (0, 0, self.ended - failed);
    }

    fn is_over(&self, index: u32) -> bool {
        self.over[index as usize / 64] & (1 << (index % 64)) != 0
    }

    /// Returns the next index to start, if there is one and fewer than `parallel` run.
    #[expect(clippy::should_implement_trait, reason = "None means not now; a later call may return an index")]
    pub fn next(&mut self) -> Option<u32> {
        while self.next < self.count && self.is_over(self.next) {
            self.next += 1;
        }
        if self.next == self.count || self.running >= self.parallel {
            return None;
        }
        let index = self.next;
        self.open[index as usize / 64] |= 1 << (index % 64);
        self.next += 1;
        self.running += 1;
        Some(index)
    }

    /// Ends an instance. Returns the step's verdict if it was the last one. An index that is not open changes nothing.
    pub fn end(&mut self, index: u32, ok: bool) -> Option<bool> {
        let word = self.open.get_mut(index as usize / 64)?;
        let bit = 1 << (index % 64);
        if *word & bit == 0 {
            return None;
        }
        *word &= !bit;
        self.running -= 1;
        self.ended += 1;
        if ok {
            self.over[index as usize / 64] |= bit;
        } else {
            self.failed += 1;
        }
        self.verdict()
    }

    /// Returns whether the step has succeeded, once all instances have ended; at once if there are none.
    pub fn verdict(&self) -> Option<bool> {
        (self.ended == self.count).then_some(self.failed <= self.tolerate)
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn failed(&self) -> u32 {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wf_8_at_most_parallel_instances_are_open() {
        let mut instances = Instances::new(5, 2, 0);
        assert_eq!((instances.next(), instances.next(), instances.next()), (Some(0), Some(1), None));
        assert_eq!(instances.end(1, true), None);
        assert_eq!((instances.next(), instances.next()), (Some(2), None));
        for index in [0, 2] {
            assert_eq!(instances.end(index, true), None);
        }
        assert_eq!((instances.next(), instances.next(), instances.next()), (Some(3), Some(4), None));
        assert_eq!(instances.end(4, true), None);
        assert_eq!(instances.end(3, true), Some(true));
        assert_eq!(instances.next(), None);
    }

    #[test]
    fn wf_8_an_empty_list_is_a_success() {
        assert_eq!(Instances::new(0, 64, 0).verdict(), Some(true));
        assert_eq!(Instances::new(1, 64, 0).verdict(), None);
    }

    #[test]
    fn wf_9_failures_up_to_tolerate_are_forgiven() {
        for (failures, tolerate, verdict) in [(0, 0, true), (1, 0, false), (2, 2, true), (3, 2, false)] {
            let mut instances = Instances::new(100, 100, tolerate);
            while instances.next().is_some() {}
            let verdicts: Vec<_> = (0..100).filter_map(|index| instances.end(index, index >= failures)).collect();
            assert_eq!(verdicts, [verdict], "{failures} of {tolerate}");
        }
    }

    #[test]
    fn wf_80_instances_that_ended_before_are_not_started_again() {
        let mut instances = Instances::restore(70, 2, 0, [0, 2, 65, 65, 99]);
        assert_eq!((instances.next(), instances.next(), instances.next()), (Some(1), Some(3), None));
        assert_eq!(instances.end(0, false), None, "it is over");
        let mut started = vec![1, 3];
        while let Some(index) = started.pop() {
            if instances.end(index, true) == Some(true) {
                assert_eq!((started.len(), instances.failed()), (0, 0));
                return;
            }
            started.extend(instances.next());
            assert_ne!(started.last(), Some(&65));
        }
        panic!("it has no verdict");
    }

    #[test]
    fn wf_80_all_may_have_ended_before() {
        assert_eq!(Instances::restore(2, 1, 0, [1, 0]).verdict(), Some(true));
    }

    #[test]
    fn wf_8_an_instance_that_is_not_open_cannot_end() {
        let mut instances = Instances::new(2, 1, 0);
        instances.next();
        assert_eq!(instances.end(1, false), None, "not started");
        assert_eq!(instances.end(7, false), None, "no such instance");
        assert_eq!(instances.end(0, true), None);
        assert_eq!(instances.end(0, false), None, "ended already");
        assert_eq!((instances.failed(), instances.next()), (0, Some(1)));
        assert_eq!(instances.end(1, true), Some(true));
    }
}

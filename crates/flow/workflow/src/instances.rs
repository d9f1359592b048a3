//! The instances of one `for-each` step: which may start, and whether the step as a whole went well.
//!
//! An instance that was skipped is ended with `ok`: its output is `null`, but it did not fail.

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instances {
    count: u32,
    parallel: u32,
    tolerate: u32,
    started: u32,
    ended: u32,
    failed: u32,
    /// One bit per instance: started and not ended.
    open: Vec<u64>,
}

impl Instances {
    /// `parallel` is at least 1. No instances at all: see [`Instances::verdict`].
    pub fn new(count: u32, parallel: u32, tolerate: u32) -> Instances {
        let open = vec![0; (count as usize).div_ceil(64)];
        Instances { count, parallel: parallel.max(1), tolerate, started: 0, ended: 0, failed: 0, open }
    }

    /// The next index to start, if there is one and room for it.
    #[expect(clippy::should_implement_trait, reason = "None means not now, not never")]
    pub fn next(&mut self) -> Option<u32> {
        if self.started == self.count || self.started - self.ended >= self.parallel {
            return None;
        }
        let index = self.started;
        self.open[index as usize / 64] |= 1 << (index % 64);
        self.started += 1;
        Some(index)
    }

    /// An instance ended. The step's verdict, when it was the last one. An index that is not open changes nothing.
    pub fn end(&mut self, index: u32, ok: bool) -> Option<bool> {
        let word = self.open.get_mut(index as usize / 64)?;
        let bit = 1 << (index % 64);
        if *word & bit == 0 {
            return None;
        }
        *word &= !bit;
        self.ended += 1;
        self.failed += u32::from(!ok);
        self.verdict()
    }

    /// Once all have ended; at once where there are none.
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

//! The number of nodes by which a limit is divided while the store does not answer.
//!
//! An unknown number does not count as zero: nodes that start together while the store is down would each take the
//! whole limit.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headcount {
    /// The number that the operator expects; it counts until the store has answered.
    expected: u64,
    known: Option<u64>,
    highest: u64,
}

impl Headcount {
    pub const EXPECTED: u64 = 16;

    pub fn new(expected: u64) -> Headcount {
        Headcount { expected: expected.max(1), known: None, highest: 0 }
    }

    /// Records the counts of an answered heartbeat: the published one, and the one that this node counted itself.
    pub fn record(&mut self, published: u64, own: u64) {
        let count = published.max(own).max(1);
        self.known = Some(count);
        self.highest = self.highest.max(count);
    }

    /// Forgets the count: this process is a new member now, and its heartbeat has not been answered yet.
    pub fn forget(&mut self) {
        self.known = None;
    }

    pub fn divisor(&self) -> u64 {
        match self.known {
            None if crate::planted::on("zero-when-unknown") => 1,
            Some(count) => count,
            None => self.expected.max(self.highest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HV-30
    #[test]
    fn zero_counts_as_one_at_cold_start() {
        let mut count = Headcount::new(16);
        assert_eq!(count.divisor(), 16, "unknown is not one");
        count.record(0, 0);
        assert_eq!(count.divisor(), 1, "a known zero is one");
        count.record(40, 3);
        assert_eq!(count.divisor(), 40);
        count.record(3, 5);
        assert_eq!(count.divisor(), 5, "the larger of the published and the counted number");
        count.forget();
        assert_eq!(count.divisor(), 40, "the highest count so far, because it is above the expected number");
        assert_eq!(Headcount::new(0).divisor(), 1);
    }
}

//! By how many a limit is divided while the store does not answer.
//!
//! Not knowing is not zero: nodes that start together against a dead store would each take the whole limit.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headcount {
    /// What the operator expects, for as long as nobody has answered.
    expected: u64,
    known: Option<u64>,
    highest: u64,
}

impl Headcount {
    pub const EXPECTED: u64 = 16;

    pub fn new(expected: u64) -> Headcount {
        Headcount { expected: expected.max(1), known: None, highest: 0 }
    }

    /// An answered beat: the published count and what this node counted itself.
    pub fn heard(&mut self, published: u64, own: u64) {
        let count = published.max(own).max(1);
        self.known = Some(count);
        self.highest = self.highest.max(count);
    }

    /// This process is another member now, and nobody has answered it yet.
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
        count.heard(0, 0);
        assert_eq!(count.divisor(), 1, "a known zero is one");
        count.heard(40, 3);
        assert_eq!(count.divisor(), 40);
        count.heard(3, 5);
        assert_eq!(count.divisor(), 5, "the larger of what was published and counted");
        count.forget();
        assert_eq!(count.divisor(), 40, "the most that was ever seen, above what is expected");
        assert_eq!(Headcount::new(0).divisor(), 1);
    }
}

//! Retries of an operation that failed for a passing reason: a few times, after random waits.

use std::hash::{BuildHasher, RandomState};

use crate::Backoff;

#[derive(Debug)]
pub struct Tries {
    backoff: Backoff,
    left: u32,
    done: u32,
}

impl Tries {
    /// `max` is the number of tries, including the first.
    pub const fn new(backoff: Backoff, max: u32) -> Tries {
        Tries { backoff, left: max.saturating_sub(1), done: 0 }
    }

    /// Waits before the next try. Returns false at once if no try is left.
    pub async fn wait(&mut self) -> bool {
        let Some(left) = self.left.checked_sub(1) else { return false };
        let random = RandomState::new().hash_one(self.done);
        tokio::time::sleep(self.backoff.wait(self.done, random)).await;
        (self.left, self.done) = (left, self.done + 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn ob_54_the_number_of_tries_is_limited() {
        let mut tries = Tries::new(Backoff::new(Duration::from_micros(10), Duration::from_micros(20)), 3);
        assert!(tries.wait().await && tries.wait().await);
        assert!(!tries.wait().await && !tries.wait().await);
        assert!(!Tries::new(Backoff::new(Duration::ZERO, Duration::ZERO), 1).wait().await);
    }
}

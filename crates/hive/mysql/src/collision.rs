//! Deadlocks and locks that take too long: the server has rolled back, so the same again, a few times, at random
//! distances.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

const TRIES_MAX: u32 = 6;
const FIRST: Duration = Duration::from_millis(4);

#[derive(Default)]
pub(crate) struct Tries {
    done: u32,
    has_waited: bool,
}

impl Tries {
    /// The server has waited already. Once more: whoever holds the lock may have been cut off meanwhile.
    pub fn wait_for_lock(&mut self) -> bool {
        !std::mem::replace(&mut self.has_waited, true)
    }

    /// Waits before the next try; false if there is none.
    pub async fn wait(&mut self) -> bool {
        self.done += 1;
        if self.done >= TRIES_MAX {
            return false;
        }
        tokio::time::sleep(pause(self.done, RandomState::new().hash_one(self.done))).await;
        true
    }
}

/// Half to all of a time that doubles.
fn pause(tries: u32, random: u64) -> Duration {
    let longest = FIRST * 2_u32.saturating_pow(tries);
    let half = longest / 2;
    half + half * u32::try_from(random % 1000).unwrap_or(0) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_not_all_the_same() {
        for tries in 1..TRIES_MAX {
            let (shortest, longest) = (pause(tries, 0), pause(tries, 999));
            assert!(shortest >= FIRST && shortest < longest && longest < 2 * shortest);
            assert!(pause(tries + 1, 0) >= longest);
        }
    }
}

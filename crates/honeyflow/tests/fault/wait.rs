//! Waits until a condition becomes true. The deadline only ends a test that would otherwise hang.

use std::time::{Duration, Instant};

pub const DEADLINE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(DEADLINE, look).unwrap_or_else(|| panic!("waited in vain: {what}"))
}

pub fn within<T>(time: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if began.elapsed() > time {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

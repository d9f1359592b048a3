//! Waits for an expected event; the deadline only prevents a test that hangs.

use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(60);
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Calls `look` until it returns a value.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if begun.elapsed() > DEADLINE {
            return Err(format!("did not happen within {DEADLINE:?}: {what}"));
        }
        std::thread::sleep(CHECK_EVERY);
    }
}

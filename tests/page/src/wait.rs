//! Waiting for what must come; the deadline is only there against hanging.

use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The first answer there is.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if begun.elapsed() > DEADLINE {
            return Err(format!("waited in vain: {what}"));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

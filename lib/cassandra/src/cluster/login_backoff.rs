//! The back-off after a refused login. A server that is starting refuses valid passwords for about a second; a client
//! that keeps trying after that looks like an attack, and its account gets locked.
//!
//! | refusals       | next attempt after |
//! |----------------|--------------------|
//! | one or two     | 1 s                |
//! | more           | 30 s               |
//!
//! Every attempt to connect passes here, both those that fill the pool and those of discovery.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Cause, Error};

const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(30);
const SOON_TIMES: u32 = 2;
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
pub struct LoginRefusals {
    by: Mutex<HashMap<SocketAddr, LoginRefusal>>,
}

#[derive(Debug)]
struct LoginRefusal {
    times: u32,
    at: Instant,
    error: Error,
}

impl LoginRefusals {
    /// Returns the error of the last attempt, if it is too early for the next one.
    pub fn too_soon(&self, server: SocketAddr, now: Instant) -> Option<Error> {
        let by = self.lock();
        let refused = by.get(&server)?;
        let wait = if refused.times <= SOON_TIMES { SOON } else { LATER };
        (now < refused.at + wait).then(|| refused.error.clone())
    }

    /// Records the result of an attempt that began at `begun`.
    pub fn record<T>(&self, server: SocketAddr, result: &Result<T, Error>, begun: Instant, now: Instant) {
        match result {
            Ok(_) => {
                self.lock().remove(&server);
            }
            Err(error) if matches!(error.cause, Cause::Login(_)) => {
                let mut by = self.lock();
                // A server without attempts since then is no longer used.
                by.retain(|_, refused| now.saturating_duration_since(refused.at) < FORGOTTEN_AFTER);
                let times = match by.get(&server) {
                    None => 1,
                    // Several attempts at the same time count as one, and the time runs from the first answer.
                    Some(refused) if begun < refused.at => return,
                    Some(refused) => refused.times + 1,
                };
                by.insert(server, LoginRefusal { times, at: now, error: error.clone() });
            }
            Err(_) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, LoginRefusal>> {
        self.by.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cq_6_the_back_off_after_a_refused_login_is_one_second_twice_then_half_a_minute() {
        let (refusals, server) = (LoginRefusals::default(), SocketAddr::from(([127, 0, 0, 1], 9042)));
        let begun = Instant::now();
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        let refused: Result<(), Error> = Err(Cause::Login("Bad credentials".to_owned()).at(&"there".into()));
        // Three attempts at the same time count as one.
        for answered in [10, 11, 12] {
            refusals.record(server, &refused, at(0), at(answered));
        }
        assert!(refusals.too_soon(server, at(1009)).is_some() && refusals.too_soon(server, at(1010)).is_none());
        let mut asked = Vec::new();
        for milliseconds in (13..100_000).step_by(10) {
            if refusals.too_soon(server, at(milliseconds)).is_none() {
                asked.push(milliseconds / 1000);
                refusals.record(server, &refused, at(milliseconds), at(milliseconds + 5));
            }
        }
        assert_eq!(asked, [1, 2, 32, 62, 92]);
        // Other servers and other failures do not count, and a success resets the back-off.
        assert!(refusals.too_soon(SocketAddr::from(([127, 0, 0, 2], 9042)), at(0)).is_none());
        refusals.record(server, &Ok(()), at(130_000), at(130_001));
        refusals.record::<()>(server, &Err(Cause::Closed.at(&"there".into())), at(130_002), at(130_003));
        assert!(refusals.too_soon(server, at(130_004)).is_none());
        refusals.record(server, &refused, at(140_000), at(140_001));
        assert!(refusals.too_soon(server, at(141_002)).is_none());
    }

    #[test]
    fn cq_6_a_server_without_further_attempts_is_forgotten() {
        let (refusals, begun) = (LoginRefusals::default(), Instant::now());
        let refused: Result<(), Error> = Err(Cause::Login("Bad credentials".to_owned()).at(&"there".into()));
        for minute in 0..1000_u16 {
            let now = begun + Duration::from_secs(60) * u32::from(minute);
            refusals.record(SocketAddr::from(([10, 0, 0, 1], minute + 1)), &refused, now, now);
        }
        assert_eq!(refusals.lock().len(), 60);
    }
}

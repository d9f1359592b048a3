//! How soon a server that refused our login is asked again. A server that is starting refuses good passwords for about a
//! second; whoever goes on asking after that looks like an attack, and locks accounts.
//!
//! | refused        | asked again after |
//! |----------------|-------------------|
//! | once, twice    | 1 s               |
//! | more often     | 30 s              |
//!
//! Everybody who connects passes here, those who fill the pool and those who look for servers.

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
pub struct Refusals {
    by: Mutex<HashMap<SocketAddr, Refused>>,
}

#[derive(Debug)]
struct Refused {
    times: u32,
    at: Instant,
    said: Error,
}

impl Refusals {
    /// What the server said when it was asked last, if that is too short a time ago.
    pub fn too_soon(&self, server: SocketAddr, now: Instant) -> Option<Error> {
        let by = self.lock();
        let refused = by.get(&server)?;
        let wait = if refused.times <= SOON_TIMES { SOON } else { LATER };
        (now < refused.at + wait).then(|| refused.said.clone())
    }

    /// What came of asking it, from `begun` on.
    pub fn heard<T>(&self, server: SocketAddr, result: &Result<T, Error>, begun: Instant, now: Instant) {
        match result {
            Ok(_) => {
                self.lock().remove(&server);
            }
            Err(error) if matches!(error.cause, Cause::Login(_)) => {
                let mut by = self.lock();
                // Whoever was not asked again since is not wanted any more.
                by.retain(|_, refused| now.saturating_duration_since(refused.at) < FORGOTTEN_AFTER);
                let times = match by.get(&server) {
                    None => 1,
                    // Several at once are refused once, and the time runs from the first.
                    Some(refused) if begun < refused.at => return,
                    Some(refused) => refused.times + 1,
                };
                by.insert(server, Refused { times, at: now, said: error.clone() });
            }
            Err(_) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Refused>> {
        self.by.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cq_6_a_server_that_refused_a_login_is_left_alone_for_a_second_twice_then_for_half_a_minute() {
        let (refusals, server) = (Refusals::default(), SocketAddr::from(([127, 0, 0, 1], 9042)));
        let begun = Instant::now();
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        let refused: Result<(), Error> = Err(Cause::Login("Bad credentials".to_owned()).at(&"there".into()));
        // Three that were under way at once count as one.
        for answered in [10, 11, 12] {
            refusals.heard(server, &refused, at(0), at(answered));
        }
        assert!(refusals.too_soon(server, at(1009)).is_some() && refusals.too_soon(server, at(1010)).is_none());
        let mut asked = Vec::new();
        for milliseconds in (13..100_000).step_by(10) {
            if refusals.too_soon(server, at(milliseconds)).is_none() {
                asked.push(milliseconds / 1000);
                refusals.heard(server, &refused, at(milliseconds), at(milliseconds + 5));
            }
        }
        assert_eq!(asked, [1, 2, 32, 62, 92]);
        // Another server is another matter, and so is another failure; what goes well is forgiven.
        assert!(refusals.too_soon(SocketAddr::from(([127, 0, 0, 2], 9042)), at(0)).is_none());
        refusals.heard(server, &Ok(()), at(130_000), at(130_001));
        refusals.heard::<()>(server, &Err(Cause::Closed.at(&"there".into())), at(130_002), at(130_003));
        assert!(refusals.too_soon(server, at(130_004)).is_none());
        refusals.heard(server, &refused, at(140_000), at(140_001));
        assert!(refusals.too_soon(server, at(141_002)).is_none());
    }

    #[test]
    fn cq_6_a_server_that_is_asked_no_more_is_forgotten() {
        let (refusals, begun) = (Refusals::default(), Instant::now());
        let refused: Result<(), Error> = Err(Cause::Login("Bad credentials".to_owned()).at(&"there".into()));
        for minute in 0..1000_u16 {
            let now = begun + Duration::from_secs(60) * u32::from(minute);
            refusals.heard(SocketAddr::from(([10, 0, 0, 1], minute + 1)), &refused, now, now);
        }
        assert_eq!(refusals.lock().len(), 60);
    }
}

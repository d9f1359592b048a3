//! When no server could have answered, or this process could not run. A request that fails then is excused if too
//! little of its time was left.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

#[derive(Default)]
pub struct Outages {
    /// Start and end of each outage; the last one may not have ended.
    outages: Mutex<Vec<(Instant, Option<Instant>)>>,
    /// Start and end of each time in which this process did not run.
    stalls: Mutex<Vec<(Instant, Instant)>>,
}

/// The longest pause between two connects (`max-backoff`), and the time that a connect takes on a busy machine.
const ENOUGH_TIME: Duration = Duration::from_millis(1500);

impl Outages {
    pub fn begin(&self, now: Instant) {
        self.lock().push((now, None));
    }

    pub fn end(&self, now: Instant) {
        if let Some(last) = self.lock().last_mut() {
            last.1 = Some(now);
        }
    }

    /// Stores the times in which this process did not run.
    pub fn set_stalls(&self, stalls: Vec<(Instant, Instant)>) {
        *self.stalls.lock().unwrap_or_else(PoisonError::into_inner) = stalls;
    }

    pub fn stalled_for(&self) -> Duration {
        let stalls = self.stalls.lock().unwrap_or_else(PoisonError::into_inner);
        stalls.iter().map(|(from, until)| *until - *from).sum()
    }

    fn all(&self) -> Vec<(Instant, Option<Instant>)> {
        let stalls = self.stalls.lock().unwrap_or_else(PoisonError::into_inner);
        let stalls = stalls.iter().map(|(from, until)| (*from, Some(*until)));
        let mut all: Vec<_> = self.lock().iter().copied().chain(stalls).collect();
        all.sort_by_key(|(from, _)| *from);
        all
    }

    /// Whether a request with this time had a server for long enough. To be called when the time is over.
    pub fn had_enough_time(&self, begun: Instant, due: Instant) -> bool {
        let mut free_from = begun;
        for (from, until) in self.all() {
            if from >= due {
                break;
            }
            if from.saturating_duration_since(free_from) >= ENOUGH_TIME {
                return true;
            }
            free_from = free_from.max(until.unwrap_or(due));
        }
        due.saturating_duration_since(free_from) >= ENOUGH_TIME
    }

    /// Whether an outage began or lasted within this time.
    pub fn overlap(&self, begun: Instant, due: Instant) -> bool {
        self.lock().iter().any(|(from, until)| *from < due && until.is_none_or(|until| until > begun))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, Option<Instant>)>> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_blamed_if_enough_of_its_time_was_without_outage() {
        let (outages, begun) = (Outages::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        assert!(outages.had_enough_time(begun, at(2000)), "there was no outage");
        outages.begin(at(1000));
        assert!(!outages.had_enough_time(at(500), at(2500)), "the outage has not ended");
        outages.end(at(1400));
        // The first request has too little time before and after the outage; the next one has enough after it.
        assert!(!outages.had_enough_time(at(800), at(2800)));
        assert!(outages.had_enough_time(at(1000), at(3000)));
        assert!(outages.had_enough_time(at(1400), at(3400)));
        assert!(!outages.had_enough_time(at(0), at(2000)));
        assert!(outages.overlap(at(0), at(1001)) && outages.overlap(at(1399), at(3000)));
        assert!(!outages.overlap(at(0), at(1000)) && !outages.overlap(at(1400), at(3000)));
    }

    #[test]
    fn a_request_is_not_blamed_for_time_in_which_its_process_did_not_run() {
        let (outages, begun) = (Outages::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        outages.begin(at(5000));
        outages.end(at(5100));
        assert!(outages.had_enough_time(at(0), at(2000)));
        outages.set_stalls(vec![(at(400), at(900))]);
        assert!(!outages.had_enough_time(at(0), at(2000)), "1.1 s are left");
        assert!(outages.had_enough_time(at(0), at(2400)) && outages.had_enough_time(at(3000), at(5000)));
    }
}

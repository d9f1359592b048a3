//! When no server could have answered, or nobody could have asked: what fails then is nobody's fault, if too little of its time was left.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

#[derive(Default)]
pub struct Darkness {
    /// From when to when; the last may not have ended.
    spells: Mutex<Vec<(Instant, Option<Instant>)>>,
    /// When this process had no time itself.
    stalls: Mutex<Vec<(Instant, Instant)>>,
}

/// The longest pause between two connects (`max-backoff`), and what connecting takes on a busy machine.
const LIGHT_ENOUGH: Duration = Duration::from_millis(1500);

impl Darkness {
    pub fn falls(&self, now: Instant) {
        self.lock().push((now, None));
    }

    pub fn lifts(&self, now: Instant) {
        if let Some(last) = self.lock().last_mut() {
            last.1 = Some(now);
        }
    }

    /// This process had no time itself.
    pub fn stalled(&self, spells: Vec<(Instant, Instant)>) {
        *self.stalls.lock().unwrap_or_else(PoisonError::into_inner) = spells;
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

    /// Whether a request with this time had a server for long enough. Asked when the time is over.
    pub fn spared(&self, begun: Instant, due: Instant) -> bool {
        let mut light_from = begun;
        for (from, until) in self.all() {
            if from >= due {
                break;
            }
            if from.saturating_duration_since(light_from) >= LIGHT_ENOUGH {
                return true;
            }
            light_from = light_from.max(until.unwrap_or(due));
        }
        due.saturating_duration_since(light_from) >= LIGHT_ENOUGH
    }

    /// Whether it fell, or lasted, within this time.
    pub fn touched(&self, begun: Instant, due: Instant) -> bool {
        self.lock().iter().any(|(from, until)| *from < due && until.is_none_or(|until| until > begun))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, Option<Instant>)>> {
        self.spells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_spared_if_enough_of_its_time_was_light() {
        let (darkness, begun) = (Darkness::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        assert!(darkness.spared(begun, at(2000)), "nothing ever happened");
        darkness.falls(at(1000));
        assert!(!darkness.spared(at(500), at(2500)), "it has not ended");
        darkness.lifts(at(1400));
        // Before it and after it there is less than enough for this one; the next has enough after it.
        assert!(!darkness.spared(at(800), at(2800)));
        assert!(darkness.spared(at(1000), at(3000)));
        assert!(darkness.spared(at(1400), at(3400)));
        assert!(!darkness.spared(at(0), at(2000)));
        assert!(darkness.touched(at(0), at(1001)) && darkness.touched(at(1399), at(3000)));
        assert!(!darkness.touched(at(0), at(1000)) && !darkness.touched(at(1400), at(3000)));
    }

    #[test]
    fn a_request_is_not_blamed_for_what_its_process_slept_through() {
        let (darkness, begun) = (Darkness::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        darkness.falls(at(5000));
        darkness.lifts(at(5100));
        assert!(darkness.spared(at(0), at(2000)));
        darkness.stalled(vec![(at(400), at(900))]);
        assert!(!darkness.spared(at(0), at(2000)), "1.1 s are left");
        assert!(darkness.spared(at(0), at(2400)) && darkness.spared(at(3000), at(5000)));
    }
}

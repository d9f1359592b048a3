//! Since when the process has been awake without a break, told by its pulse. Whoever has been asleep, by a signal or with
//! its machine, has heard nothing meanwhile: that it has not stopped yet says nothing about it.
//!
//! | a pulse comes                     | then                                                        |
//! |-----------------------------------|-------------------------------------------------------------|
//! | soon after the one before         | awake, since when it was                                     |
//! | later than [`GAP`]                | awake since now                                              |
//! | none                              | nothing is judged that happened after the last one           |

use std::time::Duration;

use honeyflow_runtime::Moment;

/// A pulse is due twice a second, and the heart itself looks once a second: so long without one is a sleep.
const GAP: Duration = Duration::from_secs(2);
/// Whoever has woken gets so much time awake before it is judged.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub(super) struct Awake {
    since: Moment,
    pulsed_at: Moment,
}

impl Awake {
    /// Nothing was slept through before.
    pub fn new(now: Moment) -> Awake {
        Awake { since: Moment::default(), pulsed_at: now }
    }

    pub fn pulse(&mut self, now: Moment) {
        if now.since(self.pulsed_at) > GAP {
            self.since = now;
        }
        self.pulsed_at = self.pulsed_at.max(now);
    }

    /// What should have happened before this can be called late; none while nothing can.
    pub fn judges(&self) -> Option<Moment> {
        (self.pulsed_at.since(self.since) >= GRACE).then_some(self.pulsed_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    /// Twice a second, up to and with the last.
    fn pulses(awake: &mut Awake, millis: std::ops::RangeInclusive<u64>) {
        millis.step_by(500).for_each(|now| awake.pulse(at(now)));
    }

    /// HV-46: a process that was stopped for a minute, or whose machine was, wakes with everything overdue.
    #[test]
    fn hv_46_after_a_sleep_there_is_a_grace_counted_in_time_awake() {
        let mut awake = Awake::new(at(50_000));
        pulses(&mut awake, 50_500..=60_000);
        assert_eq!(awake.judges(), Some(at(60_000)), "nothing that is due after the last pulse");
        // Whatever the runtime makes up for at once counts as one.
        (0..120).for_each(|_| awake.pulse(at(120_000)));
        assert_eq!(awake.judges(), None);
        pulses(&mut awake, 120_500..=124_500);
        assert_eq!(awake.judges(), None);
        // Asleep again: the grace begins anew.
        pulses(&mut awake, 180_000..=184_500);
        assert_eq!(awake.judges(), None);
        awake.pulse(at(185_000));
        assert_eq!(awake.judges(), Some(at(185_000)));
    }

    #[test]
    fn hv_46_a_busy_machine_is_no_sleep() {
        let mut awake = Awake::new(at(0));
        awake.pulse(at(10_000));
        (5..=8).for_each(|n| awake.pulse(at(n * 2_000)));
        assert_eq!(awake.judges(), Some(at(16_000)));
    }
}

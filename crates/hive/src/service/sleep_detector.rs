//! Tells since when the process has been awake without a break, by its pulses. A process that was asleep, stopped by a
//! signal or with its machine, received nothing meanwhile: that its work has not stopped yet is no fault.
//!
//! | pulse                             | result                                                      |
//! |-----------------------------------|-------------------------------------------------------------|
//! | soon after the previous one       | awake since the same time as before                          |
//! | later than [`GAP`]                | awake since now                                              |
//! | none                              | nothing that is due after the last pulse counts as late      |

use std::time::Duration;

use honeyflow_runtime::Moment;

/// The runtime pulses twice a second, and the heartbeat thread wakes once a second: a longer gap is a sleep.
const GAP: Duration = Duration::from_secs(2);
/// After a sleep, the process gets this much time awake before its work can count as late.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub(super) struct SleepDetector {
    awake_since: Moment,
    pulsed_at: Moment,
}

impl SleepDetector {
    /// Begins awake: no sleep is known.
    pub fn new(now: Moment) -> SleepDetector {
        SleepDetector { awake_since: Moment::default(), pulsed_at: now }
    }

    pub fn pulse(&mut self, now: Moment) {
        if now.since(self.pulsed_at) > GAP {
            self.awake_since = now;
        }
        self.pulsed_at = self.pulsed_at.max(now);
    }

    /// Work that was due before this time is late; `None` while no work can be called late.
    pub fn judge_until(&self) -> Option<Moment> {
        (self.pulsed_at.since(self.awake_since) >= GRACE).then_some(self.pulsed_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    /// Pulses twice a second, up to and including the last.
    fn pulses(awake: &mut SleepDetector, millis: std::ops::RangeInclusive<u64>) {
        millis.step_by(500).for_each(|now| awake.pulse(at(now)));
    }

    /// HV-46: a process that was stopped for a minute, or whose machine was, wakes with everything overdue.
    #[test]
    fn hv_46_after_a_sleep_there_is_a_grace_counted_in_time_awake() {
        let mut awake = SleepDetector::new(at(50_000));
        pulses(&mut awake, 50_500..=60_000);
        assert_eq!(awake.judge_until(), Some(at(60_000)), "only work that was due before the last pulse");
        // Pulses that the runtime catches up on at once count as one.
        (0..120).for_each(|_| awake.pulse(at(120_000)));
        assert_eq!(awake.judge_until(), None);
        pulses(&mut awake, 120_500..=124_500);
        assert_eq!(awake.judge_until(), None);
        // Asleep again: the grace time starts again.
        pulses(&mut awake, 180_000..=184_500);
        assert_eq!(awake.judge_until(), None);
        awake.pulse(at(185_000));
        assert_eq!(awake.judge_until(), Some(at(185_000)));
    }

    #[test]
    fn hv_46_a_busy_machine_is_no_sleep() {
        let mut awake = SleepDetector::new(at(0));
        awake.pulse(at(10_000));
        (5..=8).for_each(|n| awake.pulse(at(n * 2_000)));
        assert_eq!(awake.judge_until(), Some(at(16_000)));
    }
}

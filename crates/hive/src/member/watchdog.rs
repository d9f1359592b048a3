//! Watches whether the main runtime is alive. A node that sends heartbeats while its runtime is stalled blocks its
//! leases.
//!
//! | state   | input                                 | next    | effect                                             |
//! |---------|---------------------------------------|---------|----------------------------------------------------|
//! | alive   | no pulse for ttl / 2                  | stalled | terms die, leases are released, neither ready nor eligible |
//! | stalled | a pulse                               | alive   | eligible again                                     |
//! | stalled | no pulse for 30 s                     | stuck   | Stuck, once                                        |
//!
//! Only the time counts in which the heartbeat thread itself ran: a suspended process is asleep, not stuck.

use std::time::Duration;

use super::{Effect, Member, trust::Phase};

const STUCK: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Default)]
pub(super) struct Watchdog {
    silence: Duration,
    stalled: bool,
    reported_stuck: bool,
}

impl Watchdog {
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }
}

impl Member {
    pub(super) fn on_pulse(&mut self) {
        if std::mem::take(&mut self.watchdog).stalled {
            self.trust.heartbeat_by(self.now);
        }
    }

    /// How often the heartbeat thread checks the runtime.
    pub(super) fn watchdog_interval(&self) -> Duration {
        self.config.time_to_live / 8
    }

    pub(super) fn check_watchdog(&mut self, passed: Duration, effects: &mut Vec<Effect>) {
        if !self.config.pulsed || self.trust.phase != Phase::In {
            self.watchdog.silence = Duration::ZERO;
            return;
        }
        self.watchdog.silence += passed.min(self.watchdog_interval() * 2);
        if !self.watchdog.stalled && self.watchdog.silence >= self.config.time_to_live / 2 {
            self.watchdog.stalled = true;
            self.end_terms("the main runtime is stalled", effects);
            self.trust.heartbeat_by(self.now);
        }
        if !self.watchdog.reported_stuck && self.watchdog.silence >= STUCK {
            self.watchdog.reported_stuck = true;
            effects.push(Effect::Stuck);
        }
    }
}

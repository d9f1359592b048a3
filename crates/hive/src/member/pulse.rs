//! Is the main runtime alive? A node that beats while nothing else of it moves holds its leases for nothing.
//!
//! | state | input                                   | next  | effect                                               |
//! |-------|-----------------------------------------|-------|------------------------------------------------------|
//! | alive | no pulse for ttl / 2                    | deaf  | terms die, leases are released, neither ready nor eligible |
//! | deaf  | a pulse                                 | alive | eligible again                                       |
//! | deaf  | no pulse for 30 s                       | stuck | Stuck, once                                          |
//!
//! Only time counts in which the heartbeat itself was awake: a suspended process is not stuck, it was asleep.

use std::time::Duration;

use super::{Effect, Member, trust::Phase};

const STUCK: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Default)]
pub(super) struct Pulse {
    still: Duration,
    deaf: bool,
    said: bool,
}

impl Pulse {
    pub fn is_deaf(&self) -> bool {
        self.deaf
    }
}

impl Member {
    pub(super) fn pulsed(&mut self) {
        if std::mem::take(&mut self.pulse).deaf {
            self.trust.sooner(self.now);
        }
    }

    /// How often the heartbeat looks.
    pub(super) fn pulse_step(&self) -> Duration {
        self.config.time_to_live / 8
    }

    pub(super) fn judge_pulse(&mut self, passed: Duration, effects: &mut Vec<Effect>) {
        if !self.config.pulsed || self.trust.phase != Phase::In {
            self.pulse.still = Duration::ZERO;
            return;
        }
        self.pulse.still += passed.min(self.pulse_step() * 2);
        if !self.pulse.deaf && self.pulse.still >= self.config.time_to_live / 2 {
            self.pulse.deaf = true;
            self.end_terms("the main runtime stands still", effects);
            self.trust.sooner(self.now);
        }
        if !self.pulse.said && self.pulse.still >= STUCK {
            self.pulse.said = true;
            effects.push(Effect::Stuck);
        }
    }
}

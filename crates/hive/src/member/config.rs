//! What a member is told about itself, and the times that follow from it.

use std::{fmt, sync::Arc, time::Duration};

use honeyflow_event::Name;
use honeyflow_runtime::{Clock, Failure, time::BootClock};

use crate::contract::{ENGAGED_MS, META_BYTES_MAX};

#[derive(Clone)]
pub struct Config {
    pub name: Name,
    /// A JSON object; what it says about `weight`, `pin` and `sources` others go by (see [`super::traits`]).
    pub meta: String,
    pub heartbeat: Duration,
    pub time_to_live: Duration,
    pub count_every: Duration,
    /// How long traffic counts; at most [`ENGAGED_MS`].
    pub engaged_ttl: Duration,
    /// By how many to divide as long as nobody knows better.
    pub expected_nodes: u64,
    /// How long whoever works under a lease may take to come to an end before it is handed over.
    pub leave_within: Duration,
    /// Whether this node may lead at all.
    pub eligible: bool,
    /// Whether it stands for queen.
    pub stands: bool,
    /// Whether it may be given traffic before anybody has said so ([`super::Input::Ready`]).
    pub ready: bool,
    /// Whether somebody tells it that the main runtime is alive ([`super::Input::Pulse`]).
    pub pulsed: bool,
    /// All nodes are processes of one machine, and a kernel lock says who lives.
    pub one_machine: bool,
    /// What terms look at by themselves; decisions are told what time it is.
    pub clock: Arc<dyn Clock>,
    pub seed: u64,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config { name, heartbeat, time_to_live, .. } = self;
        write!(f, "Config({name}, heartbeat {heartbeat:?}, time to live {time_to_live:?})")
    }
}

impl Config {
    pub const HEARTBEAT: Duration = Duration::from_secs(2);
    pub const TIME_TO_LIVE: Duration = Duration::from_secs(6);

    pub fn new(name: impl Into<Name>, meta: impl Into<String>) -> Config {
        Config {
            name: name.into(),
            meta: meta.into(),
            heartbeat: Self::HEARTBEAT,
            time_to_live: Self::TIME_TO_LIVE,
            count_every: Duration::from_secs(5),
            engaged_ttl: Duration::from_millis(ENGAGED_MS),
            expected_nodes: 16,
            leave_within: Duration::from_secs(5),
            eligible: true,
            stands: true,
            ready: true,
            pulsed: false,
            one_machine: false,
            clock: Arc::new(BootClock),
            seed: 1,
        }
    }

    /// # Errors
    /// Says which of the settings does not go with which.
    pub fn validate(&self) -> Result<(), Failure> {
        let wrong = |message: String| Err(Failure::fatal("hive-options", message));
        let (heartbeat, ttl) = (self.heartbeat, self.time_to_live);
        if heartbeat < Duration::from_millis(50) {
            return wrong(format!("heartbeat is {heartbeat:?}: at least 50ms are needed"));
        }
        if ttl < heartbeat * 3 {
            return wrong(format!(
                "time-to-live is {ttl:?}, heartbeat {heartbeat:?}: one lost beat would be death; \
                 set time-to-live to at least three heartbeats"
            ));
        }
        if ttl > Duration::from_secs(3600) {
            return wrong(format!("time-to-live is {ttl:?}: nobody would take over within the hour; set less"));
        }
        if self.count_every < heartbeat {
            return wrong(format!(
                "count-every is {:?}, heartbeat {heartbeat:?}: the queen counts once per beat; set at least that",
                self.count_every
            ));
        }
        if self.engaged_ttl < heartbeat || self.engaged_ttl > Duration::from_millis(ENGAGED_MS) {
            return wrong(format!(
                "engaged-ttl is {:?}, heartbeat {heartbeat:?}: traffic is told with a beat, and nobody counts it for \
                 longer than 30s; set between the two",
                self.engaged_ttl
            ));
        }
        if self.expected_nodes == 0 {
            return wrong("expected-nodes is 0: a limit cannot be divided by it; set at least 1".to_owned());
        }
        if self.name.is_empty() || self.name.len() > 191 {
            return wrong(format!("the node's name has {} bytes: 1 to 191 are possible", self.name.len()));
        }
        if self.meta.len() > META_BYTES_MAX {
            let bytes = self.meta.len();
            return wrong(format!("the node's meta data has {bytes} bytes: {META_BYTES_MAX} are the limit"));
        }
        if !serde_json::from_str::<serde_json::Value>(&self.meta).is_ok_and(|meta| meta.is_object()) {
            return wrong("the node's meta data is no JSON object".to_owned());
        }
        Ok(())
    }

    /// Four fifths of the time to live: the rest is margin for clocks that run at different rates.
    pub(super) fn trust(&self) -> Duration {
        self.time_to_live * 4 / 5
    }

    /// After that an answer counts for nothing, and what has become of the request is unknown.
    pub(super) fn deadline(&self) -> Duration {
        self.time_to_live / 3
    }

    /// Of a change of hands, which may wait for the leader's transactions in flight.
    pub(super) fn mint_deadline(&self) -> Duration {
        self.time_to_live / 2
    }

    /// A little less or more than a heartbeat, so that nodes do not beat in step.
    pub(super) fn period(&self, random: u64) -> Duration {
        between(self.heartbeat * 9 / 10, self.heartbeat * 11 / 10, random)
    }

    /// Before a failed beat is tried again.
    pub(super) fn retry(&self, random: u64) -> Duration {
        between(self.time_to_live / 60, self.time_to_live / 12, random)
    }

    /// Before a dead node is looked for again whom others are about to bury.
    pub(super) fn look_again(&self, random: u64) -> Duration {
        between(self.time_to_live / 60, self.time_to_live / 30, random)
    }
}

pub(super) fn between(low: Duration, high: Duration, random: u64) -> Duration {
    let span = u64::try_from(high.saturating_sub(low).as_micros()).unwrap_or(u64::MAX);
    low + Duration::from_micros(random % span.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hv_7_wrong_relations_are_errors_that_say_what_to_set() {
        let refused = |change: fn(&mut Config)| {
            let mut config = Config::new("a", "{}");
            change(&mut config);
            config.validate().unwrap_err().message
        };
        assert!(Config::new("a", "{}").validate().is_ok());
        assert!(refused(|c| c.time_to_live = Duration::from_secs(5)).contains("three heartbeats"));
        assert!(refused(|c| c.heartbeat = Duration::from_millis(1)).contains("50ms"));
        assert!(refused(|c| c.time_to_live = Duration::from_secs(7200)).contains("hour"));
        assert!(refused(|c| c.count_every = Duration::from_secs(1)).contains("count-every"));
        assert!(refused(|c| c.engaged_ttl = Duration::from_secs(1)).contains("engaged-ttl"));
        assert!(refused(|c| c.engaged_ttl = Duration::from_secs(31)).contains("30s"));
        assert!(refused(|c| c.expected_nodes = 0).contains("at least 1"));
        assert!(refused(|c| c.name = "".into()).contains("name"));
        assert!(refused(|c| c.meta = "x".repeat(5000)).contains("4096"));
        assert!(refused(|c| c.meta = "[]".to_owned()).contains("object"));
    }

    #[test]
    fn hv_10_periods_and_retries_stay_within_their_bounds() {
        let config = Config::new("a", "{}");
        for random in (0..1000).map(|n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)) {
            let (period, retry) = (config.period(random).as_millis(), config.retry(random).as_millis());
            assert!((1800..=2200).contains(&period) && (100..=500).contains(&retry), "{period} {retry}");
        }
    }
}

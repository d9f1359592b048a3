//! The configuration of a member, and the times derived from it.

use std::{fmt, sync::Arc, time::Duration};

use honeyflow_event::Name;
use honeyflow_runtime::{Clock, Failure, time::BootClock};

use crate::{
    codes,
    contract::{ENGAGED_MS, META_BYTES_MAX},
};

#[derive(Clone)]
pub struct Config {
    pub name: Name,
    /// A JSON object. Other nodes read its `weight`, `pin` and `sources` (see [`super::traits`]).
    pub meta: String,
    pub heartbeat: Duration,
    pub time_to_live: Duration,
    pub count_every: Duration,
    /// How long traffic counts; at most [`ENGAGED_MS`].
    pub engaged_ttl: Duration,
    /// The number of nodes by which limits are divided before a count is known.
    pub expected_nodes: u64,
    /// How long the work under a lease may take to end before the lease is handed over.
    pub leave_within: Duration,
    /// Whether this node may hold leases at all.
    pub eligible: bool,
    /// Whether it is a candidate for queen.
    pub stands: bool,
    /// Whether it may be given traffic before the first [`super::Input::Ready`].
    pub ready: bool,
    /// Whether the main runtime sends [`super::Input::Pulse`] to show that it is alive.
    pub pulsed: bool,
    /// All nodes are processes on one machine, and kernel locks show which of them are alive.
    pub one_machine: bool,
    /// The clock that terms read. The state machine itself gets the time with each input.
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
    /// Names the settings that do not fit together.
    pub fn validate(&self) -> Result<(), Failure> {
        let wrong = |message: String| Err(Failure::fatal(codes::HIVE_OPTIONS, message));
        let (heartbeat, ttl) = (self.heartbeat, self.time_to_live);
        if heartbeat < Duration::from_millis(50) {
            return wrong(format!("heartbeat is {heartbeat:?}: at least 50ms are needed"));
        }
        if ttl < heartbeat * 3 {
            return wrong(format!(
                "time-to-live is {ttl:?}, heartbeat {heartbeat:?}: one lost heartbeat would expire the node; \
                 set time-to-live to at least three heartbeats"
            ));
        }
        if ttl > Duration::from_secs(3600) {
            return wrong(format!(
                "time-to-live is {ttl:?}: other nodes would take over only after an hour; set at most 1h"
            ));
        }
        if self.count_every < heartbeat {
            return wrong(format!(
                "count-every is {:?}, heartbeat {heartbeat:?}: the queen counts once per heartbeat; set at least that",
                self.count_every
            ));
        }
        if self.engaged_ttl < heartbeat || self.engaged_ttl > Duration::from_millis(ENGAGED_MS) {
            return wrong(format!(
                "engaged-ttl is {:?}, heartbeat {heartbeat:?}: nodes report traffic with a heartbeat and count it for \
                 at most 30s; set a value between the two",
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
            return wrong("the node's meta data is not a JSON object".to_owned());
        }
        Ok(())
    }

    /// How long a node trusts its terms after a heartbeat: four fifths of the time to live. The rest is a margin for
    /// clocks that run at different rates.
    pub(super) fn trust(&self) -> Duration {
        self.time_to_live * 4 / 5
    }

    /// How long a request may take. After that its answer is ignored and its outcome unknown.
    pub(super) fn deadline(&self) -> Duration {
        self.time_to_live / 3
    }

    /// The deadline of a request that mints: it may wait for the holder's transactions in flight.
    pub(super) fn mint_deadline(&self) -> Duration {
        self.time_to_live / 2
    }

    /// The time between two heartbeats: 0.9 to 1.1 of the configured one, so that nodes do not run in step.
    pub(super) fn period(&self, random: u64) -> Duration {
        between(self.heartbeat * 9 / 10, self.heartbeat * 11 / 10, random)
    }

    /// The delay before a failed request is retried.
    pub(super) fn retry_wait(&self, random: u64) -> Duration {
        between(self.time_to_live / 60, self.time_to_live / 12, random)
    }

    /// The delay before the next heartbeat when another node was faster to remove an expired member.
    pub(super) fn look_again_wait(&self, random: u64) -> Duration {
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
    fn hv_7_settings_that_do_not_fit_are_errors_that_say_what_to_set() {
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
            let (period, retry) = (config.period(random).as_millis(), config.retry_wait(random).as_millis());
            assert!((1800..=2200).contains(&period) && (100..=500).contains(&retry), "{period} {retry}");
        }
    }
}

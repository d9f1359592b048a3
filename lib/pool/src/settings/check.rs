//! The meaning and range of each key. A check reports everything that is wrong in one error.

use std::{fmt, time::Duration};

use super::{Settings, SpeculateAfter};

/// One key, for documentation, messages and the test that each key has an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    pub name: &'static str,
    pub range: &'static str,
    pub about: &'static str,
}

const fn key(name: &'static str, range: &'static str, about: &'static str) -> Key {
    Key { name, range, about }
}

pub const KEYS: &[Key] = &[
    key("name", "1 to 64 characters", "the pool's name in logs and status"),
    key("enabled", "true or false", "whether the pool may open connections; a change drains it or starts it"),
    key("start", "active or inactive", "the state in which a new pool starts"),
    key("mode", "auto, exclusive or shared", "how many requests a connection carries at once; for new connections"),
    key("servers", "at least one", "servers to begin with, as address or name, with or without port"),
    key("port", "1 to 65535", "the port of servers named without one"),
    key("when-empty", "wait or fail", "what a request does when no connection is free"),
    key("deadline", "1ms to 1h", "the time of a request that names none, waiting and use together"),
    key("queue-limit", "0 to 1000000", "how many requests may wait"),
    key("early-refusal", "true or false", "whether a request that cannot be served in time is refused at once"),
    key("tcp-timeout", "1ms to 1min", "how long a server may take to accept a connection"),
    key("handshake-timeout", "1ms to 1min", "how long TLS, handshake and login may take together"),
    key("write-timeout", "1ms to 10min", "how long a write may make no progress"),
    key("start-jitter", "0 to 1min", "over what time the first connections to a server are spread"),
    key("max-backoff", "100ms to 10min", "the longest wait between connects to a failing server"),
    key("connections-per-server", "1 to 1000", "how many connections are kept to each server"),
    key("max-connections-per-server", "connections-per-server to 1000", "how many there may be while requests wait"),
    key("streams-per-connection", "1 to 32768", "how many requests a shared connection carries at once"),
    key("max-connecting", "1 to 1000", "how many connects the pool may make at the same time"),
    key("tries", "1 to 10", "how many servers a request may be tried on"),
    key("idle-order", "fifo or lifo", "which idle connection is lent next"),
    key("decay-per-billion", "0 to 1000000000", "the chance that a use is a connection's last, in 1000000000"),
    key("max-age", "1s to 30 days", "after what time a connection is replaced"),
    key("max-idle", "1s to 30 days", "after what time an idle connection above the wanted number is closed"),
    key("recycle-budget", "1 to 100", "how many connections of a server may be in replacement at once"),
    key("discovery", "true or false", "whether the pool asks servers for the other servers of the cluster"),
    key("discover-every", "1s to 1 day", "how often the pool asks them if no notice comes"),
    key("translate", "addresses", "which addresses to dial instead of discovered ones"),
    key("filter", "datacentres, racks, addresses", "which discovered servers are used"),
    key("local-datacentre", "a name", "the datacentre whose servers are used first"),
    key("local-rack", "a name; needs local-datacentre", "the rack whose servers are used first"),
    key("allow-remote", "true or false", "whether servers elsewhere are used when no local one can be"),
    key("heartbeat-idle", "100ms to 1h", "how long a connection may be silent before the pool sends a heartbeat"),
    key("heartbeat-timeout", "1ms to 10min", "how long the answer to a heartbeat may take"),
    key("max-orphans", "1 to 32768", "how many orphans a connection may have: unanswered requests without a caller"),
    key("suspect-stay", "10ms to 5min", "the shortest time that a server stays suspect"),
    key("slow-start", "0 to 10min", "over what time a new or returned server gets its full share"),
    key("speculate-after", "off, p99 or 1ms to 1min", "when an idempotent request is sent a second time, elsewhere"),
    key("speculate-budget", "0 to 100", "how many requests in a hundred may be sent a second time"),
    key("retry-budget", "0 to 100", "how many further tries there may be per hundred requests"),
    key("loan-warn", "1ms to 1 day", "after what time a loan is reported as overdue"),
    key("drain-timeout", "0 to 1h", "how long loans may finish when the pool drains or a server leaves"),
];

/// Everything that is wrong with settings.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct SettingsError {
    /// Each wrong key, and what is wrong with it.
    pub wrong: Vec<(String, String)>,
}

impl SettingsError {
    pub fn of(key: impl Into<String>, what: impl Into<String>) -> SettingsError {
        SettingsError { wrong: vec![(key.into(), what.into())] }
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the pool's settings cannot be used: ")?;
        for (at, (key, what)) in self.wrong.iter().enumerate() {
            write!(f, "{}{key} {what}", if at == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// The range of a key, as text.
pub fn allowed(name: &str) -> &'static str {
    KEYS.iter().find(|key| key.name == name).map_or("", |key| key.range)
}

struct Checks(Vec<(String, String)>);

impl Checks {
    fn that(&mut self, name: &'static str, holds: bool, found: impl fmt::Debug) {
        if !holds {
            self.0.push((name.to_owned(), format!("is {found:?}, allowed is {}", allowed(name))));
        }
    }

    fn time(&mut self, name: &'static str, found: Duration, least: Duration, most: Duration) {
        self.that(name, (least..=most).contains(&found), found);
    }

    fn number(&mut self, name: &'static str, found: u64, least: u64, most: u64) {
        self.that(name, (least..=most).contains(&found), found);
    }
}

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

impl Settings {
    /// # Errors
    /// Every key that is wrong, in one error.
    pub fn check(&self) -> Result<(), SettingsError> {
        let mut checks = Checks(Vec::new());
        let c = &mut checks;
        c.that("name", (1..=64).contains(&self.name.chars().count()), &self.name);
        c.that("servers", !self.servers.is_empty() && self.servers.iter().all(|s| is_seed(s)), &self.servers);
        c.number("port", self.port.into(), 1, 65_535);
        c.time("deadline", self.deadline, MS, HOUR);
        c.number("queue-limit", self.queue_limit as u64, 0, 1_000_000);
        c.time("tcp-timeout", self.tcp_timeout, MS, MINUTE);
        c.time("handshake-timeout", self.handshake_timeout, MS, MINUTE);
        c.time("write-timeout", self.write_timeout, MS, 10 * MINUTE);
        c.time("start-jitter", self.start_jitter, Duration::ZERO, MINUTE);
        c.time("max-backoff", self.max_backoff, 100 * MS, 10 * MINUTE);
        let wanted = self.connections_per_server;
        c.that("connections-per-server", wanted.is_none_or(|n| (1..=1000).contains(&n)), wanted);
        let most = self.max_connections_per_server;
        let least = wanted.unwrap_or(1);
        c.that("max-connections-per-server", most.is_none_or(|n| (least..=1000).contains(&n)), most);
        c.number("streams-per-connection", self.streams_per_connection.into(), 1, 32_768);
        c.number("max-connecting", self.max_connecting.into(), 1, 1000);
        c.number("tries", self.tries.into(), 1, 10);
        let decay = self.decay_per_billion;
        c.that("decay-per-billion", decay.is_none_or(|n| n <= 1_000_000_000), decay);
        c.time("max-age", self.max_age, SECOND, 30 * DAY);
        c.time("max-idle", self.max_idle, SECOND, 30 * DAY);
        c.number("recycle-budget", self.recycle_budget.into(), 1, 100);
        c.time("discover-every", self.discover_every, SECOND, DAY);
        let rack = &self.local_rack;
        c.that("local-rack", rack.is_none() || self.local_datacentre.is_some(), rack);
        c.time("heartbeat-idle", self.heartbeat_idle, 100 * MS, HOUR);
        c.time("heartbeat-timeout", self.heartbeat_timeout, MS, 10 * MINUTE);
        c.number("max-orphans", self.max_orphans.into(), 1, 32_768);
        c.time("suspect-stay", self.suspect_stay, 10 * MS, 5 * MINUTE);
        c.time("slow-start", self.slow_start, Duration::ZERO, 10 * MINUTE);
        if let SpeculateAfter::Time(time) = self.speculate_after {
            c.time("speculate-after", time, MS, MINUTE);
        }
        c.number("speculate-budget", self.speculate_budget.into(), 0, 100);
        c.number("retry-budget", self.retry_budget.into(), 0, 100);
        c.time("loan-warn", self.loan_warn, MS, DAY);
        c.time("drain-timeout", self.drain_timeout, Duration::ZERO, HOUR);
        if checks.0.is_empty() { Ok(()) } else { Err(SettingsError { wrong: checks.0 }) }
    }
}

fn is_seed(seed: &str) -> bool {
    !seed.is_empty() && !seed.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PL-107
    #[test]
    fn defaults_validate() {
        assert_eq!(Settings::default().check(), Ok(()));
    }

    /// PL-61 PL-107: one error names everything that is wrong, and nothing of it is used.
    #[test]
    fn missing_key_refused_whole() {
        let settings = Settings {
            servers: Vec::new(),
            tries: 0,
            connections_per_server: Some(5),
            max_connections_per_server: Some(4),
            local_rack: Some("r1".to_owned()),
            ..Settings::default()
        };
        let wrong: Vec<_> = settings.check().unwrap_err().wrong.into_iter().map(|(key, _)| key).collect();
        assert_eq!(wrong, ["servers", "max-connections-per-server", "tries", "local-rack"]);
    }

    /// PL-62 PL-63: every field has a key with a range and a line of text.
    #[test]
    fn pl_63_every_key_is_described() {
        let shown = format!("{:?}", Settings::default());
        for key in KEYS {
            assert!(!key.range.is_empty() && !key.about.is_empty(), "{}", key.name);
            assert!(shown.contains(&format!("{}: ", key.name.replace('-', "_"))), "{} is no field", key.name);
        }
        assert_eq!(KEYS.len(), 42);
        let error = Settings { tries: 99, ..Settings::default() }.check().unwrap_err();
        assert_eq!(error.to_string(), "the pool's settings cannot be used: tries is 99, allowed is 1 to 10");
    }

    #[test]
    fn seeds_get_the_port_they_lack() {
        let servers = ["a", "b:1", "::1", "[::1]:2", "[::1]", "10.0.0.1"].map(str::to_owned).to_vec();
        let seeds: Vec<_> = Settings { servers, port: 7, ..Settings::default() }.seeds().collect();
        assert_eq!(seeds, ["a:7", "b:1", "[::1]:7", "[::1]:2", "[::1]:7", "10.0.0.1:7"]);
    }
}

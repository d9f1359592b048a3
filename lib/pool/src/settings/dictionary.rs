//! Converts settings to a table and back. All providers share this one list of keys, so they give the same settings.

use std::{net::SocketAddr, time::Duration};

use super::{
    Filter, IdleOrder, KEYS, Mode, Settings, SettingsError, SpeculateAfter, Start, Translate, WhenEmpty, allowed,
    table::{Table, Value, nearest},
    units,
};

impl Settings {
    /// All keys that have a value, and the connector's tables.
    ///
    /// # Errors
    /// If `translate` or `filter` holds a function, which cannot be written to a table.
    pub fn table(&self) -> Result<Table, SettingsError> {
        let functions = [("translate", self.translate.hook.is_some()), ("filter", self.filter.hook.is_some())];
        let wrong = functions.iter().filter(|(_, is)| *is);
        let wrong: Vec<_> =
            wrong.map(|(key, _)| ((*key).to_owned(), "is a function, which cannot be stored".into())).collect();
        if !wrong.is_empty() {
            return Err(SettingsError { wrong });
        }
        let time = |time: Duration| Some(Value::Text(units::time_text(time)));
        let number = |number: u32| Some(Value::from(number));
        let flag = |flag: bool| Some(Value::from(flag));
        let word = |word: &str| Some(Value::from(word));
        let words = |words: &[String]| Value::from(words.to_vec());
        let name = |name: &Option<String>| name.clone().map(Value::Text);
        let start = if self.start == Start::Active { "active" } else { "inactive" };
        let when_empty = if self.when_empty == WhenEmpty::Wait { "wait" } else { "fail" };
        let order = if self.idle_order == IdleOrder::Fifo { "fifo" } else { "lifo" };
        let mode = match self.mode {
            Mode::Auto => "auto",
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
        };
        let speculate_after = match self.speculate_after {
            SpeculateAfter::Off => "off".to_owned(),
            SpeculateAfter::P99 => "p99".to_owned(),
            SpeculateAfter::Time(after) => units::time_text(after),
        };
        let entries = [
            ("name", word(&self.name)),
            ("enabled", flag(self.enabled)),
            ("start", word(start)),
            ("mode", word(mode)),
            ("servers", Some(words(&self.servers))),
            ("port", number(self.port.into())),
            ("when-empty", word(when_empty)),
            ("deadline", time(self.deadline)),
            ("queue-limit", i64::try_from(self.queue_limit).ok().map(Value::Integer)),
            ("early-refusal", flag(self.early_refusal)),
            ("tcp-timeout", time(self.tcp_timeout)),
            ("handshake-timeout", time(self.handshake_timeout)),
            ("write-timeout", time(self.write_timeout)),
            ("start-jitter", time(self.start_jitter)),
            ("max-backoff", time(self.max_backoff)),
            ("connections-per-server", self.connections_per_server.map(Value::from)),
            ("max-connections-per-server", self.max_connections_per_server.map(Value::from)),
            ("streams-per-connection", number(self.streams_per_connection)),
            ("max-connecting", number(self.max_connecting)),
            ("tries", number(self.tries)),
            ("idle-order", word(order)),
            ("decay-per-billion", self.decay_per_billion.map(Value::from)),
            ("max-age", time(self.max_age)),
            ("max-idle", time(self.max_idle)),
            ("recycle-budget", number(self.recycle_budget)),
            ("discovery", flag(self.discovery)),
            ("discover-every", time(self.discover_every)),
            ("translate", self.translate.value()),
            ("filter", self.filter.value()),
            ("local-datacentre", name(&self.local_datacentre)),
            ("local-rack", name(&self.local_rack)),
            ("allow-remote", flag(self.allow_remote)),
            ("heartbeat-idle", time(self.heartbeat_idle)),
            ("heartbeat-timeout", time(self.heartbeat_timeout)),
            ("max-orphans", number(self.max_orphans)),
            ("suspect-stay", time(self.suspect_stay)),
            ("slow-start", time(self.slow_start)),
            ("speculate-after", word(&speculate_after)),
            ("speculate-budget", number(self.speculate_budget)),
            ("retry-budget", number(self.retry_budget)),
            ("loan-warn", time(self.loan_warn)),
            ("drain-timeout", time(self.drain_timeout)),
        ];
        let own = entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Ok(self.connector.clone().into_iter().chain(own).collect())
    }

    /// Reads and checks settings; missing keys have their defaults. A table whose name is not a key of the pool belongs
    /// to the connector, which checks it later.
    ///
    /// # Errors
    /// Everything that is wrong, including unknown keys.
    pub fn from_table(table: &Table) -> Result<Settings, SettingsError> {
        let mut read = TableReader { settings: Settings::default(), wrong: Vec::new() };
        for (key, value) in table {
            read.key(key, value);
        }
        let TableReader { settings, mut wrong } = read;
        // A key that could not be read has its default here, so the check does not report it again.
        wrong.extend(settings.check().err().into_iter().flat_map(|error| error.wrong));
        if wrong.is_empty() { Ok(settings) } else { Err(SettingsError { wrong }) }
    }
}

struct TableReader {
    settings: Settings,
    wrong: Vec<(String, String)>,
}

impl TableReader {
    fn key(&mut self, key: &str, value: &Value) {
        let s = &mut self.settings;
        let taken = match key {
            "name" => text(value, &mut s.name),
            "enabled" => flag(value, &mut s.enabled),
            "start" => word(value, &mut s.start, &[("active", Start::Active), ("inactive", Start::Inactive)]),
            "mode" => {
                let words = [("auto", Mode::Auto), ("exclusive", Mode::Exclusive), ("shared", Mode::Shared)];
                word(value, &mut s.mode, &words)
            }
            "servers" => texts(value, &mut s.servers),
            "port" => number(value, &mut s.port),
            "when-empty" => word(value, &mut s.when_empty, &[("wait", WhenEmpty::Wait), ("fail", WhenEmpty::Fail)]),
            "deadline" => time(value, &mut s.deadline),
            "queue-limit" => number(value, &mut s.queue_limit),
            "early-refusal" => flag(value, &mut s.early_refusal),
            "tcp-timeout" => time(value, &mut s.tcp_timeout),
            "handshake-timeout" => time(value, &mut s.handshake_timeout),
            "write-timeout" => time(value, &mut s.write_timeout),
            "start-jitter" => time(value, &mut s.start_jitter),
            "max-backoff" => time(value, &mut s.max_backoff),
            "connections-per-server" => number(value, s.connections_per_server.insert(0)),
            "max-connections-per-server" => number(value, s.max_connections_per_server.insert(0)),
            "streams-per-connection" => number(value, &mut s.streams_per_connection),
            "max-connecting" => number(value, &mut s.max_connecting),
            "tries" => number(value, &mut s.tries),
            "idle-order" => word(value, &mut s.idle_order, &[("fifo", IdleOrder::Fifo), ("lifo", IdleOrder::Lifo)]),
            "decay-per-billion" => number(value, s.decay_per_billion.insert(0)),
            "max-age" => time(value, &mut s.max_age),
            "max-idle" => time(value, &mut s.max_idle),
            "recycle-budget" => number(value, &mut s.recycle_budget),
            "discovery" => {
                flag(value, &mut s.discovery) || word(value, &mut s.discovery, &[("on", true), ("off", false)])
            }
            "discover-every" => time(value, &mut s.discover_every),
            "translate" => s.translate.read(value),
            "filter" => s.filter.read(value),
            "local-datacentre" => text(value, s.local_datacentre.insert(String::new())),
            "local-rack" => text(value, s.local_rack.insert(String::new())),
            "allow-remote" => flag(value, &mut s.allow_remote),
            "heartbeat-idle" => time(value, &mut s.heartbeat_idle),
            "heartbeat-timeout" => time(value, &mut s.heartbeat_timeout),
            "max-orphans" => number(value, &mut s.max_orphans),
            "suspect-stay" => time(value, &mut s.suspect_stay),
            "slow-start" => time(value, &mut s.slow_start),
            "speculate-after" => {
                let words = [("off", SpeculateAfter::Off), ("p99", SpeculateAfter::P99)];
                let mut after = Duration::ZERO;
                let is_time = time(value, &mut after);
                if is_time {
                    s.speculate_after = SpeculateAfter::Time(after);
                }
                is_time || word(value, &mut s.speculate_after, &words)
            }
            "speculate-budget" => number(value, &mut s.speculate_budget),
            "retry-budget" => number(value, &mut s.retry_budget),
            "loan-warn" => time(value, &mut s.loan_warn),
            "drain-timeout" => time(value, &mut s.drain_timeout),
            _ if matches!(value, Value::Table(_)) => {
                s.connector.insert(key.to_owned(), value.clone());
                true
            }
            _ => return self.wrong.push((key.to_owned(), unknown(key))),
        };
        if !taken {
            self.refused(key, value);
        }
    }

    fn refused(&mut self, key: &str, value: &Value) {
        let default = Settings::default();
        let s = &mut self.settings;
        // Resets the key to its default, so that the check does not report it again.
        match key {
            "connections-per-server" => s.connections_per_server = None,
            "max-connections-per-server" => s.max_connections_per_server = None,
            "decay-per-billion" => s.decay_per_billion = None,
            "local-datacentre" => s.local_datacentre = None,
            "local-rack" => s.local_rack = None,
            "servers" => s.servers = default.servers,
            "translate" => s.translate = default.translate,
            "filter" => s.filter = default.filter,
            _ => {}
        }
        let range = allowed(key);
        let is_time = range.starts_with(|first: char| first.is_ascii_digit()) && units_in(range);
        let help = if is_time { format!(", {}", units::HELP) } else { String::new() };
        self.wrong.push((key.to_owned(), format!("is {value}, allowed is {range}{help}")));
    }
}

fn units_in(range: &str) -> bool {
    range
        .split_whitespace()
        .last()
        .is_some_and(|word| ["min", "h", "day", "days"].iter().any(|unit| word.ends_with(unit)))
}

/// The message for a key that does not exist.
pub fn unknown(key: &str) -> String {
    let meant = nearest(key, KEYS.iter().map(|key| key.name));
    meant.map_or_else(|| "is no setting of a pool".to_owned(), |word| format!("is no setting; did you mean `{word}`?"))
}

fn text(value: &Value, into: &mut String) -> bool {
    let Value::Text(text) = value else { return false };
    into.clone_from(text);
    true
}

fn texts(value: &Value, into: &mut Vec<String>) -> bool {
    let Value::List(items) = value else { return false };
    let texts = items.iter().map(|item| match item {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    });
    let Some(texts) = texts.collect() else { return false };
    *into = texts;
    true
}

fn flag(value: &Value, into: &mut bool) -> bool {
    let Value::Boolean(flag) = value else { return false };
    *into = *flag;
    true
}

fn word<T: Copy>(value: &Value, into: &mut T, words: &[(&str, T)]) -> bool {
    let Value::Text(text) = value else { return false };
    let Some((_, meant)) = words.iter().find(|(word, _)| word == text) else { return false };
    *into = *meant;
    true
}

fn number<T: TryFrom<i64>>(value: &Value, into: &mut T) -> bool {
    let Value::Integer(number) = value else { return false };
    let Ok(number) = T::try_from(*number) else { return false };
    *into = number;
    true
}

fn time(value: &Value, into: &mut Duration) -> bool {
    let Value::Text(text) = value else { return false };
    let Some(time) = units::time(text) else { return false };
    *into = time;
    true
}

fn addresses(value: &Value) -> Option<Vec<SocketAddr>> {
    let Value::List(items) = value else { return None };
    let address = |item: &Value| match item {
        Value::Text(text) => text.parse().ok(),
        _ => None,
    };
    items.iter().map(address).collect()
}

impl Translate {
    fn value(&self) -> Option<Value> {
        let entries = self.table.iter().map(|(from, to)| (from.to_string(), Value::Text(to.to_string())));
        (!self.table.is_empty()).then(|| Value::Table(entries.collect()))
    }

    fn read(&mut self, value: &Value) -> bool {
        let Value::Table(entries) = value else { return false };
        entries.iter().all(|(from, to)| {
            let Value::Text(to) = to else { return false };
            let (Ok(from), Ok(to)) = (from.parse(), to.parse()) else { return false };
            self.table.insert(from, to);
            true
        })
    }
}

impl Filter {
    fn value(&self) -> Option<Value> {
        let addresses = self.addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>();
        let all = [("datacentres", &self.datacentres), ("racks", &self.racks), ("addresses", &addresses)];
        let named = all.into_iter().filter(|(_, words)| !words.is_empty());
        let entries: Table = named.map(|(key, words)| (key.to_owned(), Value::from(words.clone()))).collect();
        (!entries.is_empty()).then_some(Value::Table(entries))
    }

    fn read(&mut self, value: &Value) -> bool {
        let Value::Table(entries) = value else { return false };
        entries.iter().all(|(key, value)| match key.as_str() {
            "datacentres" => texts(value, &mut self.datacentres),
            "racks" => texts(value, &mut self.racks),
            "addresses" => addresses(value).map(|all| self.addresses = all).is_some(),
            _ => false,
        })
    }
}

//! The settings of a pool: one value, checked as a whole. Settings with an error change nothing.

mod check;
mod compiled;
mod dictionary;
mod provider;
mod section;
mod table;
#[cfg(test)]
mod tests;
mod units;

use std::{collections::BTreeMap, fmt, net::SocketAddr, sync::Arc, time::Duration};

use check::allowed;
pub use check::{KEYS, Key, SettingsError};
pub use compiled::{CompiledError, CompiledSettings};
pub(crate) use dictionary::unknown;
pub(crate) use provider::apply_planted_bug;
pub use provider::{Functions, Provider};
pub use section::Section;
pub use table::{Table, Value, nearest};

use crate::server::Server;

#[expect(deprecated, reason = "the old names keep programs compiling that use them")]
pub use crate::renamed::Compiled;

/// The state in which a new pool starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    Active,
    Inactive,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// As many requests at a time as the connection offers.
    Auto,
    /// One request at a time, even if the connection could carry more.
    Exclusive,
    /// Many requests at a time, as many as the connection offers.
    Shared,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenEmpty {
    Wait,
    Fail,
}

/// Which idle connection is lent next: the one that is idle for longest, so that all are used, or the one used last, so
/// that the rest can be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdleOrder {
    Fifo,
    Lifo,
}

/// When an idempotent request is hedged: sent a second time, to another server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpeculateAfter {
    Off,
    Time(Duration),
    /// After the time that 99 % of the requests to that server stay below.
    P99,
}

type Hook<I, O> = Arc<dyn Fn(&I) -> O + Send + Sync>;

/// Which addresses to dial instead of the discovered ones.
#[derive(Clone, Default)]
pub struct Translate {
    pub table: BTreeMap<SocketAddr, SocketAddr>,
    pub hook: Option<Hook<SocketAddr, SocketAddr>>,
}

/// Which discovered servers to use; an empty filter lets all pass.
#[derive(Clone, Default)]
pub struct Filter {
    pub datacentres: Vec<String>,
    pub racks: Vec<String>,
    pub addresses: Vec<SocketAddr>,
    pub hook: Option<Hook<Server, bool>>,
}

impl Translate {
    pub fn apply(&self, address: SocketAddr) -> SocketAddr {
        match (self.table.get(&address), &self.hook) {
            (Some(instead), _) => *instead,
            (None, Some(hook)) => hook(&address),
            (None, None) => address,
        }
    }
}

impl Filter {
    pub fn lets_pass(&self, server: &Server) -> bool {
        let named = |names: &[String], name: &Option<Arc<str>>| {
            names.is_empty() || name.as_ref().is_some_and(|name| names.iter().any(|one| **one == **name))
        };
        named(&self.datacentres, &server.datacentre)
            && named(&self.racks, &server.rack)
            && (self.addresses.is_empty() || self.addresses.contains(&server.address))
            && self.hook.as_ref().is_none_or(|hook| hook(server))
    }
}

// Two functions are equal if they are the same object.
fn same<I, O>(one: &Option<Hook<I, O>>, other: &Option<Hook<I, O>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        _ => false,
    }
}

impl PartialEq for Translate {
    fn eq(&self, other: &Translate) -> bool {
        self.table == other.table && same(&self.hook, &other.hook)
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Filter) -> bool {
        (&self.datacentres, &self.racks, &self.addresses) == (&other.datacentres, &other.racks, &other.addresses)
            && same(&self.hook, &other.hook)
    }
}

impl fmt::Debug for Translate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Translate").field("table", &self.table).field("hook", &self.hook.is_some()).finish()
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("datacentres", &self.datacentres)
            .field("racks", &self.racks)
            .field("addresses", &self.addresses)
            .field("hook", &self.hook.is_some())
            .finish()
    }
}

/// All settings. [`KEYS`] describes each key and its range. A field that is `None` depends on the mode or is off.
///
/// ```
/// use std::time::Duration;
/// use honeyflow_pool::Settings;
///
/// let settings = Settings {
///     servers: vec!["127.0.0.1:9042".into()],
///     deadline: Duration::from_secs(2),
///     ..Settings::default()
/// };
/// settings.check().unwrap();
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    pub name: String,
    pub enabled: bool,
    pub start: Start,
    pub mode: Mode,
    /// Addresses or names, with or without port. They are the start; discovery replaces them.
    pub servers: Vec<String>,
    pub port: u16,
    pub when_empty: WhenEmpty,
    pub deadline: Duration,
    pub queue_limit: usize,
    pub early_refusal: bool,
    pub tcp_timeout: Duration,
    pub handshake_timeout: Duration,
    pub write_timeout: Duration,
    pub start_jitter: Duration,
    pub max_backoff: Duration,
    /// Default: 3 for exclusive connections, 2 for shared ones.
    pub connections_per_server: Option<u32>,
    /// Default: the same as `connections_per_server`.
    pub max_connections_per_server: Option<u32>,
    pub streams_per_connection: u32,
    pub max_connecting: u32,
    pub tries: u32,
    pub idle_order: IdleOrder,
    /// Default: 100,000 for exclusive connections, 0 for shared ones.
    pub decay_per_billion: Option<u32>,
    pub max_age: Duration,
    pub max_idle: Duration,
    /// How many connections of a server may be replaced at the same time.
    pub recycle_budget: u32,
    pub discovery: bool,
    pub discover_every: Duration,
    pub translate: Translate,
    pub filter: Filter,
    pub local_datacentre: Option<String>,
    pub local_rack: Option<String>,
    pub allow_remote: bool,
    pub heartbeat_idle: Duration,
    pub heartbeat_timeout: Duration,
    pub max_orphans: u32,
    pub suspect_stay: Duration,
    pub slow_start: Duration,
    pub speculate_after: SpeculateAfter,
    /// How many requests may be hedged, in percent.
    pub speculate_budget: u32,
    /// How many retries there may be, in percent of requests.
    pub retry_budget: u32,
    pub loan_warn: Duration,
    pub drain_timeout: Duration,
    /// The tables of the connector, by name. See [`Connector::configure`](crate::Connector::configure).
    pub connector: Table,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            name: "pool".to_owned(),
            enabled: true,
            start: Start::Active,
            mode: Mode::Auto,
            servers: vec!["127.0.0.1".to_owned()],
            port: 9042,
            when_empty: WhenEmpty::Wait,
            deadline: Duration::from_secs(5),
            queue_limit: 4096,
            early_refusal: true,
            tcp_timeout: Duration::from_millis(500),
            handshake_timeout: Duration::from_secs(2),
            write_timeout: Duration::from_secs(5),
            start_jitter: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            connections_per_server: None,
            max_connections_per_server: None,
            streams_per_connection: 1024,
            max_connecting: 8,
            tries: 3,
            idle_order: IdleOrder::Fifo,
            decay_per_billion: None,
            max_age: Duration::from_secs(30 * 60),
            max_idle: Duration::from_secs(10 * 60),
            recycle_budget: 1,
            discovery: true,
            discover_every: Duration::from_secs(60),
            translate: Translate::default(),
            filter: Filter::default(),
            local_datacentre: None,
            local_rack: None,
            allow_remote: false,
            heartbeat_idle: Duration::from_secs(10),
            heartbeat_timeout: Duration::from_secs(5),
            max_orphans: 256,
            suspect_stay: Duration::from_secs(1),
            slow_start: Duration::from_secs(30),
            speculate_after: SpeculateAfter::Off,
            speculate_budget: 10,
            retry_budget: 20,
            loan_warn: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(10),
            connector: Table::new(),
        }
    }
}

impl Settings {
    /// The configured servers, each with the default port if it has none.
    pub fn seeds(&self) -> impl Iterator<Item = String> {
        self.servers.iter().map(|seed| {
            let has_port = match seed.rsplit_once(':') {
                // An IPv6 address contains colons; with a port it stands in brackets.
                Some((host, port)) => {
                    port.bytes().all(|byte| byte.is_ascii_digit()) && (!host.contains(':') || host.ends_with(']'))
                }
                None => false,
            };
            match (has_port, seed.contains(':') && !seed.starts_with('[')) {
                (true, _) => seed.clone(),
                (false, true) => format!("[{seed}]:{}", self.port),
                (false, false) => format!("{seed}:{}", self.port),
            }
        })
    }
}

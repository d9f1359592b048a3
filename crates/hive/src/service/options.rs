//! The options of a node.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use honeyflow_event::Name;
use honeyflow_runtime::{Clock, Failure, time::BootClock};
use serde_json::{Map, Value};

use crate::{limit::Definition, member::Config};

/// Gets the name of the lease.
pub type OnUnstopped = Arc<dyn Fn(&str) + Send + Sync>;

/// ```
/// # use honeyflow_hive::Options;
/// let options = Options { weight: Some(50), ..Options::named("web-1") }.fast();
/// assert!(options.heartbeat.as_millis() == 500 && options.time_to_live.as_millis() == 1500);
/// ```
#[derive(Clone)]
pub struct Options {
    /// A label: several nodes may have the same.
    pub name: Name,
    /// Data about this node that other nodes and people can read.
    pub meta: Map<String, Value>,
    pub heartbeat: Duration,
    /// At least three heartbeats.
    pub time_to_live: Duration,
    pub count_every: Duration,
    /// How long traffic counts, at most 30 s.
    pub engaged_ttl: Duration,
    pub expected_nodes: u64,
    /// Operations per second that the store can handle for one limit, from all nodes together. Default: 500, or 5,000
    /// if the store keeps nothing on disk.
    pub store_budget: Option<u64>,
    /// The limits that hold for all nodes together; more can be declared later.
    pub limits: Vec<Definition>,
    /// How long the work under a lease may take to end before the lease is handed over.
    pub leave_within: Duration,
    /// The node may hold leases: shards, duties, and the queen's.
    pub eligible: bool,
    /// The node is a candidate for queen.
    pub stands: bool,
    /// The node may be given traffic from its first heartbeat on. A program that has to check something first sets
    /// false, and calls [`crate::Hive::ready`] later.
    pub ready: bool,
    /// The node's part of the shards, and of a limit that is short, relative to other nodes. Default: 100. With 0 it
    /// gets no shards, and the smallest part of limits.
    pub weight: Option<u32>,
    /// Sources whose shards it takes ([`crate::Hive::shards`]). Other nodes read it, and leave this node its part.
    pub sources: Vec<String>,
    /// For each source, the only shards that it takes (`"0-15,20"`).
    pub pin: BTreeMap<String, String>,
    /// The node gives up its leases while the runtime that started it is stalled.
    pub watch_runtime: bool,
    pub clock: Arc<dyn Clock>,
    /// Called if that runtime has been stalled for 30 s: the program should end then.
    pub on_stuck: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Called with a lost duty ([`crate::Hive::lead`]) whose work has not stopped half a second after its term could
    /// last have been valid, while that runtime is alive; not for time in which the process was asleep. Stores refuse
    /// writes that show its fence, and other nodes get the duty until the work has stopped. A program whose work has
    /// other effects should end then.
    pub on_unstopped: Option<OnUnstopped>,
}

impl Default for Options {
    fn default() -> Options {
        Options::named("node")
    }
}

impl Options {
    pub fn named(name: impl Into<Name>) -> Options {
        let Config { name, heartbeat, time_to_live, count_every, engaged_ttl, expected_nodes, leave_within, .. } =
            Config::new(name, "{}");
        Options {
            name,
            meta: Map::new(),
            heartbeat,
            time_to_live,
            count_every,
            engaged_ttl,
            expected_nodes,
            store_budget: None,
            limits: Vec::new(),
            leave_within,
            eligible: true,
            stands: true,
            ready: true,
            weight: None,
            sources: Vec::new(),
            pin: BTreeMap::new(),
            watch_runtime: true,
            clock: Arc::new(BootClock),
            on_stuck: None,
            on_unstopped: None,
        }
    }

    /// Fails over in less than two seconds, at the cost of four times as many heartbeats.
    #[must_use]
    pub fn fast(self) -> Options {
        Options { heartbeat: Duration::from_millis(500), time_to_live: Duration::from_millis(1500), ..self }
    }

    /// Adds a source whose shards this node takes.
    #[must_use]
    pub fn source(mut self, name: impl Into<String>) -> Options {
        self.sources.push(name.into());
        self
    }

    /// Adds a limit.
    #[must_use]
    pub fn limit(mut self, definition: Definition) -> Options {
        self.limits.push(definition);
        self
    }

    pub(super) fn config(&self, one_machine: bool, pulsed: bool) -> Result<Config, Failure> {
        let mut meta = self.meta.clone();
        if let Some(weight) = self.weight {
            meta.insert("weight".to_owned(), weight.into());
        }
        meta.insert("sources".to_owned(), self.sources.clone().into());
        if !self.pin.is_empty() {
            let pin = self.pin.iter().map(|(source, shards)| (source.clone(), shards.clone().into()));
            meta.insert("pin".to_owned(), Value::Object(pin.collect()));
        }
        let config = Config {
            heartbeat: self.heartbeat,
            time_to_live: self.time_to_live,
            count_every: self.count_every,
            engaged_ttl: self.engaged_ttl,
            expected_nodes: self.expected_nodes,
            leave_within: self.leave_within,
            eligible: self.eligible,
            stands: self.stands,
            ready: self.ready,
            pulsed,
            one_machine,
            clock: self.clock.clone(),
            seed: uuid::Uuid::new_v4().as_u64_pair().0,
            ..Config::new(self.name.clone(), Value::Object(meta).to_string())
        };
        config.validate()?;
        Ok(config)
    }
}

//! How a node takes part.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use honeyflow_event::Name;
use honeyflow_runtime::{Clock, Failure, time::BootClock};
use serde_json::{Map, Value};

use crate::{limit::Definition, member::Config};

/// Told which lease.
pub type OnUnstopped = Arc<dyn Fn(&str) + Send + Sync>;

/// ```
/// # use honeyflow_hive::Options;
/// let options = Options { weight: Some(50), ..Options::named("web-1") }.fast();
/// assert!(options.heartbeat.as_millis() == 500 && options.time_to_live.as_millis() == 1500);
/// ```
#[derive(Clone)]
pub struct Options {
    /// A label: several nodes may bear it.
    pub name: Name,
    /// What others read about this node.
    pub meta: Map<String, Value>,
    pub heartbeat: Duration,
    /// At least three heartbeats.
    pub time_to_live: Duration,
    pub count_every: Duration,
    /// How long traffic counts, at most 30 s.
    pub engaged_ttl: Duration,
    pub expected_nodes: u64,
    /// Operations a second that the store bears for one limit, from all nodes together. Nothing said: 500, or 5,000 where
    /// the store keeps nothing on a disk.
    pub store_budget: Option<u64>,
    /// What the program limits, with all nodes together; more can be declared later.
    pub limits: Vec<Definition>,
    /// How long work under a lease may take to come to an end before it is handed over.
    pub leave_within: Duration,
    /// May lead: shards, duties, the hive.
    pub eligible: bool,
    /// Stands for queen.
    pub stands: bool,
    /// May be given traffic from its first beat on. A program that has to look first says no here, and later what it has
    /// found ([`crate::Hive::ready`]).
    pub ready: bool,
    /// Its part of the shards, and of a limit for which more is asked than there is, against that of others. Nothing said:
    /// 100. With 0 it has no shards, and of limits the least part.
    pub weight: Option<u32>,
    /// Sources whose shards it takes ([`crate::Hive::shards`]). Others read it, and leave its part of them to this node.
    pub sources: Vec<String>,
    /// By source: the shards it takes, and no others (`"0-15,20"`).
    pub pin: BTreeMap<String, String>,
    /// Gives up its leases while the runtime that has started it stands still.
    pub watch_runtime: bool,
    pub clock: Arc<dyn Clock>,
    /// Called if that runtime has stood still for half a minute: a program should end then.
    pub on_stuck: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Called with a duty ([`crate::Hive::lead`]) that was lost while that runtime lives, and whose work has not stopped half
    /// a second after its term could last have been good; not for what a process has slept through. Nothing that shows its
    /// fence is accepted, and the duty is left to other nodes until the work has stopped; a program that has other effects
    /// should end then.
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

    /// Fails over in less than two seconds, for four times the beats.
    #[must_use]
    pub fn fast(self) -> Options {
        Options { heartbeat: Duration::from_millis(500), time_to_live: Duration::from_millis(1500), ..self }
    }

    /// Takes its part of this source's shards too.
    #[must_use]
    pub fn source(mut self, name: impl Into<String>) -> Options {
        self.sources.push(name.into());
        self
    }

    /// One limit more.
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

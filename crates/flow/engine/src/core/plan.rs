//! The configuration as the core uses it: numbers instead of names.

use std::{sync::Arc, time::Duration};

use hashbrown::HashMap;
use honeyflow_event::{Name, Priority};
use honeyflow_store::KeyType;
use honeyflow_workflow::{Exclusion, Graph, Order};

pub type SourceId = u16;
pub type EntityId = u16;
pub type KindId = u16;
pub type TargetId = u16;

/// Expressions are dispatched like steps of this separate kind.
pub const EXPRESSION: KindId = 0;

#[derive(Clone, Debug)]
pub struct Plan {
    /// Every shard of every source; the shards of one source stand together.
    pub sources: Vec<SourcePlan>,
    pub workflows: Vec<Arc<WorkflowPlan>>,
    /// Kinds of steps; the first is [`EXPRESSION`].
    pub kinds: Vec<Name>,
    /// The targets of steps (a sink, a database, a host): each has a breaker.
    pub targets: Vec<Name>,
    pub limits: Limits,
}

/// One shard of a source. Each shard has its own lease, stamps and rows in flight.
#[derive(Clone, Debug)]
pub struct SourcePlan {
    pub name: Name,
    /// The id of the installation in its store.
    pub install_id: u128,
    /// The index of the shell's port to its store; the shards of one source share it.
    pub port: usize,
    pub lease: Name,
    pub shard: u16,
    pub payload_bytes_max: u64,
    /// The entities by name, each with the workflows that its events start, in order of priority, then name.
    pub entities: HashMap<Name, EntityPlan>,
    /// For each name that rows carry (a captured table's or an entity's): the entities that the rows may lead to.
    pub leads: Vec<(Name, Vec<Name>)>,
    /// The definition versions as this source's store numbers them: each store counts separately. If empty, the numbers
    /// are those of the graphs.
    pub versions: Vec<Version>,
}

#[derive(Clone, Debug)]
pub struct Version {
    pub workflow: Name,
    pub number: u32,
    /// The index among the plan's workflows, or the reason why this node cannot execute the version.
    pub planned: Result<usize, String>,
}

#[derive(Clone, Debug)]
pub struct EntityPlan {
    pub id: EntityId,
    /// The types of the parts of its key; empty if any text can be a key.
    pub key: Vec<KeyType>,
    pub workflows: Vec<usize>,
}

#[derive(Clone, Debug)]
pub struct WorkflowPlan {
    pub name: Name,
    /// An earlier version: its runs continue by it, and no new run begins by it.
    pub older: bool,
    pub graph: Arc<Graph>,
    pub priority: Option<Priority>,
    pub exclusion: Exclusion,
    pub order: Order,
    /// The kind of each step.
    pub kinds: Vec<KindId>,
    pub targets: Vec<TargetId>,
}

/// Every queue, batch and retry has a bound; these are their defaults.
#[derive(Clone, Debug)]
pub struct Limits {
    pub runs_max: usize,
    pub rows_max: usize,
    pub rows_per_key_max: usize,
    /// Up to this many runs that only wait do not count towards `runs_max`.
    pub waiting_runs_max: usize,
    /// The payload bytes of all rows in flight.
    pub payload_bytes_max: usize,
    pub poll_rows_max: u32,
    pub settle_rows_max: usize,
    /// Sequences per epoch; tests use a smaller number.
    pub sequence_max: u32,
    pub poll_busy: Duration,
    pub poll_quiet: Duration,
    pub poll_idle: Duration,
    pub sweep_busy: Duration,
    pub sweep_idle: Duration,
    pub store_backoff: honeyflow_runtime::Backoff,
    pub retry_backoff: honeyflow_runtime::Backoff,
    pub reject_waits: [Duration; 4],
    pub parked_per_minute_max: u32,
    pub batch_target: Duration,
    /// Waiting work rises one level in this time; tests use a shorter one.
    pub rises_after: Duration,
    pub fan_out_page: u32,
    pub fan_out_pending_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        let seconds = Duration::from_secs;
        let millis = Duration::from_millis;
        Limits {
            runs_max: 20_000,
            rows_max: 50_000,
            rows_per_key_max: 256,
            waiting_runs_max: 100_000,
            payload_bytes_max: 64 << 20,
            poll_rows_max: 4_000,
            settle_rows_max: 2_000,
            sequence_max: honeyflow_event::Stamp::SEQUENCE_MAX,
            poll_busy: millis(1),
            poll_quiet: millis(4),
            poll_idle: millis(100),
            sweep_busy: seconds(1),
            sweep_idle: seconds(10),
            store_backoff: honeyflow_runtime::Backoff::new(millis(50), seconds(5)),
            retry_backoff: honeyflow_runtime::Backoff::new(millis(200), seconds(60)),
            reject_waits: [seconds(1), seconds(4), seconds(16), seconds(64)],
            parked_per_minute_max: 100,
            rises_after: seconds(30),
            batch_target: millis(200),
            fan_out_page: 1_000,
            fan_out_pending_max: 50_000,
        }
    }
}

impl Plan {
    pub fn workflow(&self, name: &str) -> Option<usize> {
        self.workflows.iter().position(|workflow| &*workflow.name == name)
    }

    /// Returns the index of the plan of a version, by its number in the source's store.
    ///
    /// # Errors
    /// Returns the reason why this node cannot execute the version; the text continues `version 3 …`.
    pub fn find_version(&self, source: SourceId, workflow: &str, number: u32) -> Result<usize, String> {
        let versions = &self.sources[source as usize].versions;
        let absent = || "is not known here: its definition is not stored".to_owned();
        if versions.is_empty() {
            let own = |planned: &Arc<WorkflowPlan>| &*planned.name == workflow && planned.graph.version == number;
            return self.workflows.iter().position(own).ok_or_else(absent);
        }
        let found = versions.iter().find(|known| &*known.workflow == workflow && known.number == number);
        found.map_or_else(|| Err(absent()), |known| known.planned.clone())
    }

    /// Returns the version number of a plan in the source's store.
    pub fn number(&self, source: SourceId, workflow: usize) -> u32 {
        let versions = self.sources[source as usize].versions.iter();
        let mut numbers = versions.filter(|known| known.planned == Ok(workflow)).map(|known| known.number);
        numbers.next().unwrap_or(self.workflows[workflow].graph.version)
    }
}

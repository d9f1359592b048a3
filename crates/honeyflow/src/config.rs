//! Reads `honeyflow.toml` and reports its problems.
//!
//! The text becomes a [`tree`] of values with their places; [`read`] turns the tree into a [`Config`], using the tables
//! in [`keys`]. All problems are reported at once, and there is a [`Config`] only if there is no error. This module
//! does not read databases: `check` does.

pub mod cassandra;
mod cross;
pub mod existing;
mod fields;
mod hive;
pub mod keys;
pub mod limit;
mod on;
pub mod problems;
mod read;
pub mod reference;
pub mod secret;
#[cfg(test)]
mod tests;
pub mod tree;
pub mod units;
mod values;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use honeyflow_event::{Name, Priority};
use honeyflow_workflow::{Catalogue, Definition, Problem};

pub use cassandra::{CassandraConfig, CqlConfig};
pub use cross::warning;
pub use fields::{Field, FieldType};
pub use hive::{HiveConfig, RoleConfig};
pub use limit::LimitConfig;
pub use problems::Report;
pub use read::name_of;
pub use secret::Url;
use tree::Node;

/// The content of the file, with all defaults filled in.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from.
    pub file: PathBuf,
    pub node: NodeConfig,
    pub engine: EngineConfig,
    pub hive: HiveConfig,
    pub sources: Vec<SourceConfig>,
    pub entities: Vec<EntityConfig>,
    pub messages: Vec<MessageConfig>,
    pub sinks: Vec<SinkConfig>,
    pub clusters: Vec<CassandraConfig>,
    pub workflows: Vec<Definition>,
    pub limits: Vec<LimitConfig>,
}

#[derive(Clone, Debug)]
pub struct NodeConfig {
    pub data: PathBuf,
    /// Always a loopback address, until access tokens and TLS exist.
    pub listen: SocketAddr,
    pub name: Option<String>,
    /// The limit for requests to the event endpoint.
    pub limit: Option<Name>,
    pub drain: Duration,
    pub role: RoleConfig,
}

#[derive(Clone, Debug)]
pub struct EngineConfig {
    pub max_runs: usize,
    pub rows_max: usize,
    pub rows_per_key_max: usize,
    pub waiting_runs_max: usize,
    pub poll_rows_max: u32,
    pub poll_idle: Duration,
    pub parked_per_minute_max: u32,
    pub fan_out_page: u32,
    pub fan_out_pending_max: u32,
}

#[derive(Clone, Debug)]
pub struct SourceConfig {
    pub name: Name,
    pub url: Url,
    /// The number of shards that a new installation gets; an existing one keeps its number.
    pub shards: u16,
    /// Whether the file contains the number; then it must equal the installed one.
    pub shards_written: bool,
    pub payload_bytes_max: u64,
}

#[derive(Clone, Debug)]
pub struct EntityConfig {
    pub name: Name,
    pub source: Name,
    pub table: String,
    pub key: Vec<String>,
    pub columns: Columns,
    /// Columns that a workflow names in its `on`: triggers report which of them an update changed.
    pub reported: Vec<String>,
    pub json: Vec<String>,
    /// SQL with `$keys`, as written.
    pub document: String,
    pub priority: Priority,
    pub untracked: Vec<String>,
    pub edges: Vec<EdgeConfig>,
}

/// An entity of `kind = "message"`: it has events, but neither rows nor documents.
#[derive(Clone, Debug)]
pub struct MessageConfig {
    pub name: Name,
    pub source: Name,
}

#[derive(Clone, Debug)]
pub struct EdgeConfig {
    pub table: String,
    pub columns: Columns,
    pub by: EdgeBy,
    pub fan_out: FanOut,
}

pub use honeyflow_store::capture::Columns;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EdgeBy {
    /// Columns of the edge's table that contain the entity's key.
    Key(Vec<String>),
    /// SQL with `$keys`, as written.
    Statement(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FanOut {
    All,
    Shallow,
    None,
}

#[derive(Clone, Debug)]
pub struct SinkConfig {
    pub name: Name,
    pub url: Url,
    pub fields: Vec<Field>,
    pub commit_interval: Duration,
    /// The table in a Cassandra cluster; none means an index in the node's data folder.
    pub table: Option<TableConfig>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableConfig {
    pub cluster: Name,
    pub keyspace: String,
    pub table: String,
    /// Columns and their fields, where the names differ.
    pub columns: BTreeMap<String, String>,
    pub document: Option<String>,
    pub consistency: String,
}

impl Config {
    pub fn source(&self, name: &str) -> Option<&SourceConfig> {
        self.sources.iter().find(|source| &*source.name == name)
    }

    pub fn entity(&self, name: &str) -> Option<&EntityConfig> {
        self.entities.iter().find(|entity| &*entity.name == name)
    }

    pub fn sink(&self, name: &str) -> Option<&SinkConfig> {
        self.sinks.iter().find(|sink| &*sink.name == name)
    }

    /// The sinks that are indexes in the node's data folder.
    pub fn indexes(&self) -> impl Iterator<Item = &SinkConfig> {
        self.sinks.iter().filter(|sink| sink.table.is_none())
    }

    pub fn cluster(&self, name: &str) -> Option<&CassandraConfig> {
        self.clusters.iter().find(|cluster| &*cluster.name == name)
    }

    pub fn limit(&self, name: &str) -> Option<&LimitConfig> {
        self.limits.iter().find(|limit| *limit.definition.name == *name)
    }

    pub fn entities_of(&self, source: &str) -> impl Iterator<Item = &EntityConfig> {
        self.entities.iter().filter(move |entity| &*entity.source == source)
    }

    /// The entities of a source that have messages only.
    pub fn messages_of(&self, source: &str) -> impl Iterator<Item = &Name> {
        self.messages.iter().filter(move |message| &*message.source == source).map(|message| &message.name)
    }

    /// The names of all entities, of either kind.
    pub fn entity_names(&self) -> impl Iterator<Item = &str> {
        let messages = self.messages.iter().map(|message| &*message.name);
        self.entities.iter().map(|entity| &*entity.name).chain(messages)
    }

    /// The source of an entity, of either kind.
    pub fn source_of(&self, entity: &str) -> Option<&Name> {
        let message = || self.messages.iter().find(|message| &*message.name == entity).map(|message| &message.source);
        self.entity(entity).map(|entity| &entity.source).or_else(message)
    }

    /// The entities whose documents a sink holds.
    pub fn entities_into(&self, sink: &str) -> Vec<Name> {
        let mut names: Vec<Name> = self
            .workflows
            .iter()
            .filter(|workflow| sinks_of(workflow).any(|(_, into)| into == sink))
            .flat_map(|workflow| workflow.on.iter().map(|on| on.entity.clone()))
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

/// The names of the events for which the workflow's steps wait.
pub fn awaited_names(workflow: &Definition) -> impl Iterator<Item = &str> {
    let waits = workflow.steps.iter().filter(|step| &*step.kind == "event.wait");
    waits.filter_map(|step| step.settings.get("name").and_then(|name| name.as_str()))
}

/// The steps of a workflow that write into a sink, with the sink's name.
pub fn sinks_of(workflow: &Definition) -> impl Iterator<Item = (&Name, &str)> {
    workflow.steps.iter().filter_map(|step| Some((&step.name, step.settings.get("into")?.as_str()?)))
}

/// A file that was read: its text, its configuration if there is no error, and its problems.
pub struct LoadedConfig {
    pub file: PathBuf,
    pub text: String,
    pub tree: Node,
    /// None if `problems` contains an error.
    pub config: Option<Config>,
    pub problems: Vec<Problem>,
}

impl LoadedConfig {
    /// The problems found so far and `more`, with their places.
    pub fn report(&self, more: Vec<Problem>) -> Report {
        let all = self.problems.iter().cloned().chain(more).collect();
        Report::new(&self.file, &self.text, &self.tree, all)
    }
}

/// Reads the file. The error is a report that the file cannot be read or is not TOML.
pub fn load(file: &Path, kinds: &Catalogue) -> Result<LoadedConfig, Report> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let help = match error.kind() {
            std::io::ErrorKind::NotFound => "create one with `honeyflow init sqlite:PATH`, or pass --config FILE",
            _ => "it must be a readable text file in UTF-8",
        };
        Report::unreadable(file, &format!("cannot be read: {error}"), help)
    })?;
    parse(file, text, kinds)
}

pub fn parse(file: &Path, text: String, kinds: &Catalogue) -> Result<LoadedConfig, Report> {
    let tree = tree::parse(&text).map_err(|broken| Report::broken(file, &text, broken))?;
    let (config, problems) = read::read(file, &tree, kinds);
    Ok(LoadedConfig { file: file.to_owned(), text, tree, config, problems })
}

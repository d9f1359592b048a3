//! Requests that an operator sends to a store, and the store's replies. None of them needs a running node.

use honeyflow_event::{Event, EventId, Key, Name};
use serde::Serialize;

use crate::write::Pause;

#[derive(Clone, Debug)]
pub enum Admin {
    Lag,
    Parked {
        filter: ParkedFilter,
        after: i64,
        limit: u32,
    },
    /// Turns the parked entries back into events, each for its one workflow. Their attempts start at 0 again.
    RetryParked {
        filter: ParkedFilter,
        mode: RetryMode,
    },
    DropParked(ParkedFilter),
    Pause(Pause),
    Resume {
        noun: String,
        name: String,
    },
    Paused,
    /// Lists the waiting events of a key, as the rows contain them.
    Events {
        entity: Name,
        key: Key,
        limit: u32,
    },
    /// Returns those of these events that are still in the outbox.
    Waiting {
        events: Vec<EventId>,
    },
    Failures {
        limit: u32,
    },
    History {
        limit: u32,
    },
    /// Lists the keys of a table in key order, for reindex and verify.
    TableKeys {
        table: String,
        key: Vec<crate::KeyColumn>,
        after: Option<Key>,
        limit: u32,
    },
    /// Stores a task that an operator has requested (reindex, cancel, replay). The shard's owner executes it.
    PutTask {
        noun: String,
        name: String,
        state: String,
    },
    Tasks,
    /// Compares the definitions that a node uses with the stored ones, in one transaction, so that nodes that ask at
    /// the same time agree: stored content keeps its version, other content gets the next version of its workflow.
    /// A node repeats this request within a day while it uses the definitions: the store deletes a version after a
    /// while if no request, checkpoint or parked event names it any more.
    PutDefinitions(Vec<NewDefinition>),
    /// Lists every stored version, ordered by workflow and number.
    Definitions {
        workflow: Option<Name>,
    },
}

/// Where a retried run starts, and which stored outputs it uses.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub enum RetryMode {
    /// The run continues where it stopped: it uses the stored outputs and the definition version that made them.
    /// Failed steps are executed again.
    #[default]
    Continue,
    /// The run continues where it stopped, but the outputs of these steps are discarded.
    Without(Vec<Name>),
    /// The run starts from the beginning and uses no stored output.
    FromStart,
}

/// A workflow's content in its canonical form: equal texts are equal definitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewDefinition {
    pub workflow: Name,
    pub content: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Definition {
    pub workflow: Name,
    /// The definition version: counts from 1, has no gaps, and is never reused.
    pub version: u32,
    pub content: String,
    pub created_ms: i64,
}

/// The answer to [`Admin::PutDefinitions`].
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Versions {
    /// The version of each definition, in the order of the request.
    pub numbers: Vec<u32>,
    /// All other versions that a checkpoint or a parked event names: a run continues under the version it started with.
    pub begun: Vec<Definition>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ParkedFilter {
    pub id: Option<i64>,
    pub tenant: Option<Name>,
    pub entity: Option<Name>,
    pub key: Option<Key>,
    pub workflow: Option<Name>,
    /// The failure's code.
    pub code: Option<String>,
}

impl Admin {
    /// Returns whether the request changes nothing, so that a read-only connection can answer it.
    pub fn is_read(&self) -> bool {
        match self {
            Admin::Lag
            | Admin::Parked { .. }
            | Admin::Paused
            | Admin::Events { .. }
            | Admin::Waiting { .. }
            | Admin::Failures { .. }
            | Admin::History { .. }
            | Admin::TableKeys { .. }
            | Admin::Definitions { .. }
            | Admin::Tasks => true,
            Admin::RetryParked { .. }
            | Admin::PutDefinitions(_)
            | Admin::DropParked(_)
            | Admin::Pause(_)
            | Admin::Resume { .. }
            | Admin::PutTask { .. } => false,
        }
    }
}

#[derive(Clone, Debug)]
pub enum AdminReply {
    Lag(Lag),
    Parked(Vec<ParkedRow>),
    Count(u64),
    Paused(Vec<Pause>),
    Events(Vec<Event>),
    /// In no order.
    Ids(Vec<EventId>),
    Failures(Vec<crate::write::StoredFailure>),
    History(Vec<serde_json::Value>),
    Keys(Vec<Key>),
    Tasks(Vec<Task>),
    Versions(Versions),
    Definitions(Vec<Definition>),
    Done,
}

/// The backlog. The database computes it, so that an operator sees it grow even while every node is stopped.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Lag {
    pub waiting: u64,
    pub by_priority: Vec<(u8, u64)>,
    pub delayed: u64,
    pub parked: u64,
    pub oldest_ms: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ParkedRow {
    pub id: i64,
    pub tenant: String,
    pub entity: String,
    pub key: String,
    pub workflow: Option<String>,
    pub step: String,
    /// The definition version of the workflow; 0 if no run had started.
    pub version: u32,
    pub attempts: u32,
    pub class: String,
    pub code: String,
    pub message: String,
    pub parked_ms: i64,
    pub payload_bytes: u64,
    /// The first 4 KiB of the payload, or all of it if it is shorter.
    pub payload_head: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Task {
    pub id: EventId,
    pub noun: String,
    pub name: String,
    pub state: String,
    pub created_ms: i64,
}

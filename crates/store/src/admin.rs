//! What people ask of a store, and what they tell it. None of it needs a running node.

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
    /// Gives all tries again: the entries become events for their one workflow.
    RetryParked {
        filter: ParkedFilter,
        again: Again,
    },
    DropParked(ParkedFilter),
    Pause(Pause),
    Resume {
        noun: String,
        name: String,
    },
    Paused,
    /// Waiting events of a key, as written in the rows.
    Events {
        entity: Name,
        key: Key,
        limit: u32,
    },
    Failures {
        limit: u32,
    },
    History {
        limit: u32,
    },
    /// Keys of a table in key order, for reindex and verify.
    TableKeys {
        table: String,
        key: Vec<crate::KeyColumn>,
        after: Option<Key>,
        limit: u32,
    },
    /// Work asked for by people (reindex, cancel, replay), carried out by the shard's owner.
    PutTask {
        noun: String,
        name: String,
        state: String,
    },
    Tasks,
    /// What a node works by, held against what is stored, in one transaction, so that nodes that ask at once agree:
    /// content that is stored keeps its number, any other gets the next one of its workflow. To be repeated within a
    /// day by who goes on working by them: what nobody names any more is forgotten after a while.
    PutDefinitions(Vec<NewDefinition>),
    /// Every stored version, by workflow and number.
    Definitions {
        workflow: Option<Name>,
    },
}

/// How a parked run is begun again.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub enum Again {
    /// Where it stopped: outputs that were kept are used, and with them the version that made them. What has failed is
    /// tried again.
    #[default]
    GoOn,
    /// The same, without the outputs of these steps.
    Without(Vec<Name>),
    /// From the start, whatever was kept.
    Anew,
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
    /// From 1, without gaps, never used twice.
    pub version: u32,
    pub content: String,
    pub created_ms: i64,
}

/// The answer to [`Admin::PutDefinitions`].
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Versions {
    /// In the order of the question.
    pub numbers: Vec<u32>,
    /// All others that a checkpoint or a parked event names: what was begun by them goes on by them.
    pub begun: Vec<Definition>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ParkedFilter {
    pub id: Option<i64>,
    pub tenant: Option<Name>,
    pub entity: Option<Name>,
    pub key: Option<Key>,
    pub workflow: Option<Name>,
    /// Code of the error.
    pub code: Option<String>,
}

impl Admin {
    /// Changes nothing: may be asked of whoever reads.
    pub fn is_read(&self) -> bool {
        match self {
            Admin::Lag
            | Admin::Parked { .. }
            | Admin::Paused
            | Admin::Events { .. }
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
    Failures(Vec<crate::write::Charged>),
    History(Vec<serde_json::Value>),
    Keys(Vec<Key>),
    Tasks(Vec<Task>),
    Versions(Versions),
    Definitions(Vec<Definition>),
    Done,
}

/// Computed in the database, so that it is seen to grow with every node stopped.
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
    /// Of the workflow, 0 where no run had begun.
    pub version: u32,
    pub attempts: u32,
    pub class: String,
    pub code: String,
    pub message: String,
    pub parked_ms: i64,
    pub payload_bytes: u64,
    /// At most the first 4 KiB.
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

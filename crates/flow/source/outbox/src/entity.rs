//! Entities as configured, and the tables that must be captured for them.

use std::sync::Arc;

use honeyflow_event::{Name, Priority};
use honeyflow_store::{Columns, KeyColumn, Statement};

/// What a document is made of, as far as events are concerned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entity {
    pub name: Name,
    pub table: String,
    pub key: Vec<KeyColumn>,
    /// Columns of `table` that the document uses.
    pub columns: Columns,
    pub edges: Vec<Edge>,
    /// Of the rows that its table's capture writes.
    pub priority: Priority,
}

/// The way back from a table to the documents that use it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    pub table: String,
    /// Key of `table`. Empty: it has none, and only [`EdgeBy::Key`] can lead on.
    pub table_key: Vec<KeyColumn>,
    /// Columns of `table` that the document uses.
    pub columns: Columns,
    pub by: EdgeBy,
    pub fan_out: FanOutMode,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EdgeBy {
    /// Columns of the edge's table that are the entity's key, part by part: OLD and NEW values are captured.
    Key(Vec<String>),
    /// Keys of the edge's table go in, keys of the entity come out.
    Statement(Arc<Statement>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FanOutMode {
    /// Every change of a used column leads on.
    #[default]
    All,
    /// Only a change of the link: a row that comes or goes, or names another container.
    Shallow,
    /// Nothing leads on.
    None,
}

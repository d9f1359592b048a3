//! Entities as configured, and the tables that must be captured for them.

use std::sync::Arc;

use honeyflow_event::{Name, Priority};
use honeyflow_store::{Columns, KeyColumn, Statement};

/// The tables and columns that a document is made of, as far as events need them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entity {
    pub name: Name,
    pub table: String,
    pub key: Vec<KeyColumn>,
    /// Columns of `table` that the document uses.
    pub columns: Columns,
    /// Columns of `table` that a workflow asks for by name: its capture says which of them an update changed.
    pub reported: Vec<String>,
    pub edges: Vec<Edge>,
    /// The priority of the rows that the capture of its table writes.
    pub priority: Priority,
}

/// A foreign key that leads from a table back to the documents that use it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    pub table: String,
    /// The key of `table`. If empty, the table has none, and only [`EdgeBy::Key`] can be followed.
    pub table_key: Vec<KeyColumn>,
    /// Columns of `table` that the document uses.
    pub columns: Columns,
    pub by: EdgeBy,
    pub fan_out: FanOutMode,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EdgeBy {
    /// Columns of the edge's table that contain the entity's key, part by part: OLD and NEW values are captured.
    Key(Vec<String>),
    /// A statement that maps keys of the edge's table to keys of the entity.
    Statement(Arc<Statement>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FanOutMode {
    /// Every change of a used column is followed.
    #[default]
    All,
    /// Only a change of the link is followed: a row that is inserted or deleted, or names another container.
    Shallow,
    /// No change is followed.
    None,
}

//! The nodes' rows, by id and, as an index of a database has them, by when they expire.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

use honeyflow_hive::{NodeId, contract::NodeRow};

#[derive(Clone, Debug, Default)]
pub struct Members {
    rows: BTreeMap<NodeId, NodeRow>,
    by_expiry: BTreeSet<(u64, NodeId)>,
}

/// To read; whatever changes goes by the index as well.
impl Deref for Members {
    type Target = BTreeMap<NodeId, NodeRow>;

    fn deref(&self) -> &BTreeMap<NodeId, NodeRow> {
        &self.rows
    }
}

impl Members {
    pub fn insert(&mut self, row: NodeRow) {
        self.by_expiry.insert((row.expires_ms, row.id));
        if let Some(was) = self.rows.insert(row.id, row) {
            self.by_expiry.remove(&(was.expires_ms, was.id));
        }
    }

    pub fn remove(&mut self, node: NodeId) -> Option<NodeRow> {
        let row = self.rows.remove(&node)?;
        self.by_expiry.remove(&(row.expires_ms, node));
        Some(row)
    }

    pub fn change<T>(&mut self, node: NodeId, change: impl FnOnce(&mut NodeRow) -> T) -> Option<T> {
        let row = self.rows.get_mut(&node)?;
        let was_ms = row.expires_ms;
        let changed = change(row);
        if row.expires_ms != was_ms {
            self.by_expiry.remove(&(was_ms, node));
            self.by_expiry.insert((row.expires_ms, node));
        }
        Some(changed)
    }

    /// Soonest first.
    pub fn by_expiry(&self) -> impl DoubleEndedIterator<Item = &NodeRow> {
        self.by_expiry.iter().filter_map(|(_, id)| self.rows.get(id))
    }

    pub fn last_expiry_ms(&self) -> Option<u64> {
        self.by_expiry.last().map(|(expires_ms, _)| *expires_ms)
    }
}

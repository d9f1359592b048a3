//! The rows of the nodes by id, with a second index by expiry time.
//!
//! The index holds the columns that a heartbeat reports about other nodes, as a covering index of a database does.

use std::{collections::BTreeMap, ops::Deref};

use honeyflow_hive::{
    NodeId,
    contract::{NodeRow, WatchedNode},
};

#[derive(Clone, Debug, Default)]
pub struct Members {
    rows: BTreeMap<NodeId, NodeRow>,
    by_expiry: BTreeMap<(u64, NodeId), Beat>,
}

#[derive(Clone, Copy, Debug)]
struct Beat {
    number: u64,
    heartbeat_ms: u64,
    ttl_ms: u64,
}

/// Gives read access only. Every change goes through [`Members`], which keeps the index up to date.
impl Deref for Members {
    type Target = BTreeMap<NodeId, NodeRow>;

    fn deref(&self) -> &BTreeMap<NodeId, NodeRow> {
        &self.rows
    }
}

impl Members {
    pub fn insert(&mut self, row: NodeRow) {
        self.remove(row.id);
        self.by_expiry.insert((row.expires_ms, row.id), beat_of(&row));
        self.rows.insert(row.id, row);
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
        }
        self.by_expiry.insert((row.expires_ms, node), beat_of(row));
        Some(changed)
    }

    /// Returns at most `max` nodes other than `node`, those that expire soonest first.
    pub fn soonest_beside(&self, node: NodeId, max: usize) -> Vec<WatchedNode> {
        let mut soonest = Vec::with_capacity(max);
        for (&(expires_ms, id), &Beat { number: beat, heartbeat_ms, ttl_ms }) in &self.by_expiry {
            if soonest.len() == max {
                break;
            }
            if id != node {
                soonest.push(WatchedNode { id, beat, heartbeat_ms, ttl_ms, expires_ms, dead: false });
            }
        }
        soonest
    }

    pub fn last_expiry_ms(&self) -> u64 {
        self.by_expiry.last_key_value().map_or(0, |((expires_ms, _), _)| *expires_ms)
    }
}

fn beat_of(row: &NodeRow) -> Beat {
    Beat { number: row.beat, heartbeat_ms: row.heartbeat_ms, ttl_ms: row.ttl_ms }
}

pub fn watched(row: &NodeRow) -> WatchedNode {
    let NodeRow { id, beat, heartbeat_ms, ttl_ms, expires_ms, .. } = *row;
    WatchedNode { id, beat, heartbeat_ms, ttl_ms, expires_ms, dead: false }
}

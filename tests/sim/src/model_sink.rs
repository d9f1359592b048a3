//! A sink as a map that compares stamps, with a log of everything it applied.

use std::collections::BTreeMap;

use honeyflow_event::{Document, Key, Name, Stamp, document};

#[derive(Clone, Debug)]
pub struct StoredDocument {
    pub stamp: Stamp,
    pub body: Option<u64>,
    /// The time of the write, in microseconds.
    at_us: u64,
}

/// A write that was applied. `at` is its position in the world's history.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Key,
    pub stamp: Stamp,
    /// The change that the document shows.
    pub carried: Option<u64>,
    pub at: u64,
}

#[derive(Clone, Debug)]
pub struct ModelSink {
    pub name: Name,
    pub held: BTreeMap<Key, StoredDocument>,
    pub log: Vec<Entry>,
    /// How many writes were refused because of a higher epoch, and because of a higher sequence of the same epoch.
    pub refused_stale: u64,
    pub refused_superseded: u64,
    /// Until this time the sink accepts nothing.
    pub down_until: u64,
    /// After this time a delete and its stamp are forgotten.
    forgets_after_us: u64,
}

impl ModelSink {
    pub fn new(name: Name, forgets_after_us: u64) -> ModelSink {
        ModelSink {
            name,
            held: BTreeMap::new(),
            log: Vec::new(),
            refused_stale: 0,
            refused_superseded: 0,
            down_until: 0,
            forgets_after_us,
        }
    }

    /// Applies a write if its stamp is high enough, otherwise returns the stored stamp as the error. Deletes leave
    /// tombstones, so a stamp outlives its document for a while. `at` is (microseconds, position in the history).
    pub fn write(&mut self, key: &Key, stamp: Stamp, body: &Document, at: (u64, u64)) -> Result<(), Stamp> {
        let hash = body.as_deref().map(document::hash);
        let forgets = |held: &StoredDocument| {
            let after = if honeyflow_engine::planted::on("PB-28") { 1 } else { self.forgets_after_us };
            held.body.is_none() && after > 0 && at.0 - held.at_us >= after
        };
        if let Some(held) = self.held.get(key).filter(|held| !forgets(held)) {
            if held.stamp == stamp && held.body == hash {
                return Ok(());
            }
            if held.stamp >= stamp {
                if held.stamp.epoch() > stamp.epoch() {
                    self.refused_stale += 1;
                } else {
                    self.refused_superseded += 1;
                }
                return Err(held.stamp);
            }
        }
        self.held.insert(key.clone(), StoredDocument { stamp, body: hash, at_us: at.0 });
        let carried = body.as_deref().and_then(|body| body.get("c")).and_then(serde_json::Value::as_u64);
        self.log.push(Entry { key: key.clone(), stamp, carried, at: at.1 });
        Ok(())
    }
}

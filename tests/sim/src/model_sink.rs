//! A sink as a map that compares stamps, with a log of everything it applied.

use std::collections::BTreeMap;

use honeyflow_event::{Document, Key, Name, Stamp, document};

#[derive(Clone, Debug)]
pub struct Held {
    pub stamp: Stamp,
    pub body: Option<u64>,
}

/// What was applied, in order. `at` is the place in the world's history.
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
    pub held: BTreeMap<Key, Held>,
    pub log: Vec<Entry>,
    /// Refused because a higher epoch has written, and because of a higher sequence of the same.
    pub refused_stale: u64,
    pub refused_superseded: u64,
    /// Nothing is taken until then.
    pub down_until: u64,
}

impl ModelSink {
    pub fn new(name: Name) -> ModelSink {
        ModelSink {
            name,
            held: BTreeMap::new(),
            log: Vec::new(),
            refused_stale: 0,
            refused_superseded: 0,
            down_until: 0,
        }
    }

    /// Deletes are kept as tombstones: a stamp outlives its document. Err: the stored stamp.
    pub fn write(&mut self, key: &Key, stamp: Stamp, body: &Document, at: u64) -> Result<(), Stamp> {
        let hash = body.as_deref().map(document::hash);
        if let Some(held) = self.held.get(key) {
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
        self.held.insert(key.clone(), Held { stamp, body: hash });
        let carried = body.as_deref().and_then(|body| body.get("c")).and_then(serde_json::Value::as_u64);
        self.log.push(Entry { key: key.clone(), stamp, carried, at });
        Ok(())
    }
}

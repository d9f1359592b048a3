//! A sink as a map that compares stamps, with a log of everything it applied.

use std::collections::BTreeMap;

use honeyflow_event::{Document, Key, Name, Stamp, document};

#[derive(Clone, Debug)]
pub struct Held {
    pub stamp: Stamp,
    pub body: Option<u64>,
    /// When it was written, in microseconds.
    at_us: u64,
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
    /// A delete, and with it its stamp, is forgotten after so long.
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

    /// Deletes are kept as tombstones: a stamp outlives its document, for a while. `at` is (microseconds, place in the
    /// history). Err: the stored stamp.
    pub fn write(&mut self, key: &Key, stamp: Stamp, body: &Document, at: (u64, u64)) -> Result<(), Stamp> {
        let hash = body.as_deref().map(document::hash);
        let forgets = |held: &Held| {
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
        self.held.insert(key.clone(), Held { stamp, body: hash, at_us: at.0 });
        let carried = body.as_deref().and_then(|body| body.get("c")).and_then(serde_json::Value::as_u64);
        self.log.push(Entry { key: key.clone(), stamp, carried, at: at.1 });
        Ok(())
    }
}

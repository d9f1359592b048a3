//! A sink in memory: the simplest implementation of the contract, for tests and simulations. Clones share their
//! content.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::{BoxFuture, ready};
use honeyflow_event::{Document, Key, Stamp, document, key::KEY_BYTES_MAX};
use honeyflow_runtime::Failure;
use serde_json::Value;

use crate::{Cursor, Hit, Outcome, Page, Sink, Stat, Write, codes};

/// A sink that remembers every delete, so that an older write never brings a document back.
///
/// ```
/// # use honeyflow_sink::{MemorySink, Outcome, Write};
/// # use honeyflow_event::Stamp;
/// let sink = MemorySink::default();
/// let write = Write { key: "42".into(), stamp: Stamp(7), document: None };
/// assert_eq!(sink.apply(vec![write]), [Outcome::Done]);
/// ```
#[derive(Clone, Default, Debug)]
pub struct MemorySink {
    held: Arc<Mutex<BTreeMap<Key, StoredWrite>>>,
}

#[derive(Clone, PartialEq, Debug)]
struct StoredWrite {
    stamp: Stamp,
    document: Document,
}

impl MemorySink {
    /// Does what [`Sink::write`] does, synchronously.
    pub fn apply(&self, writes: Vec<Write>) -> Vec<Outcome> {
        let mut held = self.held();
        writes.into_iter().map(|write| apply(&mut held, write)).collect()
    }

    /// Returns all documents with their stamps, by key.
    pub fn documents(&self) -> BTreeMap<Key, (Stamp, Arc<Value>)> {
        let held = self.held();
        held.iter().filter_map(|(key, held)| Some((key.clone(), (held.stamp, held.document.clone()?)))).collect()
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<Key, StoredWrite>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hits(&self, after: Option<&str>, matches: impl Fn(&Value) -> bool, limit: u32) -> Vec<Hit> {
        self.documents()
            .into_iter()
            .filter(|(key, _)| after.is_none_or(|after| &**key > after))
            .filter(|(_, (_, document))| matches(document))
            .take(limit as usize)
            .map(|(key, (stamp, document))| Hit { key: key.to_string(), stamp, document, score: 1.0 })
            .collect()
    }
}

fn apply(held: &mut BTreeMap<Key, StoredWrite>, write: Write) -> Outcome {
    if write.key.len() > KEY_BYTES_MAX {
        let message = format!("the key has {} bytes, {KEY_BYTES_MAX} is the most", write.key.len());
        return Outcome::Failed(Failure::reject(codes::BAD_KEY, message));
    }
    let offered = StoredWrite { stamp: write.stamp, document: write.document };
    match held.get(&write.key) {
        Some(stored) if *stored == offered => Outcome::Done,
        Some(stored) if stored.stamp >= offered.stamp => Outcome::Stale { stored: stored.stamp },
        _ => {
            held.insert(write.key, offered);
            Outcome::Done
        }
    }
}

impl Sink for MemorySink {
    fn write(&self, writes: Vec<Write>) -> BoxFuture<'static, Vec<Outcome>> {
        Box::pin(ready(self.apply(writes)))
    }

    fn stat(&self, keys: Vec<Key>) -> BoxFuture<'static, Result<Vec<Option<Stat>>, Failure>> {
        let documents = self.documents();
        let stats = keys.iter().map(|key| {
            let (stamp, document) = documents.get(key)?;
            Some(Stat { key: key.to_string(), stamp: *stamp, hash: document::hash(document) })
        });
        Box::pin(ready(Ok(stats.collect())))
    }

    fn list(&self, after: Option<Cursor>, limit: u32) -> BoxFuture<'static, Result<Page, Failure>> {
        let limit = limit.max(1);
        let mut hits = self.hits(after.as_deref(), |_| true, limit.saturating_add(1));
        let more = hits.len() > limit as usize;
        hits.truncate(limit as usize);
        let cursor = if more { hits.last().map(|hit| hit.key.clone()) } else { None };
        Box::pin(ready(Ok((hits, cursor))))
    }

    /// Returns the documents whose JSON text contains the query.
    fn search(&self, query: String, limit: u32) -> BoxFuture<'static, Result<Vec<Hit>, Failure>> {
        Box::pin(ready(Ok(self.hits(None, |document| document.to_string().contains(&query), limit))))
    }

    fn count(&self) -> BoxFuture<'static, Result<u64, Failure>> {
        Box::pin(ready(Ok(self.documents().len() as u64)))
    }
}

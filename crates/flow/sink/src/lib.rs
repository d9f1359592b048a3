//! The sink contract: fenced writes. A sink compares stamps and refuses the older one. Adapters know nothing of leases:
//! they only report which stamp they hold, and the engine decides what that means.

pub mod codes;
pub mod index;
pub mod memory;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use honeyflow_event::{Document, Key, Stamp};
use honeyflow_runtime::Failure;
use serde::Serialize;
use serde_json::Value;

pub use index::IndexStep;
pub use memory::MemorySink;

#[derive(Clone, Debug)]
pub struct Write {
    pub key: Key,
    pub stamp: Stamp,
    /// `None` deletes the key's document.
    pub document: Document,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// The write is durable. Writes of one batch are applied in their order.
    Done,
    /// The write was refused: the sink holds this newer stamp.
    Stale {
        stored: Stamp,
    },
    Failed(Failure),
}

/// What a sink holds for a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Stat {
    pub key: String,
    pub stamp: Stamp,
    /// [`honeyflow_event::document::hash`] of the document in the form in which the sink stores it, see
    /// [`Sink::as_held`].
    pub hash: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Hit {
    pub key: String,
    #[serde(rename = "version")]
    pub stamp: Stamp,
    pub document: Arc<Value>,
    pub score: f32,
}

/// The position from which a listing continues. It is opaque; the sink chooses the order.
pub type Cursor = String;

/// One page of a listing and the cursor of the next page; `None` = this was the last page.
pub type Page = (Vec<Hit>, Option<Cursor>);

pub trait Sink: Send + Sync {
    /// Returns one outcome per write, after the writes are durable.
    fn write(&self, writes: Vec<Write>) -> BoxFuture<'static, Vec<Outcome>>;
    fn stat(&self, keys: Vec<Key>) -> BoxFuture<'static, Result<Vec<Option<Stat>>, Failure>>;
    fn list(&self, after: Option<Cursor>, limit: u32) -> BoxFuture<'static, Result<Page, Failure>>;
    /// `query` in the sink's own query language; empty matches everything.
    fn search(&self, query: String, limit: u32) -> BoxFuture<'static, Result<Vec<Hit>, Failure>>;
    fn count(&self) -> BoxFuture<'static, Result<u64, Failure>>;
    /// Returns the document in the form in which this sink stores it and gives it back. [`Stat::hash`] is the hash of
    /// that form, so that a row can be compared with the sink without a write. An error says why the sink cannot store
    /// it.
    fn as_held(&self, document: &Arc<Value>) -> Result<Arc<Value>, Failure> {
        Ok(document.clone())
    }
}

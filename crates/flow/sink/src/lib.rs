//! The sink contract: fenced writes. A target compares stamps and refuses the older one; adapters know no lease and
//! only say what they hold.

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
    /// None deletes.
    pub document: Document,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// Durable, in the order of the writes.
    Done,
    /// The target holds this newer stamp.
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
    /// [`honeyflow_event::document::hash`] of the document, [as it is held](Sink::as_held).
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

/// Where a listing goes on; opaque, in the sink's own order.
pub type Cursor = String;

/// Part of a listing, and where it goes on; none = this was the end.
pub type Page = (Vec<Hit>, Option<Cursor>);

pub trait Sink: Send + Sync {
    /// One outcome per write, once they are durable.
    fn write(&self, writes: Vec<Write>) -> BoxFuture<'static, Vec<Outcome>>;
    fn stat(&self, keys: Vec<Key>) -> BoxFuture<'static, Result<Vec<Option<Stat>>, Failure>>;
    fn list(&self, after: Option<Cursor>, limit: u32) -> BoxFuture<'static, Result<Page, Failure>>;
    /// `query` in the sink's own query language; empty matches everything.
    fn search(&self, query: String, limit: u32) -> BoxFuture<'static, Result<Vec<Hit>, Failure>>;
    fn count(&self) -> BoxFuture<'static, Result<u64, Failure>>;
    /// The document as this sink holds it: only what it keeps, in the form in which it comes back. [`Stat::hash`] is of
    /// that form, so that a row can be compared without a write. An error says why it cannot be held.
    fn as_held(&self, document: &Arc<Value>) -> Result<Arc<Value>, Failure> {
        Ok(document.clone())
    }
}

//! The embedded search index as a fenced sink.
//!
//! Every document is stored whole in `_source`, with its key, stamp and hash beside it (`_key`, `_version`, `_hash`);
//! the configured fields are taken from it by name and indexed. A write is compared with what the index holds for its
//! key. It is answered after the commit that contains it: then it is durable and visible to searches.
//!
//! One generation of an index is served. The next one can be built beside it while live writes go on, and replaces it
//! in one step: a search sees either the complete old generation or the complete new one.
//!
//! One process writes to an index; its first write takes the lock. Other processes may open the index and read it.
//!
//! Deliberately absent: leases and the meaning of epochs (the engine judges a `Stale`), tombstone documents (deletes
//! are remembered in memory, since no other process writes), replication.

mod build;
pub mod codes;
mod config;
mod directory;
mod encode;
mod folder;
mod generation;
mod open_generation;
mod outcome;
mod pending;
mod schema;
mod search;
mod sink;
mod snapshot;
mod writer;

pub use config::{Field, FieldKind, Options};
pub use sink::TantivySink;
// `no-version-check`: an older stamp overwrites a newer document; `no-tombstone`: a delete is forgotten as soon as it
// is committed; `sync-fails`: the disk reports an error at every sync.
pub use honeyflow_runtime::planted;
pub use writer::Counters;

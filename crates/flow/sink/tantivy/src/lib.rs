//! The embedded search index as a fenced sink.
//!
//! Every document has its key, stamp and hash beside it (`_key`, `_version`, `_hash`) and lies whole in `_source`; the
//! configured fields are indexed from it by name. A write is compared with what is held for its key and answered after
//! the commit that contains it: durable, and visible to searches.
//!
//! An index is served by one generation. The next one can be built beside it, under live writes, and takes its place in
//! one step: searches see the old one in full, then the new one in full.
//!
//! One process writes to an index. Others may open and read it: the lock is taken with the first write.
//!
//! Deliberately absent: leases and epochs' meaning (the engine judges a `Stale`), tombstone documents (deletes are
//! remembered in memory, since nobody else writes), replication.

mod build;
mod config;
mod directory;
mod encode;
mod folder;
mod generation;
mod opened;
mod outcome;
mod pending;
mod schema;
mod search;
mod sink;
mod snapshot;
mod writer;

pub use build::MISFIT;
pub use config::{Field, FieldKind, Options};
pub use sink::TantivySink;
// `no-version-check`: an older stamp overwrites a newer document; `no-tombstone`: a delete is forgotten as soon as it is
// committed; `sync-fails`: the disk reports an error at every sync.
pub use honeyflow_runtime::planted;
pub use writer::Counters;

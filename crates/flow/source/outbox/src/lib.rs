//! The outbox as a source: polls the store and says which documents each row leads to.
//!
//! A row names the captured table and its key. Here it is mapped to the entities over that table, and edges are followed
//! back to the documents that contain it, in SQL, for *every* row's payload: merging comes afterwards, so that A→B
//! followed by B→C reaches A, B and C. This crate knows no database and no run.

pub mod capture;
pub mod entity;
mod fan_out;
mod intake;
mod payload;
mod route;
mod source;

pub use capture::capture_tables;
pub use entity::{Edge, EdgeBy, Entity, FanOutMode};
pub use source::OutboxSource;

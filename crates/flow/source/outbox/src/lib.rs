//! The outbox as a source: polls the store and finds the documents that each row leads to.
//!
//! A row names the captured table and its key. This crate maps it to the entities over that table, and follows edges
//! back to the documents that contain it, in SQL, for *every* row's payload: rows are merged afterwards, so that A→B
//! followed by B→C reaches A, B and C. It knows no database and no run.

pub mod capture;
pub mod codes;
pub mod entity;
mod fan_out;
mod intake;
mod payload;
mod route;
mod source;

pub use capture::capture_tables;
pub use entity::{Edge, EdgeBy, Entity, FanOutMode};
pub use source::OutboxSource;

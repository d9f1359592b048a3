//! The HTTP surface of a node: health, metrics, status, search, the door for events, and the live first page.
//!
//! Everything passes one gate, and what is not in the route table does not exist. This crate changes no workflow, runs
//! no statement of a caller's and knows no database: it reads the engine's status and asks stores and sinks through
//! their contracts.

mod answer;
mod cached;
mod door;
mod gate;
mod hive;
mod live;
mod metrics;
mod node;
mod page;
mod pool;
mod query;
mod readiness;
mod route;
mod runs;
mod sample;
mod search;
mod serve;
mod status;
mod wire;

pub use axum::http::HeaderName;
pub use hive::HiveView;
pub use node::{Counted, DoorLimit, Limits, Node, Runs, SinkView};
pub use pool::PoolView;
pub use route::ROUTES;
pub use serve::serve;

//! The HTTP surface of a node: health, metrics, status, search, the event endpoint, and the live first page.
//!
//! Every request passes one admission check, and only the paths of the route table exist. This crate changes no
//! workflow, executes no statement of a caller and knows no database: it reads the engine's status and calls stores and
//! sinks through their contracts.

mod admission;
mod answer;
mod cached;
pub mod codes;
mod events;
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
pub use node::{EventLimit, Limits, Node, Runs, SinkView};
pub use pool::PoolView;
pub use route::ROUTES;
pub use serve::serve;

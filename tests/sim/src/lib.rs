//! A whole cluster in one thread: the shipped cores of engine and hive, a model database and model sinks, driven by one
//! seed that draws every delay, order, loss, crash and pause. The same seed gives the same history, to the last event.
//!
//! [`world::run`] plays one seed: a safety phase in which anything may fail, a heal, and a liveness phase until nothing
//! moves. [`check`] then asks the invariants about the histories. Nothing of the cores is rewritten here: what is
//! modelled is only what lies behind their ports.

pub mod campaign;
pub mod check;
mod clock;
pub mod fault;
pub mod history;
pub mod hive;
pub mod limit;
pub mod minimise;
pub mod model_hive;
pub mod model_sink;
pub mod model_store;
pub mod node;
pub mod options;
pub mod oracle;
pub mod port;
pub mod random;
pub mod shapes;
pub mod steps;
pub mod workload;
pub mod world;

pub use campaign::{Report, bugs};
pub use world::{Outcome, run};

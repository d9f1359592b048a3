//! The simulator: a whole cluster in one thread. It runs the shipped cores of engine and hive with a model database and
//! model sinks. One seed draws every delay, order, loss, crash and pause; the same seed gives the same history, to the
//! last event.
//!
//! [`world::run`] plays one seed: a safety phase in which anything may fail, a heal, and a liveness phase until nothing
//! changes. [`check`] then checks the invariants on the histories. The cores are not rewritten here: only what lies
//! behind their ports is modelled.

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

//! Limits under load: the shipped core of every node, a model store with a round trip, and requests by a Poisson
//! process. One central bucket sees the same requests; the test compares what all nodes admit together with it.

pub mod faults;
pub mod load;
pub mod node;
pub mod scenario;
pub mod world;

pub use scenario::{SCENARIOS, Scenario};
pub use world::{Figures, run};

//! Limits under load: the shipped core of every node, a model store with a round trip, requests by a Poisson process, and
//! beside them one central bucket that sees the same requests. What the nodes admit together is compared with it.

pub mod load;
pub mod node;
pub mod scenario;
pub mod trouble;
pub mod world;

pub use scenario::{SCENARIOS, Scenario};
pub use world::{Figures, run};

//! Limits while everything fails: the whole limiter of every node, drawing task and all, on one simulated clock, over a
//! store that is slow, silent, away, forgetful or of another time. Nodes crash, pause and sleep; definitions change.
//!
//! What is modelled is what lies around the limiter: network, store's rows, heartbeat, and the programs that ask. Whatever
//! was admitted is judged afterwards, window by window ([`check`]).

pub mod campaign;
pub mod check;
pub mod history;
mod job;
mod node;
pub mod plan;
mod play;
mod store;
mod world;

pub use check::{Outcome, run, run_plan};
pub use plan::{Fault, Plan};

//! Evaluates what others wrote, off the reactor and within its time. Expressions cannot be stopped from outside: a thread
//! that overruns is given up, and whoever is guilty of it is told from its neighbours.
//!
//! It does not know what is evaluated: steps and the engine hand over closures.

mod evaluator;
mod lane;
mod pool;
mod strikes;
#[cfg(test)]
mod tests;
pub mod variables;

pub use evaluator::{Evaluator, Items, Subject, Work};
pub use pool::Pool;

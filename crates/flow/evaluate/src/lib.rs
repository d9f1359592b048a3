//! Evaluates expressions of workflows on separate threads, within a time limit. An expression cannot be stopped from
//! outside: a thread that overruns is abandoned, and the slow item is told apart from the others of its batch.
//!
//! This crate does not know what is evaluated: steps and the engine pass closures.

pub mod codes;
mod evaluator;
mod lane;
mod pool;
mod strikes;
#[cfg(test)]
mod tests;
pub mod variables;

pub use evaluator::{Evaluator, Items, Subject, Work};
pub use pool::Pool;

//! The workflow: its definition as data, the problems of a definition, the graph compiled from it, and a run through
//! that graph as a state machine. No clock, no I/O, no randomness.
//!
//! [`definition`] → [`graph::compile`] → [`run::Run`]. This crate does not know about attempts, batches, leases or
//! outputs: the engine does. It decides which steps are ready, and the verdict of a run that has ended.

pub mod builder;
pub mod catalogue;
pub mod codes;
pub mod definition;
pub mod duration;
pub mod existing;
pub mod expression;
pub mod graph;
pub mod instances;
pub mod problem;
pub mod run;
#[cfg(test)]
mod sample;

pub use builder::Workflow;
pub use catalogue::{Catalogue, Kind, Role, Setting, SettingValue};
pub use definition::{
    Checkpoint, Definition, Edge, Exclusion, History, Need, On, OnFailure, Order, Otherwise, StepDefinition, Trigger,
    Unmatched, check, read, write,
};
pub use existing::Requeue;
pub use expression::{Expression, ExpressionError, Variables};
pub use graph::{Graph, Rule, Step, StepId, compile};
pub use honeyflow_runtime::planted;
pub use instances::Instances;
pub use problem::{Problem, Severity};
pub use run::{End, Run, State, Verdict};

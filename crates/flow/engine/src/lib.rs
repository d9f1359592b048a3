//! The engine: masters and workers. [`core`] decides and touches nothing; [`shell`] carries out what it says.
//!
//! No loop over events exists outside these two. The simulator drives the same [`core::Core`] with a model store.

pub mod core;
pub mod shell;
pub mod slots;

pub use honeyflow_runtime::planted;

//! The engine: masters and workers. [`core`] decides and does no input or output; [`shell`] carries out its effects.
//!
//! No other module loops over events. The simulator drives the same [`core::Core`] with a model store.

pub mod codes;
pub mod core;
pub mod shell;
pub mod slots;

pub use honeyflow_runtime::planted;

//! Everything the binary consists of, as a library, so that campaigns and benchmarks can use its parts. What was typed
//! is read in [`cli`]; what the file says in [`config`]; adapters are known to [`registry`]; [`node`] puts them together.

pub mod check;
pub mod cli;
pub mod config;
pub mod demo;
pub mod escape;
pub mod init;
pub mod node;
pub mod registry;
pub mod signals;

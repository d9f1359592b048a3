//! All parts of the binary as a library, so that test campaigns and benchmarks can use them. [`cli`] parses the command
//! line, [`config`] reads the configuration file, [`registry`] knows the adapters, and [`node`] puts them together.

pub mod check;
pub mod cli;
pub mod codes;
pub mod config;
pub mod demo;
pub mod escape;
pub mod failures;
pub mod init;
pub mod node;
pub mod registry;
pub mod signals;

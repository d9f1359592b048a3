//! Real processes under real faults: a node is killed again and again while an application goes on, and at the end
//! every document must equal its row.

pub mod embedded;
mod node;

pub use embedded::{Options, Report, run};

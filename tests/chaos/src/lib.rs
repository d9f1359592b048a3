//! Campaigns that run real processes under real faults.
//!
//! - `embedded`: a node is killed again and again while an application goes on; at the end every document must equal
//!   its row.
//! - `hive`: leaders are paused beyond their lease, cut off or given the wrong time; the store must refuse all that
//!   they write afterwards.
//! - `pool`: servers die, fall silent and send garbage under a session's load; afterwards its pool must be complete.

pub mod embedded;
pub mod hive;
mod node;
pub mod pool;
pub mod proxy;

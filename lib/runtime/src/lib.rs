//! The basis of every long-running part: time, failure classes, back-off, supervision, shutdown.
//!
//! It does not depend on Honeyflow. The first three are pure; the cores use only those.

pub mod backoff;
pub mod code;
pub mod codes;
pub mod failure;
pub mod planted;
pub mod retry_after;
pub mod supervise;
pub mod time;
pub mod tries;

pub use backoff::Backoff;
pub use code::Code;
pub use failure::{Class, Failure};
pub use time::{Clock, Moment};
pub use tries::Tries;

//! What every long-running part stands on: time, failure classes, back-off, supervision, shutdown.
//!
//! Knows nothing of Honeyflow. The first three are pure; the cores use only those.

pub mod backoff;
pub mod failure;
pub mod planted;
pub mod retry_after;
pub mod supervise;
pub mod time;
pub mod tries;

pub use backoff::Backoff;
pub use failure::{Class, Failure};
pub use time::{Clock, Moment};
pub use tries::Tries;

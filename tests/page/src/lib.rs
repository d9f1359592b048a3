//! The page of a real node in a real browser: what people see must be there, must move, and must be text.
//!
//! Chromium is driven by its own `chromedriver`, which speaks JSON over plain HTTP: no further dependency is needed.

mod browser;
mod http;
mod look;
mod node;
mod wait;

pub use browser::missing;
pub use look::look;

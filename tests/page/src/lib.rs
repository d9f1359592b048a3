//! Tests the page of a real node in a real browser: what people should see is there, changes with the data, and is
//! text.
//!
//! Chromium is driven by its own `chromedriver`, which uses JSON over plain HTTP: no further dependency is needed.

mod browser;
mod http;
mod node;
mod page_check;
mod wait;

pub use browser::missing;
pub use page_check::check_page;

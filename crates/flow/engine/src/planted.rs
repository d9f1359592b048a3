//! Bugs planted on purpose, to see that the tests find them. Off unless the feature is on, which no release build takes.

#[cfg(all(feature = "planted", not(debug_assertions)))]
compile_error!("the feature `planted` is for tests: a release build must not contain planted bugs");

#[cfg(feature = "planted")]
mod switch {
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    pub fn plant(bug: Option<&'static str>) {
        PLANTED.with(|planted| planted.set(bug));
    }

    pub fn on(bug: &str) -> bool {
        PLANTED.with(Cell::get) == Some(bug)
    }
}

#[cfg(feature = "planted")]
pub use switch::{on, plant};

#[cfg(not(feature = "planted"))]
#[inline(always)]
pub fn on(_bug: &str) -> bool {
    false
}

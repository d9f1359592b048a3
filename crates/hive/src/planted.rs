//! Bugs planted on purpose: a simulator that stays green with one of them on is worth nothing.
//!
//! Without the feature `planted`, [`on`] is a constant and every call site compiles to nothing.

#[cfg(all(feature = "planted", not(debug_assertions)))]
compile_error!("the feature `planted` puts bugs into the program: it is for tests, never for a release");

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// Whether this bug is switched on in this thread.
#[cfg(feature = "planted")]
pub fn on(bug: &str) -> bool {
    PLANTED.get().is_some_and(|planted| planted == bug)
}

/// Switches one bug on in this thread, or all off.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<&'static str>) {
    PLANTED.set(bug);
}

/// Whether this bug is switched on: never.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn on(_bug: &str) -> bool {
    false
}

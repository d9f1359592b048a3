//! Planted bugs, which prove that a test finds them: a test that passes with its bug switched on is worthless.
//!
//! Without the feature `planted`, [`on`] is a constant and every call site compiles to nothing. A planted bug is set
//! per thread. A component that starts threads passes the bug of the starting thread on to them ([`current`]).

#[cfg(all(feature = "planted", not(debug_assertions)))]
compile_error!("the feature `planted` puts bugs into the program: it is for tests, never for a release");

/// The name of the bug that is switched on, if any.
pub type Plant = Option<&'static str>;

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Plant> = const { std::cell::Cell::new(None) };
}

/// Returns whether this bug is switched on in this thread.
#[cfg(feature = "planted")]
pub fn on(bug: &str) -> bool {
    PLANTED.get().is_some_and(|planted| planted == bug)
}

/// Switches one bug on in this thread, or switches all off.
#[cfg(feature = "planted")]
pub fn plant(bug: Plant) {
    PLANTED.set(bug);
}

#[cfg(feature = "planted")]
pub fn current() -> Plant {
    PLANTED.get()
}

/// Returns false: without the feature no bug is ever switched on.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn on(_bug: &str) -> bool {
    false
}

#[cfg(not(feature = "planted"))]
pub const fn plant(_bug: Plant) {}

#[cfg(not(feature = "planted"))]
pub const fn current() -> Plant {
    None
}

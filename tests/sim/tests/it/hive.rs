//! Hives on a simulated clock: seeds, planted bugs, and defects that other systems had.

mod defects;
#[cfg(feature = "planted")]
mod planted;
mod seeds;

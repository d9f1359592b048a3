//! Counts admitted requests per millisecond, by a clock that all processes of a machine share.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use honeyflow_runtime::{Clock, time::BootClock};

/// Ten minutes; older entries are removed.
const MILLISECONDS_MAX: usize = 600_000;

#[derive(Default)]
pub struct Log(Mutex<VecDeque<(u64, u64)>>);

impl Log {
    pub fn note(&self) {
        let at_ms = BootClock.now().0 / 1000;
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match log.back_mut() {
            // Two threads may arrive in the wrong order: both count for the later millisecond.
            Some((last_ms, count)) if *last_ms >= at_ms => *count += 1,
            _ => log.push_back((at_ms, 1)),
        }
        if log.len() > MILLISECONDS_MAX {
            log.pop_front();
        }
    }

    pub fn by_ms(&self) -> Vec<(u64, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

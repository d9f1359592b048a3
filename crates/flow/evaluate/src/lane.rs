//! A lane: items of one batch that one thread evaluates in order, while a watcher checks its progress.
//!
//! The thread and the watcher share one lock. A lane that was given up accepts no more results; its thread sees that only
//! after the slow item has returned.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use honeyflow_runtime::Failure;

use crate::{codes, pool::JobEnd};

/// Results with the index of their item in the batch.
pub type Results<T> = Vec<(usize, Result<T, Failure>)>;

pub struct Lane<T> {
    /// The lane runs one item again that overran in a shared lane. If it overruns here too, it is too slow.
    pub alone: bool,
    progress: Mutex<Progress<T>>,
}

struct Progress<T> {
    waiting: VecDeque<usize>,
    current: Option<(usize, Instant)>,
    done: Results<T>,
    given_up: bool,
    ended: bool,
}

pub enum LaneState<T> {
    /// The lane runs; check it again at this time, unless it ends before.
    Running(Instant),
    Ended(Results<T>),
    /// The lane was given up: `suspect` took too long, `rest` was not begun.
    Overrun {
        done: Results<T>,
        suspect: usize,
        rest: VecDeque<usize>,
    },
}

impl<T> Lane<T> {
    pub fn new(indices: VecDeque<usize>, alone: bool) -> Lane<T> {
        let progress = Progress { waiting: indices, current: None, done: Vec::new(), given_up: false, ended: false };
        Lane { alone, progress: Mutex::new(progress) }
    }

    fn lock(&self) -> MutexGuard<'_, Progress<T>> {
        // No code that can panic runs under the lock, so a poisoned value is still valid.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Evaluates the items, on a thread of the pool. A panic fails its item only.
    pub fn work(&self, evaluate: &(dyn Fn(usize) -> Result<T, Failure> + Send + Sync)) -> JobEnd {
        let mut progress = self.lock();
        loop {
            if progress.given_up {
                // Given up before it started: no thread is stuck, so the pool needs no replacement.
                return if progress.current.is_some() { JobEnd::Abandoned } else { JobEnd::Kept };
            }
            progress.current = None;
            let Some(index) = progress.waiting.pop_front() else { break };
            progress.current = Some((index, Instant::now()));
            drop(progress);
            let result = catch_unwind(AssertUnwindSafe(|| evaluate(index)))
                .unwrap_or_else(|_| Err(Failure::reject(codes::PANIC, "the evaluation of this item panicked")));
            progress = self.lock();
            if !progress.given_up {
                progress.done.push((index, result));
            }
        }
        progress.ended = true;
        JobEnd::Kept
    }

    pub fn check(&self, now: Instant, item_time_max: Duration) -> LaneState<T> {
        let mut progress = self.lock();
        if progress.ended {
            return LaneState::Ended(std::mem::take(&mut progress.done));
        }
        match progress.current {
            Some((suspect, begun)) if now.saturating_duration_since(begun) >= item_time_max => {
                progress.given_up = true;
                LaneState::Overrun {
                    done: std::mem::take(&mut progress.done),
                    suspect,
                    rest: std::mem::take(&mut progress.waiting),
                }
            }
            Some((_, begun)) => LaneState::Running(begun + item_time_max),
            None => LaneState::Running(now + item_time_max),
        }
    }

    /// Gives the lane up in any state. The flag says whether this call abandons a running thread.
    pub fn give_up(&self) -> (Results<T>, bool) {
        let mut progress = self.lock();
        let left_behind = !progress.given_up && !progress.ended && progress.current.is_some();
        progress.given_up = true;
        progress.waiting.clear();
        (std::mem::take(&mut progress.done), left_behind)
    }
}

//! Items of one batch, worked through in order on one thread, and what a watcher may see of it.
//!
//! Thread and watcher agree under one lock: a lane that was given up accepts no result any more, and its thread learns
//! of it when the item that held it up has ended.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use honeyflow_runtime::Failure;

use crate::pool::Fate;

/// By index in the batch.
pub type Results<T> = Vec<(usize, Result<T, Failure>)>;

pub struct Lane<T> {
    /// Holds one suspect only: to overrun here is to be guilty.
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

pub enum Sight<T> {
    /// Look again then, unless it ends before.
    Running(Instant),
    Ended(Results<T>),
    /// Given up: `suspect` took too long, `rest` was not begun.
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
        // only moves of values happen while it is held
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// On a thread of the pool. A panic is the item's own.
    pub fn work(&self, evaluate: &(dyn Fn(usize) -> Result<T, Failure> + Send + Sync)) -> Fate {
        let mut progress = self.lock();
        loop {
            if progress.given_up {
                // given up in the queue, with no thread to replace
                return if progress.current.is_some() { Fate::Abandoned } else { Fate::Kept };
            }
            progress.current = None;
            let Some(index) = progress.waiting.pop_front() else { break };
            progress.current = Some((index, Instant::now()));
            drop(progress);
            let result = catch_unwind(AssertUnwindSafe(|| evaluate(index)))
                .unwrap_or_else(|_| Err(Failure::reject("panic", "the evaluation of this item panicked")));
            progress = self.lock();
            if !progress.given_up {
                progress.done.push((index, result));
            }
        }
        progress.ended = true;
        Fate::Kept
    }

    pub fn look(&self, now: Instant, item_time_max: Duration) -> Sight<T> {
        let mut progress = self.lock();
        if progress.ended {
            return Sight::Ended(std::mem::take(&mut progress.done));
        }
        match progress.current {
            Some((suspect, begun)) if now.saturating_duration_since(begun) >= item_time_max => {
                progress.given_up = true;
                Sight::Overrun {
                    done: std::mem::take(&mut progress.done),
                    suspect,
                    rest: std::mem::take(&mut progress.waiting),
                }
            }
            Some((_, begun)) => Sight::Running(begun + item_time_max),
            None => Sight::Running(now + item_time_max),
        }
    }

    /// Whatever its state. The flag says whether a thread was left behind.
    pub fn give_up(&self) -> (Results<T>, bool) {
        let mut progress = self.lock();
        let left_behind = !progress.given_up && !progress.ended && progress.current.is_some();
        progress.given_up = true;
        progress.waiting.clear();
        (std::mem::take(&mut progress.done), left_behind)
    }
}

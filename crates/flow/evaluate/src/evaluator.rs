//! Evaluates a closure for each item of a batch, on a thread of the pool, within a given time.
//!
//! An item may take two fifths of that time. If that is not enough, it is tried again alone for another two fifths, and
//! then rejected as `too-slow`. So every item has a result before the time is over.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use honeyflow_event::{Key, Name};
use honeyflow_runtime::{Clock, Failure, time::BootClock};
use honeyflow_step::{Batch, Item};
use tokio::sync::Notify;

use crate::{
    codes,
    lane::{Lane, LaneState, Results},
    pool::Pool,
    strikes::{ITEMS_MAX, Strikes, WINDOW},
};

/// The time of a batch that names none.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// The work for one item, executed on a thread of the pool.
pub type Work<I, T> = Arc<dyn Fn(&I) -> Result<T, Failure> + Send + Sync>;

/// An item to evaluate: slow items are identified by entity and key.
pub trait Subject: Send + Sync + 'static {
    fn entity(&self) -> &Name;
    fn key(&self) -> &Key;
}

/// The items that are evaluated together.
pub trait Items: Send + Sync + 'static {
    type Item: Subject;

    fn items(&self) -> &[Self::Item];
}

impl Subject for Item {
    fn entity(&self) -> &Name {
        &self.entity
    }

    fn key(&self) -> &Key {
        &self.key
    }
}

impl Items for Batch {
    type Item = Item;

    fn items(&self) -> &[Item] {
        &self.items
    }
}

impl<I: Subject> Items for Vec<I> {
    type Item = I;

    fn items(&self) -> &[I] {
        self
    }
}

/// Evaluates batches of one step or workflow, and counts its slow items.
pub struct Evaluator {
    pool: Arc<Pool>,
    clock: Arc<dyn Clock>,
    strikes: Mutex<Strikes>,
}

impl Evaluator {
    pub fn new(pool: Arc<Pool>) -> Evaluator {
        Evaluator::with_clock(pool, Arc::new(BootClock))
    }

    /// The clock is used only for the time since other items were too slow.
    pub fn with_clock(pool: Arc<Pool>, clock: Arc<dyn Clock>) -> Evaluator {
        Evaluator { pool, clock, strikes: Mutex::default() }
    }

    /// The number of abandoned threads of the pool that still run.
    pub fn abandoned(&self) -> usize {
        self.pool.abandoned()
    }

    /// Returns one result per item, in the items' order, within `timeout`.
    pub async fn run<B: Items, T: Send + 'static>(
        &self,
        batch: Arc<B>,
        timeout: Duration,
        work: Work<B::Item, T>,
    ) -> Vec<Result<T, Failure>> {
        let timeout = if timeout.is_zero() { TIMEOUT_DEFAULT } else { timeout };
        let item_time_max = timeout * 2 / 5;
        let deadline = Instant::now() + timeout * 19 / 20;
        let mut watch = Watch {
            pool: &self.pool,
            results: std::iter::repeat_with(|| None).take(batch.items().len()).collect(),
            lanes: Vec::new(),
            ended: Arc::new(Notify::new()),
            batch: &batch,
            work,
        };
        watch.begin((0..batch.items().len()).collect(), false);
        loop {
            let now = Instant::now();
            let look_at = watch.check_lanes(now, item_time_max, |item| self.too_slow(item, item_time_max));
            if watch.lanes.is_empty() || now >= deadline {
                break;
            }
            let wake_at = look_at.min(deadline).into();
            // the next check of the lanes decides, whether it was a notification or the time-out
            let _ = tokio::time::timeout_at(wake_at, Arc::clone(&watch.ended).notified_owned()).await;
        }
        watch.give_up();
        std::mem::take(&mut watch.results)
            .into_iter()
            .map(|result| result.unwrap_or_else(|| Err(not_reached())))
            .collect()
    }

    fn too_slow(&self, item: &impl Subject, item_time_max: Duration) -> Failure {
        let stop = {
            let mut strikes = self.strikes.lock().unwrap_or_else(PoisonError::into_inner);
            strikes.add(self.clock.now(), item.entity(), item.key())
        };
        if stop {
            let minutes = WINDOW.as_secs() / 60;
            return Failure::fatal(
                codes::TOO_SLOW,
                format!(
                    "{ITEMS_MAX} items took longer than {item_time_max:?} within {minutes} min: make the expression cheaper"
                ),
            );
        }
        Failure::reject(
            codes::TOO_SLOW,
            format!("the expression took longer than {item_time_max:?} for this item, twice"),
        )
    }
}

/// The lanes of one batch. If the caller drops it, they are given up.
struct Watch<'a, B: Items, T: Send + 'static> {
    pool: &'a Pool,
    batch: &'a Arc<B>,
    work: Work<B::Item, T>,
    results: Vec<Option<Result<T, Failure>>>,
    lanes: Vec<Arc<Lane<T>>>,
    ended: Arc<Notify>,
}

impl<B: Items, T: Send + 'static> Watch<'_, B, T> {
    fn begin(&mut self, indices: VecDeque<usize>, alone: bool) {
        if indices.is_empty() {
            return;
        }
        let lane = Arc::new(Lane::new(indices, alone));
        let (batch, work, ended) = (Arc::clone(self.batch), Arc::clone(&self.work), Arc::clone(&self.ended));
        let on_thread = Arc::clone(&lane);
        let submitted = self.pool.submit(Box::new(move || {
            let fate = on_thread.work(&|index| work(&batch.items()[index]));
            ended.notify_one();
            fate
        }));
        // if the pool is busy, its items get no result and are reported as not reached
        if submitted.is_ok() {
            self.lanes.push(lane);
        }
    }

    /// Collects the results of ended lanes and replaces stuck ones. Returns the time of the next check.
    fn check_lanes(
        &mut self,
        now: Instant,
        item_time_max: Duration,
        too_slow: impl Fn(&B::Item) -> Failure,
    ) -> Instant {
        let mut look_at = now + item_time_max;
        for lane in std::mem::take(&mut self.lanes) {
            match lane.check(now, item_time_max) {
                LaneState::Running(until) => {
                    look_at = look_at.min(until);
                    self.lanes.push(lane);
                }
                LaneState::Ended(done) => self.keep(done),
                LaneState::Overrun { done, suspect, rest } => {
                    self.pool.abandon();
                    self.keep(done);
                    if lane.alone {
                        self.results[suspect] = Some(Err(too_slow(&self.batch.items()[suspect])));
                    } else {
                        self.begin(VecDeque::from([suspect]), true);
                    }
                    self.begin(rest, false);
                }
            }
        }
        look_at
    }

    fn keep(&mut self, done: Results<T>) {
        for (index, result) in done {
            self.results[index] = Some(result);
        }
    }
}

impl<B: Items, T: Send + 'static> Watch<'_, B, T> {
    fn give_up(&mut self) {
        for lane in std::mem::take(&mut self.lanes) {
            let (done, left_behind) = lane.give_up();
            if left_behind {
                self.pool.abandon();
            }
            self.keep(done);
        }
    }
}

impl<B: Items, T: Send + 'static> Drop for Watch<'_, B, T> {
    fn drop(&mut self) {
        self.give_up();
    }
}

fn not_reached() -> Failure {
    Failure::retry(codes::NOT_REACHED, "the batch's time was over before this item was evaluated")
}

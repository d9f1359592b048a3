//! The result of a campaign, and whether it is good enough.

use std::{
    collections::BTreeMap,
    sync::{
        PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::Serialize;

use super::{
    Options, Part,
    load::{Failure, Tally},
    outages::Outages,
};

#[derive(Serialize)]
pub struct Report {
    pub part: Part,
    pub rounds: u32,
    pub faults: BTreeMap<&'static str, u32>,
    pub answered: u64,
    pub failed: u64,
    /// Failed requests that were idempotent.
    pub failed_idempotent: u64,
    /// Idempotent requests that failed although a server was available for long enough.
    pub failed_needlessly: u64,
    /// Idempotent requests that two servers had at once and did not answer. Faults hit one real process at a time, so
    /// one of the two was healthy and waited for the other. There must be few of them all the same.
    pub failed_at_two: u64,
    pub wrong: u64,
    pub hung: u64,
    /// Faults after which the pool did not come back to its size in time.
    pub shrunk: u32,
    /// Faults after which tasks, requests or waiters were left over.
    pub leaked: u32,
    /// Sockets and tasks that exist after the end.
    pub left_over: u32,
    /// The longest time from the end of a fault to full size.
    pub slowest_refill_s: f64,
    /// Growth of memory from the hundredth fault to the last, as a factor.
    pub memory_growth: Option<f64>,
    pub complaints: Vec<String>,
    /// How long the machine did not run this process; requests that failed for that reason are excused.
    pub stalled_s: f64,
    pub seconds: f64,
}

/// More complaints than this would not help the reader.
const COMPLAINTS_MAX: usize = 10;
const MEMORY_GROWTH_MAX: f64 = 1.05;

impl Report {
    pub fn holds(&self) -> bool {
        let zero = [
            self.wrong,
            self.hung,
            self.failed_needlessly,
            self.shrunk.into(),
            self.leaked.into(),
            self.left_over.into(),
        ];
        let memory = self.memory_growth.is_none_or(|growth| growth <= MEMORY_GROWTH_MAX);
        let few_at_two = self.failed_at_two * 10_000 <= self.answered;
        zero.iter().all(|count| *count == 0) && memory && few_at_two && self.answered > u64::from(self.rounds)
    }

    pub fn new(options: &Options) -> Report {
        Report {
            part: options.part,
            rounds: options.rounds,
            faults: BTreeMap::new(),
            answered: 0,
            failed: 0,
            failed_idempotent: 0,
            failed_needlessly: 0,
            failed_at_two: 0,
            wrong: 0,
            hung: 0,
            shrunk: 0,
            leaked: 0,
            left_over: 0,
            slowest_refill_s: 0.0,
            memory_growth: None,
            complaints: Vec::new(),
            stalled_s: 0.0,
            seconds: 0.0,
        }
    }

    pub fn complain(&mut self, what: String) {
        eprintln!("{what}");
        if self.complaints.len() < COMPLAINTS_MAX {
            self.complaints.push(what);
        }
    }

    pub fn take(&mut self, tally: &Tally, outages: &Outages) {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (self.answered, self.failed, self.wrong, self.hung) =
            (value(&tally.good), value(&tally.failed), value(&tally.wrong), value(&tally.hung));
        let failures = std::mem::take(&mut *tally.failed_idempotent.lock().unwrap_or_else(PoisonError::into_inner));
        self.failed_idempotent = failures.len() as u64;
        self.stalled_s = outages.stalled_for().as_secs_f64();
        // A request that was lost at every server it may be tried at, while all servers were gone, has had its chances.
        let excused = |failure: &Failure| {
            !outages.had_enough_time(failure.begun, failure.due)
                || failure.exhausted && outages.overlap(failure.begun, failure.due)
        };
        for failure in failures.iter().filter(|failure| !excused(failure)) {
            if failure.by_two && self.part == Part::Nodes {
                self.failed_at_two += 1;
                continue;
            }
            self.failed_needlessly += 1;
            self.complain(format!("failed although a server was available: {}", failure.text));
        }
        let complaint = tally.complaint.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(complaint) = complaint {
            self.complain(complaint);
        }
    }
}

//! What came of a campaign, and whether that is good enough.

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
    darkness::Darkness,
    load::{Failure, Tally},
};

#[derive(Serialize)]
pub struct Report {
    pub part: Part,
    pub rounds: u32,
    pub faults: BTreeMap<&'static str, u32>,
    pub answered: u64,
    pub failed: u64,
    /// Of these, the idempotent ones.
    pub failed_idempotent: u64,
    /// Of these, the ones that failed although a server was there for long enough.
    pub failed_needlessly: u64,
    /// The ones that two servers had at once and did not answer. Of real processes one at a time is struck, so one of them
    /// was well, and waited for the other. Few they must be all the same.
    pub failed_at_two: u64,
    pub wrong: u64,
    pub hung: u64,
    /// Faults after which the pool did not come back to its size in time.
    pub shrunk: u32,
    /// Faults after which tasks, requests or waiters were left over.
    pub leaked: u32,
    /// Sockets and tasks after the end.
    pub left_over: u32,
    /// The longest time from the end of a fault to full size.
    pub slowest_refill_s: f64,
    /// From the hundredth fault to the last.
    pub memory_growth: Option<f64>,
    pub complaints: Vec<String>,
    /// So long the machine gave this process no time; what failed for that counts for nobody.
    pub stalled_s: f64,
    pub seconds: f64,
}

/// More than so many words about what is wrong help nobody.
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

    pub fn take(&mut self, tally: &Tally, darkness: &Darkness) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (self.answered, self.failed, self.wrong, self.hung) =
            (of(&tally.good), of(&tally.failed), of(&tally.wrong), of(&tally.hung));
        let failures = std::mem::take(&mut *tally.failed_idempotent.lock().unwrap_or_else(PoisonError::into_inner));
        self.failed_idempotent = failures.len() as u64;
        self.stalled_s = darkness.stalled_for().as_secs_f64();
        // Whoever was lost at every server that it may be tried at, when all went at once, has had its chances.
        let excused = |failure: &Failure| {
            !darkness.spared(failure.begun, failure.due)
                || failure.exhausted && darkness.touched(failure.begun, failure.due)
        };
        for failure in failures.iter().filter(|failure| !excused(failure)) {
            if failure.by_two && self.part == Part::Nodes {
                self.failed_at_two += 1;
                continue;
            }
            self.failed_needlessly += 1;
            self.complain(format!("failed although a server was there: {}", failure.said));
        }
        let complaint = tally.complaint.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(complaint) = complaint {
            self.complain(complaint);
        }
    }
}

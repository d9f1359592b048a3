//! Plays many seeds of limits under faults on as many threads as there are cores; and the planted bugs that they must
//! find.

use std::{fmt, sync::Mutex, sync::PoisonError};

use super::{
    check::{Outcome, run},
    history::Counts,
};
use crate::campaign::each_seed;

/// With at least this many seeds, every kind of event must have happened.
const TELLING: u64 = 100;

/// The result of a range of seeds.
#[derive(Debug, Default)]
pub struct Report {
    pub seeds: u64,
    pub failed: Vec<Outcome>,
    pub simulated_ms: u64,
    pub counts: Counts,
}

impl Report {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.simulated_ms += outcome.simulated_ms;
        self.counts.add(&outcome.counts);
        if !outcome.breaches.is_empty() {
            self.failed.push(outcome);
        }
    }

    /// Whether every seed keeps the rules, and there were enough events to check.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty() && (self.seeds < TELLING || self.counts.each().iter().all(|(_, count)| *count > 0))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, seconds) = (self.failed.len(), self.simulated_ms / 1000);
        write!(f, "{} fleets with limits, {failed} failed, {seconds} simulated s:", self.seeds)?;
        let each = self.counts.each();
        each.iter().enumerate().try_for_each(|(at, (name, count))| {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma} {count} {name}")
        })
    }
}

/// Plays `count` seeds from `start` on, and calls `shown` with the number of finished ones. Stops after `failures_max`
/// failures.
pub fn play(start: u64, count: u64, failures_max: usize, shown: impl Fn(u64) + Sync) -> Report {
    let report = Mutex::new(Report::default());
    each_seed(start, count, |seed| {
        let outcome = run(seed);
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        report.add(outcome);
        shown(report.seeds);
        report.failed.len() < failures_max
    });
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.failed.sort_by_key(|outcome| outcome.plan.seed);
    report
}

/// Describes a failed seed: its plan, its breaches, and the command that plays it again.
pub fn describe(outcome: &Outcome) -> String {
    use fmt::Write;
    let mut text = format!("{:#?}\n", outcome.plan);
    for breach in outcome.breaches.iter().take(10) {
        let _ = writeln!(text, "  {breach}");
    }
    if outcome.breaches.len() > 10 {
        let _ = writeln!(text, "  … and {} more", outcome.breaches.len() - 10);
    }
    let _ = writeln!(text, "play it again: cargo xtask sim --limits --seed {}", outcome.plan.seed);
    text
}

/// HV-86: the bugs that can be planted in the limiter, each with a seed that is known to find it. For `batch-lives-on`
/// no seed is known; the scenarios find it with a special load.
pub fn bugs() -> &'static [(&'static str, u64)] {
    &[
        ("pool cap forgotten", 13),
        ("change applied at once", 49),
        ("zero-when-unknown", 8),
        ("bookings not counted", 2),
        ("booked twice", 2),
        ("drip lives on", 19),
        ("second from the question", 2),
        ("bookings forgotten", 201),
        ("bookings of another clock", 2_155),
        ("returned slots are lent", 10),
        ("refund into any window", 40),
        ("drawn outlives the change", 53_866),
        ("batch of another definition", 69),
    ]
}

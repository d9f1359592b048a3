//! Plays many seeds of hives on as many threads as there are cores.

use std::{fmt, sync::Mutex, sync::PoisonError};

use super::check::{Outcome, run};
use crate::campaign::each_seed;

/// The result of a range of seeds.
#[derive(Debug, Default)]
pub struct Report {
    pub seeds: u64,
    pub failed: Vec<Outcome>,
    pub simulated_ms: u64,
    /// The simulated time of the shortest seed.
    pub shortest_ms: u64,
    pub granted: u64,
    pub accepted: u64,
    pub refused: u64,
    pub buried: u64,
    /// The longest time that a healed hive took until all leases were held.
    pub slowest_ms: u64,
}

impl Report {
    fn add(&mut self, outcome: Outcome) {
        let first = self.seeds == 0;
        self.seeds += 1;
        self.simulated_ms += outcome.simulated_ms;
        self.shortest_ms = if first { outcome.simulated_ms } else { self.shortest_ms.min(outcome.simulated_ms) };
        self.granted += outcome.granted;
        self.accepted += outcome.accepted as u64;
        self.refused += outcome.refused;
        self.buried += outcome.buried;
        self.slowest_ms = self.slowest_ms.max(outcome.held_after_ms.unwrap_or(0));
        if !outcome.breaches.is_empty() {
            self.failed.push(outcome);
        }
    }

    /// Whether every seed keeps the rules, and there were enough events to check.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty() && (self.seeds < 50 || self.refused > self.seeds && self.buried > self.seeds / 2)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seeds, failed, simulated_ms, granted, accepted, refused, buried, slowest_ms, .. } = self;
        write!(
            f,
            "{seeds} hives, {} failed, {} simulated s: {granted} terms, {accepted} writes, {refused} refused, {buried} \
             nodes removed, all leases held at most {slowest_ms} ms after the last fault",
            failed.len(),
            simulated_ms / 1000
        )
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
    report.failed.sort_by_key(|outcome| outcome.plan.options.seed);
    report
}

/// Describes a failed seed: its plan, its breaches, and the command that plays it again.
pub fn describe(outcome: &Outcome) -> String {
    use fmt::Write;
    let mut text = format!("{:#?}\n", outcome.plan);
    for breach in outcome.breaches.iter().take(10) {
        let _ = writeln!(text, "  {breach}");
    }
    let seed = outcome.plan.options.seed;
    let _ = writeln!(text, "play it again: cargo xtask sim --hive --seed {seed}");
    text
}

/// HV-86: the bugs that can be planted in the hive, each with a seed that is known to find it. Bugs of a single
/// statement are planted in the memory backend, which represents all backends here.
pub fn bugs() -> &'static [(&'static str, u64)] {
    &[
        ("PB-1", 1),
        ("trust from reply time", 5),
        ("0 as 1 when unknown", 1),
        ("take without epoch compare", 2),
        ("count unfenced", 8),
        ("plain epoch", 20),
        ("renew by name only", 9),
        ("lease row deleted on release", 3),
        ("node clock", 1),
        ("sitting out is warm", 3),
    ]
}

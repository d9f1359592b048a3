//! Plays many seeds on as many threads as there are cores; and the planted bugs that the seeds must find.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    options::Options,
    world::{self, Outcome, Stats},
};

/// With at least this many seeds, every kind of event must have happened.
const TELLING: u64 = 200;

/// The result of a range of seeds.
#[derive(Debug, Default)]
pub struct Report {
    pub seeds: u64,
    pub failed: Vec<Outcome>,
    pub total: Stats,
    pub slowest_rest_ms: u64,
    /// The number of seeds that pause nodes. Hardly any of them has no refused write: a pause may hit a node that holds
    /// nothing.
    pub paused: u64,
    /// The number of those seeds in which no stale write was refused.
    pub unrefused: u64,
}

impl Report {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        let (total, stats) = (&mut self.total, &outcome.stats);
        total.simulated_us += stats.simulated_us;
        total.happenings += stats.happenings;
        total.changes += stats.changes;
        total.runs += stats.runs;
        total.faults += stats.faults;
        total.planned += stats.planned;
        total.stale_refused += stats.stale_refused;
        total.fenced += stats.fenced;
        total.late_commits += stats.late_commits;
        total.parked += stats.parked;
        total.stale_answers += stats.stale_answers;
        total.cancelled += stats.cancelled;
        total.overdue += stats.overdue;
        total.fatals += stats.fatals;
        total.pages += stats.pages;
        self.slowest_rest_ms = self.slowest_rest_ms.max(stats.quiet_after_ms.unwrap_or(0));
        if outcome.options.plan.pauses > 0 {
            self.paused += 1;
            self.unrefused += u64::from(stats.stale_refused + stats.fenced == 0);
        }
        if !outcome.is_good() {
            self.failed.push(outcome);
        }
    }
}

impl Report {
    /// Whether every seed keeps the rules, and pauses led to refused writes in all but one of a hundred seeds with
    /// pauses.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty() && self.unrefused <= 1 + self.paused / 100 && self.is_telling()
    }

    /// Whether every kind of event happened. If one never did in many seeds, they prove nothing about it.
    fn is_telling(&self) -> bool {
        let Stats { stale_answers, cancelled, overdue, fatals, pages, fenced, late_commits, parked, .. } = self.total;
        self.seeds < TELLING
            || [stale_answers, cancelled, overdue, fatals, pages, fenced, late_commits, parked].iter().all(|n| *n > 0)
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Stats { simulated_us, changes, runs, faults, planned, stale_refused, fenced, late_commits, .. } =
            &self.total;
        let Stats { stale_answers, cancelled, overdue, fatals, pages, .. } = &self.total;
        let hours = simulated_us / 1_000_000 / 36;
        write!(
            f,
            "{} seeds, {}.{:02} simulated hours, {changes} changes, {runs} runs, {faults} of {planned} faults landed, \
             {stale_refused} stale stamps, {stale_answers} stale answers and {fenced} fenced writes refused, \
             {late_commits} late commits, {cancelled} cancels, {overdue} deadlines, {fatals} fatal answers, {pages} pages, slowest rest {} ms, {} of {} paused without a refusal, {} failed",
            self.seeds,
            hours / 100,
            hours % 100,
            self.slowest_rest_ms,
            self.unrefused,
            self.paused,
            self.failed.len()
        )
    }
}

/// Describes a failed seed: its options, its breaches, and the command that plays it again.
pub fn describe(outcome: &Outcome) -> String {
    use std::fmt::Write;
    let mut text = format!("seed {}\n{:#?}\n{:?}\n", outcome.options.seed, outcome.options, outcome.stats);
    for shape in crate::shapes::draw(&outcome.options).workflows {
        let _ = writeln!(text, "workflow {} on {}: {}", shape.graph.name, shape.entity, shape.value);
    }
    for node in &outcome.nodes {
        let _ = writeln!(text, "{node}");
    }
    for breach in outcome.breaches.iter().take(12) {
        let _ = writeln!(text, "  {breach}");
    }
    if outcome.breaches.len() > 12 {
        let _ = writeln!(text, "  … and {} more", outcome.breaches.len() - 12);
    }
    for reason in &outcome.void {
        let _ = writeln!(text, "  void: {reason}");
    }
    let _ = writeln!(text, "play it again: {}", command(&outcome.options));
    text
}

/// The command that plays the seed again.
pub fn command(options: &Options) -> String {
    let drawn = Options::draw(options.seed).knobs();
    let cuts = options.knobs().into_iter().zip(drawn).filter(|(now, before)| now.1 != before.1);
    let cuts: String = cuts.map(|((name, value, _), _)| format!(" --set {name}={value}")).collect();
    format!("cargo xtask sim --seed {}{cuts}", options.seed)
}

/// Plays `count` seeds from `start` on, and calls `shown` with the number of finished ones. Stops after `failures_max`
/// failures.
pub fn play(start: u64, count: u64, failures_max: usize, shown: impl Fn(u64) + Sync) -> Report {
    play_with(start, count, failures_max, shown, world::run)
}

/// The same with another function that plays a seed, such as the canary that must be reported.
pub fn play_with(
    start: u64,
    count: u64,
    failures_max: usize,
    shown: impl Fn(u64) + Sync,
    seed: impl Fn(u64) -> Outcome + Sync,
) -> Report {
    let report = std::sync::Mutex::new(Report::default());
    each_seed(start, count, |number| {
        let outcome = seed(number);
        let mut report = report.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        report.add(outcome);
        shown(report.seeds);
        report.failed.len() < failures_max
    });
    let mut report = report.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    report.failed.sort_by_key(|outcome| outcome.options.seed);
    report
}

/// Plays `count` seeds from `start` on, on as many threads as there are cores, until `play` returns false.
pub fn each_seed(start: u64, count: u64, play: impl Fn(u64) -> bool + Sync) {
    let next = AtomicU64::new(start);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= start + count {
                        return;
                    }
                    if !play(number) {
                        next.store(start + count, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

/// The bugs that can be planted in the crates under test, each with a seed that is known to find it.
pub fn bugs() -> &'static [(&'static str, u64)] {
    &[
        ("PB-1", 1),
        ("PB-2", 9),
        ("PB-3", 1),
        ("PB-4", 1),
        ("PB-5", 16),
        ("PB-7", 11),
        ("PB-11", 1),
        ("PB-12", 2),
        ("PB-13", 2),
        ("PB-14", 2),
        ("PB-15", 2),
        ("PB-16", 1),
        ("PB-17", 1),
        ("PB-18", 1),
        ("PB-19", 4),
        ("PB-20", 2),
        ("PB-21", 4),
        ("PB-22", 15),
        ("PB-23", 1),
        ("PB-24", 2),
        ("PB-25", 2),
        ("PB-28", 2),
        ("PB-29", 1),
        ("PB-39", 11),
        ("PB-40", 59),
        ("PB-41", 4),
        ("PB-42", 2),
        ("single-flight", 1),
        ("forget-held-key", 2),
        ("ack-before-second-workflow", 2),
        ("failure-verdict", 3),
        ("join-skip", 2),
        ("count C as S", 5),
        ("charge a whole batch", 9),
        ("checkpoint after the dependent started", 2),
        ("leak a slot at worker death", 3),
        ("early start of a delayed event", 1),
        ("early end of a sleep", 11),
        ("unpinned replay", 1),
        ("list made again", 63),
    ]
}

#[cfg(feature = "planted")]
pub use honeyflow_runtime::planted::plant;

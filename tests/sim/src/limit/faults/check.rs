//! Checks that nothing was admitted that should not have been: window by window, against the definitions in force.

use std::{collections::BTreeMap, hash::Hasher};

use honeyflow_hive::{
    contract::limit::{MICRO, Rule},
    limit::Definition,
};
use honeyflow_invariant::{
    Breach,
    rate::{ExtraPermits, GrantedPermits, RateBound, rate_holds_but_for},
};

use super::{
    history::{Counts, Excuse, Force, History, StoreDecision, TakenPermits},
    plan::{BOTH, CALENDAR, EXACT, POOL, Plan, SECOND},
    play::play,
    world::definitions,
};

/// The outcome of a seed.
#[derive(Debug)]
pub struct Outcome {
    pub plan: Plan,
    pub breaches: Vec<Breach>,
    pub counts: Counts,
    pub trace: u64,
    pub simulated_ms: u64,
}

pub fn run(seed: u64) -> Outcome {
    run_plan(&Plan::draw(seed))
}

pub fn run_plan(plan: &Plan) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let (mut history, mut breaches, end_ns) = runtime.expect("a runtime").block_on(play(plan));
    breaches.append(&mut history.breaches);
    breaches.extend(pools_hold(&history));
    breaches.extend(shares_hold(&history));
    breaches.extend([EXACT, BOTH[0], BOTH[1]].into_iter().flat_map(|limit| decisions_hold(limit, &history)));
    breaches.extend(
        [EXACT, CALENDAR, BOTH[0], BOTH[1]].into_iter().flat_map(|limit| nothing_from_nowhere(limit, &history)),
    );
    breaches.extend(quotas_hold(plan, &history));
    let mut counts = history.counts;
    let windows = history.taken.iter().filter_map(|taken| taken.window).map(|window| window.end_ms);
    counts.turned = windows.collect::<std::collections::BTreeSet<_>>().len().saturating_sub(1) as u64;
    Outcome { plan: plan.clone(), breaches, counts, trace: trace(&history), simulated_ms: end_ns / 1_000_000 }
}

fn per_second_u(rule: Rule) -> u64 {
    rule.rate_u * 1_000 / rule.period_ms.max(1)
}

fn us(ns: u64) -> u64 {
    ns / 1_000
}

/// The extra permits that faults allow for a limit, and when.
fn extras(limit: &str, history: &History) -> Vec<ExtraPermits> {
    let forces = history.laws.get(limit).map_or(&[][..], |law| &law.in_force);
    let most = |of: fn(&Force) -> u64| forces.iter().map(of).max().unwrap_or(0);
    let burst = most(|force| force.rule.burst_u) / MICRO;
    let rate = most(|force| per_second_u(force.rule)).div_ceil(MICRO);
    let life_us = most(|force| force.rule.batch_life_ms()) * 1_000;
    let two_seconds = 2_200_000;
    let extra = |excuse: &Excuse| match *excuse {
        Excuse::Forgot { at_ns } => {
            ExtraPermits { from_us: us(at_ns), until_us: us(at_ns) + life_us + two_seconds, permits: burst }
        }
        Excuse::Ahead { at_ns, by_ms } => ExtraPermits {
            from_us: us(at_ns),
            until_us: us(at_ns) + life_us + two_seconds,
            permits: (rate * by_ms).div_ceil(1_000),
        },
        // What the node had in stock or reserved, until it notices that it slept.
        Excuse::Slept { until_ns } => {
            ExtraPermits { from_us: us(until_ns), until_us: us(until_ns) + 1_200_000 + life_us, permits: burst + rate }
        }
    };
    history.excuses.iter().map(extra).collect()
}

/// What a definition allows. For two consecutive ones, the larger value of each part.
fn bound(forces: &[Force]) -> RateBound {
    // The store counts in milliseconds. For long-lived batches the early local expiry covers that. A decision of the
    // store itself is as old as its answer.
    let grain_u = |rule: Rule| match rule.batch_life_ms() {
        _ if rule.burst_u < 4 * MICRO => per_second_u(rule),
        0..20 => per_second_u(rule),
        20..100 => per_second_u(rule) / 1_000 + MICRO,
        _ => 0,
    };
    let most = |of: &dyn Fn(Rule) -> u64| forces.iter().map(|force| of(force.rule)).max().unwrap_or(0);
    RateBound { per_second_u: most(&per_second_u), burst_u: most(&|rule| rule.burst_u) + most(&grain_u) }
}

/// HV-60, HV-71, HI-7: the permits of the store keep the limit in every window, within one definition and across each
/// change.
fn pools_hold(history: &History) -> Vec<Breach> {
    let Some(law) = history.laws.get(POOL) else { return Vec::new() };
    let extras = extras(POOL, history);
    let of_store = |taken: &&TakenPermits| taken.limit == POOL && taken.share.is_none();
    let mut by_key: BTreeMap<&str, Vec<&TakenPermits>> = BTreeMap::new();
    for taken in history.taken.iter().filter(of_store) {
        by_key.entry(taken.key).or_default().push(taken);
    }
    let mut breaches = Vec::new();
    for (key, taken) in by_key {
        let name = format!("{POOL}/{key}");
        for (at, width) in (0..law.in_force.len()).flat_map(|at| [(at, 1), (at, 2)]) {
            let Some(forces) = law.in_force.get(at..at + width) else { continue };
            let until_ns = law.in_force.get(at + width).map_or(u64::MAX, |next| next.from_ns);
            let within = taken.iter().filter(|taken| (forces[0].from_ns..until_ns).contains(&taken.at_ns));
            let given: Vec<GrantedPermits> = within.map(|taken| given(taken)).collect();
            breaches.extend(rate_holds_but_for(&name, bound(forces), &extras, &given));
        }
    }
    breaches
}

fn given(taken: &TakenPermits) -> GrantedPermits {
    GrantedPermits { at_us: us(taken.at_ns), permits: taken.permits }
}

/// How far a process's clock may be ahead of the others when a change that it has read comes into force there.
const GAIN_NS: u64 = 2_000_000;

/// HV-64, HV-30: without the store, each process uses at most its share of the largest definition that it may know by
/// then. It may have missed that a limit was lowered. But it uses neither a definition that was gone before the process
/// began, nor one that is not in force yet.
fn shares_hold(history: &History) -> Vec<Breach> {
    let mut by_process: BTreeMap<(u64, &str, &str), Vec<&TakenPermits>> = BTreeMap::new();
    for taken in history.taken.iter().filter(|taken| taken.share.is_some()) {
        by_process.entry((taken.process, taken.limit, taken.key)).or_default().push(taken);
    }
    let mut breaches = Vec::new();
    for ((process, limit, key), taken) in by_process {
        let Some(law) = history.laws.get(limit) else { continue };
        let began_ns = history.began_ns.get(&process).copied().unwrap_or(0);
        let mut known: Vec<Force> = law
            .hearsay
            .iter()
            .filter(|one| one.from_ns == 0 || one.gone_ns >= began_ns)
            .map(|one| Force { from_ns: one.from_ns.saturating_sub(GAIN_NS), rule: one.rule })
            .collect();
        known.sort_by_key(|force| force.from_ns);
        let parts = taken.iter().filter_map(|taken| taken.share).min().unwrap_or(1);
        let name = format!("{limit}/{key}, process {process} alone, one of {parts}");
        for at in 0..known.len() {
            let until_ns = known.get(at + 1).map_or(u64::MAX, |next| next.from_ns);
            let within = taken.iter().filter(|taken| taken.at_ns < until_ns);
            let given: Vec<GrantedPermits> = within.map(|taken| given(taken)).collect();
            breaches.extend(rate_holds_but_for(&name, share(limit, parts, &known[..=at]), &[], &given));
        }
    }
    breaches
}

fn share(limit: &str, parts: u64, known: &[Force]) -> RateBound {
    let most = |of: fn(&Force) -> u64| known.iter().map(of).max().unwrap_or(0);
    // For a quota, the rate over its window; and clocks run at different rates.
    let per_second_u = match limit {
        CALENDAR => most(|force| force.rule.burst_u) / 3_600,
        _ => most(|force| per_second_u(force.rule)),
    };
    let per_second_u = per_second_u / parts / 1_000 * 1_001 + 1_001;
    let burst = (most(|force| force.rule.burst_u) / MICRO / 2 / parts).max(1);
    RateBound { per_second_u, burst_u: burst * MICRO }
}

/// HV-65, HV-70: what the store itself admits keeps the limit by the store's own time; refunds may be given again.
fn decisions_hold(limit: &'static str, history: &History) -> Vec<Breach> {
    let Some(force) = history.laws.get(limit).and_then(|law| law.in_force.last()) else { return Vec::new() };
    let decided = || history.decided.iter().filter(|one| one.limit == limit);
    let back = |one: &StoreDecision| ExtraPermits {
        from_us: us(one.at_ns),
        until_us: us(one.at_ns),
        permits: one.permits.unsigned_abs(),
    };
    let mut extras = extras(limit, history);
    extras.extend(decided().filter(|one| one.permits < 0).map(back));
    let taken = decided().filter(|one| one.permits > 0);
    let given: Vec<GrantedPermits> =
        taken.map(|one| GrantedPermits { at_us: us(one.at_ns), permits: one.permits.unsigned_abs() }).collect();
    let per_second_u = per_second_u(force.rule);
    let bound = RateBound { per_second_u, burst_u: force.rule.burst_u + per_second_u / 1_000 };
    rate_holds_but_for(limit, bound, &extras, &given)
}

/// For a limit that the store decides, the store has taken every permit that a program got.
fn nothing_from_nowhere(limit: &'static str, history: &History) -> Vec<Breach> {
    let mut decided = history.decided.iter().filter(|one| one.limit == limit && one.permits > 0).peekable();
    let (mut given, mut taken) = (0, 0);
    for one in history.taken.iter().filter(|one| one.limit == limit && one.share.is_none()) {
        while let Some(decided) = decided.next_if(|decided| decided.at_ns <= one.at_ns) {
            taken += decided.permits.unsigned_abs();
        }
        given += one.permits;
        if given > taken {
            let what = format!("{limit}: {given} permits are in use, the store has given {taken}");
            return vec![Breach::new("I18", what)];
        }
    }
    Vec::new()
}

/// HV-65: no window of the calendar admits more than its quota, independent of refunds.
fn quotas_hold(plan: &Plan, history: &History) -> Vec<Breach> {
    let quota = definitions(plan).iter().find(|one| &*one.name == CALENDAR).map_or(0, quota_of);
    let mut used: BTreeMap<u64, u64> = BTreeMap::new();
    let of_store = |taken: &&TakenPermits| taken.limit == CALENDAR && taken.share.is_none();
    for taken in history.taken.iter().filter(of_store) {
        if let Some(window) = taken.window {
            *used.entry(window.end_ms).or_default() += taken.permits;
        }
    }
    let forgotten = history.excuses.iter().filter(|excuse| matches!(excuse, Excuse::Forgot { .. })).count() as u64;
    let most = quota * (1 + forgotten);
    let breach = |what: String| Breach::new("HV-65", what);
    if history.went_back {
        // If the clock went back, the same hour comes again, and part of the next one counts too.
        let (windows, total) = (used.len() as u64 + 1, used.values().sum::<u64>());
        let above = total > most * windows;
        return above.then(|| breach(format!("{CALENDAR}: {total} in {windows} windows"))).into_iter().collect();
    }
    let above = used.into_iter().filter(|(_, used)| *used > most);
    above.map(|(end_ms, used)| breach(format!("{CALENDAR}: {used} in the window up to {end_ms}"))).collect()
}

fn quota_of(definition: &Definition) -> u64 {
    honeyflow_hive::limit::Terms::from_definition(definition).map_or(0, |terms| terms.burst)
}

fn trace(history: &History) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    for taken in &history.taken {
        hasher.write_u64(taken.at_ns);
        hasher.write_u64(taken.process);
        hasher.write_u64(taken.permits);
    }
    hasher.write_u64(history.decided.len() as u64 * SECOND);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Permits of a process's own share, one every `every_ms`.
    fn alone(process: u64, from_ms: u64, until_ms: u64, every_ms: usize) -> Vec<TakenPermits> {
        let taken = |at_ms: u64| TakenPermits {
            asked_ns: at_ms * MS,
            at_ns: at_ms * MS,
            process,
            limit: POOL,
            key: "a",
            permits: 1,
            share: Some(1),
            window: None,
        };
        (from_ms..until_ms).step_by(every_ms).map(taken).collect()
    }

    /// HV-64, HV-71: a process without the store uses what it may have read before: neither a definition that is not in
    /// force yet, nor one that was gone before it began.
    #[test]
    fn hv_64_no_process_uses_a_limit_it_cannot_know() {
        let (slow, fast) = (Rule::rate(10, 1_000, 10), Rule::rate(20, 1_000, 20));
        let mut history = History { began_ns: [(1, 0), (2, 5_000 * MS)].into(), ..History::default() };
        let law = history.laws.entry(POOL).or_default();
        law.set(slow, 50_000, 0, 50_000);
        law.set(fast, 53_000, 1_000 * MS, 51_000);
        law.look(3_500 * MS, 53_500);
        law.forget(4_000 * MS);
        law.set(slow, 54_100, 4_100 * MS, 54_100);
        let mut breaks = |taken: Vec<TakenPermits>| {
            history.taken = taken;
            !shares_hold(&history).is_empty()
        };
        assert!(breaks(alone(1, 1_000, 2_900, 50)), "it has read the definition, which is not in force yet");
        assert!(
            !breaks(alone(1, 3_000, 9_000, 50)),
            "the definition is in force, and the process cannot know that the store lost it"
        );
        assert!(breaks(alone(1, 3_000, 9_000, 40)), "above all that ever was");
        assert!(breaks(alone(2, 5_000, 9_000, 50)), "it was forgotten before this one began");
        assert!(!breaks(alone(2, 5_000, 9_000, 100)));
    }

    /// HV-64: a process without the store may not know that a limit was lowered; one that began later knows only that
    /// limit.
    #[test]
    fn hv_64_a_limit_that_was_lowered_may_be_missed() {
        let (slow, fast) = (Rule::rate(10, 1_000, 10), Rule::rate(20, 1_000, 20));
        let mut history = History { began_ns: [(1, 0), (2, 5_000 * MS)].into(), ..History::default() };
        let law = history.laws.entry(POOL).or_default();
        law.set(slow, 50_000, 0, 50_000);
        law.set(fast, 51_000, 500 * MS, 50_500);
        law.look(2_000 * MS, 52_000);
        law.set(slow, 53_000, 2_500 * MS, 52_500);
        law.look(4_000 * MS, 54_000);
        // The store keeps the previous definition until a further one is set, so a process can read both.
        law.set(Rule::rate(9, 1_000, 10), 54_600, 4_500 * MS, 54_500);
        law.look(5_000 * MS, 55_000);
        let mut breaks = |process, from_ms, until_ms, every_ms| {
            history.taken = alone(process, from_ms, until_ms, every_ms);
            !shares_hold(&history).is_empty()
        };
        assert!(!breaks(1, 4_000, 9_000, 50), "it may have missed that");
        assert!(breaks(2, 5_000, 9_000, 50), "superseded before this one began");
    }
}

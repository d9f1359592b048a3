//! Minimises a failing seed: fewer faults, fewer nodes, fewer changes, smaller graphs, less time, as long as the same
//! rule is broken. The result contains only what the failure needs.
//!
//! Each option is first tried at its least value, then halved. A later round finds options that can be cut only after
//! others are small; it ends when a round changes nothing.

use crate::{options::Options, world::Outcome};

/// The largest number of plays. A seed takes a fraction of a second, so all of them take about a minute.
const PLAYS_MAX: usize = 400;

/// Returns the smallest outcome found that breaks the same rule as this one. `play` must give the same outcome for the
/// same options.
pub fn smallest(failed: &Outcome, play: impl Fn(&Options) -> Outcome) -> Outcome {
    let rule = |outcome: &Outcome| outcome.breaches.first().map(|breach| breach.id);
    let broken = rule(failed);
    let mut plays = 0;
    let mut try_with = |options: &Options| {
        plays += 1;
        let outcome = (plays <= PLAYS_MAX).then(|| play(options))?;
        (rule(&outcome) == broken).then_some(outcome)
    };
    // Limiting the number of changes cuts off what happens after the failure.
    let mut start = failed.options.clone();
    start.changes_max = start.changes_max.min(failed.stats.changes.max(1));
    let Some(mut best) = try_with(&start) else {
        return try_with(&failed.options).unwrap_or_else(|| unreproducible(failed));
    };
    loop {
        let before = best.options.knobs();
        for (at, (name, _, least)) in before.iter().enumerate() {
            // Below `floor` the seed is known not to fail. The least value is tried first, as most options are not
            // needed.
            let mut floor = *least;
            let mut wanted = *least;
            while is_worth_it(floor, best.options.knobs()[at].1) {
                let mut options = best.options.clone();
                match options.set(name, wanted).ok().and_then(|()| try_with(&options)) {
                    Some(outcome) => best = outcome,
                    None => floor = wanted + 1,
                }
                wanted = floor.midpoint(best.options.knobs()[at].1);
            }
        }
        if best.options.knobs() == before {
            return best;
        }
    }
}

/// Small numbers are found exactly; for large ones a few per cent do not matter.
fn is_worth_it(floor: u64, now: u64) -> bool {
    floor < now && (now <= 64 || (now - floor) > now / 8)
}

/// The outcome for options that did not fail again. That is itself a bug; the original outcome is shown.
fn unreproducible(failed: &Outcome) -> Outcome {
    let mut breaches = failed.breaches.clone();
    breaches.insert(0, honeyflow_invariant::Breach::new("RL-35", "the same seed gave another history"));
    Outcome {
        options: failed.options.clone(),
        breaches,
        void: failed.void.clone(),
        trace: failed.trace,
        stats: failed.stats.clone(),
        nodes: failed.nodes.clone(),
    }
}

#[cfg(test)]
mod tests {
    use honeyflow_invariant::Breach;

    use super::*;
    use crate::world::Stats;

    /// Fails with a pause, two nodes, and at least 37 changes.
    fn play(options: &Options) -> Outcome {
        let fails = options.plan.pauses > 0 && options.nodes >= 2 && options.changes_max >= 37;
        let breaches = if fails { vec![Breach::new("I2", "on purpose")] } else { Vec::new() };
        let stats = Stats { changes: 900, ..Stats::default() };
        Outcome { options: options.clone(), breaches, void: Vec::new(), trace: 0, stats, nodes: Vec::new() }
    }

    /// RL-38
    #[test]
    fn rl_38_only_what_the_failure_needs_remains() {
        let mut options = Options::draw(1);
        (options.plan.pauses, options.plan.crashes, options.nodes) = (3, 3, 3);
        let smallest = smallest(&play(&options), play);
        assert!(!smallest.breaches.is_empty(), "what is shown fails");
        let options = smallest.options;
        assert_eq!((options.plan.pauses, options.plan.crashes, options.nodes, options.changes_max), (1, 0, 2, 37));
        for (name, value, least) in options.knobs() {
            let needed = ["pauses", "nodes", "changes"].contains(&name);
            assert!(needed || value <= least, "{name} = {value} is not needed");
        }
    }

    #[test]
    fn an_unreproducible_failure_is_reported() {
        let mut failed = play(&Options::draw(1));
        failed.breaches = vec![Breach::new("I9", "once")];
        let shown = smallest(&failed, |options| Outcome { breaches: Vec::new(), ..play(options) });
        assert_eq!(shown.breaches[0].id, "RL-35");
    }
}

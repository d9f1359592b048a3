//! `honeyflow limit audit NAME`: reads the limit's ledger in the store repeatedly and shows the worst window of each
//! key. It counts what the store has issued, not what the nodes report.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use honeyflow_hive::contract::limit::{MICRO, Rule};
use honeyflow_runtime::Failure;
use serde::Serialize;

use super::stored::{Kind, Store, burst};
use crate::{
    cli::{Context, Fault, Outcome, block_on},
    codes,
    config::units,
};

const KEYS_MAX: u32 = 1_000;
const SHOWN: usize = 20;

#[derive(clap::Args)]
pub struct Arguments {
    /// Limit, as in [limit.NAME]
    limit: String,
    /// How long to watch
    #[arg(long = "for", value_name = "DURATION", default_value = "10s")]
    watched: String,
    /// How often to read the ledger
    #[arg(long, value_name = "DURATION", default_value = "100ms")]
    every: String,
}

/// The window in which one key came closest to its limit, or exceeded it.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct WorstWindow {
    key: String,
    window_ms: u64,
    issued: u64,
    allowed: u64,
    share: f64,
}

/// One reading of the ledger. The store was read at some moment between `begun` and `ended`, by the local clock.
struct Sample {
    begun: Duration,
    ended: Duration,
    issued_u: Vec<(u128, u64)>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let duration = |text: &str| {
        let found = units::duration(text).filter(|time| *time >= Duration::from_millis(10));
        found.ok_or_else(|| Fault::usage(format!("`{text}` is not a duration of at least 10ms"), units::DURATION_HELP))
    };
    let (watched, every) = (duration(&arguments.watched)?, duration(&arguments.every)?);
    let (rule, samples) = block_on(watch(&config, &arguments.limit, watched, every))??;
    if Kind::of(&config, &arguments.limit) == Kind::Concurrent {
        return report(context, ["key", "window", "held", "allowed", "share"], &most_held(rule, &samples));
    }
    report(context, ["key", "window", "issued", "allowed", "share"], &worst(rule, &samples))
}

fn report(context: &Context, head: [&'static str; 5], worst: &[WorstWindow]) -> Result<Outcome, Fault> {
    context.output.rows(head, worst, |row| {
        let window = match row.window_ms {
            0 => "–".to_owned(),
            window_ms => format!("{:.1} s", Duration::from_millis(window_ms).as_secs_f64()),
        };
        let share = format!("{:.1} %", row.share * 100.0);
        [row.key.clone(), window, row.issued.to_string(), row.allowed.to_string(), share]
    })?;
    if worst.is_empty() {
        context.output.note("no permits were issued");
    }
    Ok(if worst.iter().any(|row| row.issued > row.allowed) { Outcome::Negative } else { Outcome::Success })
}

async fn watch(
    config: &crate::config::Config,
    limit: &str,
    watched: Duration,
    every: Duration,
) -> Result<(Rule, Vec<Sample>), Fault> {
    let store = Store::open(config).await?;
    let stored = store.read().await?;
    stored.one(config, limit)?;
    let Some(rule) = stored.limit(limit).map(|limit| limit.now.rule) else {
        return Err(Failure::retry(
            codes::NOT_DEFINED,
            format!("limit `{limit}` is not in the store yet: no node has started with it"),
        )
        .into());
    };
    let from = Instant::now();
    let mut samples = Vec::new();
    while from.elapsed() < watched {
        let begun = from.elapsed();
        let rows = store.buckets(limit, Kind::of(config, limit), KEYS_MAX).await?;
        let issued_u = rows.iter().map(|row| (row.key.0, row.issued_u)).collect();
        samples.push(Sample { begun, ended: from.elapsed(), issued_u });
        tokio::time::sleep(every).await;
    }
    Ok((rule, samples))
}

/// The worst window of each key: the one with the largest share of its allowance. Each window is taken at its longest
/// possible length, because the first sample may have read the store early and the second one late.
fn worst(rule: Rule, samples: &[Sample]) -> Vec<WorstWindow> {
    let mut all: Vec<WorstWindow> = Vec::new();
    let issued =
        |sample: &Sample, key: u128| sample.issued_u.iter().find(|(of, _)| *of == key).map_or(0, |(_, issued)| *issued);
    let Some(last) = samples.last() else { return all };
    for (key, _) in &last.issued_u {
        let mut found: Option<WorstWindow> = None;
        for (at, first) in samples.iter().enumerate() {
            for second in &samples[at + 1..] {
                let given = issued(second, *key).saturating_sub(issued(first, *key)) / MICRO;
                let window = second.ended.saturating_sub(first.begun);
                let allowed = allowed(rule, window);
                #[expect(clippy::cast_precision_loss, reason = "for people")]
                let share = given as f64 / allowed.max(1) as f64;
                if given > 0 && found.as_ref().is_none_or(|worst| share > worst.share) {
                    let window_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
                    let key = honeyflow_hive::contract::limit::Key(*key).to_string();
                    found = Some(WorstWindow { key, window_ms, issued: given, allowed, share });
                }
            }
        }
        all.extend(found);
    }
    worst_first(all)
}

/// The largest number of slots of each key that all nodes held at once, in any sample: a window of zero length.
fn most_held(rule: Rule, samples: &[Sample]) -> Vec<WorstWindow> {
    let mut most: BTreeMap<u128, u64> = BTreeMap::new();
    for (key, held_u) in samples.iter().flat_map(|sample| &sample.issued_u) {
        let held = most.entry(*key).or_default();
        *held = (held_u / MICRO).max(*held);
    }
    let allowed = burst(rule);
    let rows = most.into_iter().filter(|(_, held)| *held > 0).map(|(key, issued)| {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let share = issued as f64 / allowed.max(1) as f64;
        let key = honeyflow_hive::contract::limit::Key(key).to_string();
        WorstWindow { key, window_ms: 0, issued, allowed, share }
    });
    worst_first(rows.collect())
}

fn worst_first(mut all: Vec<WorstWindow>) -> Vec<WorstWindow> {
    all.sort_by(|a, b| b.share.total_cmp(&a.share));
    all.truncate(SHOWN);
    all
}

fn allowed(rule: Rule, window: Duration) -> u64 {
    // The store's clock counts whole milliseconds.
    let window_ms = window.as_millis() + 1;
    let flowed = u128::from(rule.rate_u) * window_ms / u128::from(rule.period_ms.max(1)) / u128::from(MICRO);
    u64::try_from(flowed).unwrap_or(u64::MAX).saturating_add(burst(rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ms: u64, issued: u64) -> Sample {
        let at = Duration::from_millis(at_ms);
        Sample { begun: at, ended: at, issued_u: vec![(7, issued * MICRO)] }
    }

    /// HV-77
    #[test]
    fn hv_77_the_worst_window_is_found_among_all() {
        let rule = Rule::rate(100, 1000, 20);
        let calm = [sample(0, 0), sample(1000, 50), sample(2000, 90)];
        let found = worst(rule, &calm);
        assert_eq!((found[0].window_ms, found[0].issued, found[0].allowed), (1000, 50, 120));
        let burst = [sample(0, 0), sample(1000, 50), sample(1100, 85), sample(2000, 90)];
        let found = worst(rule, &burst);
        assert_eq!(
            (found[0].window_ms, found[0].issued, found[0].allowed),
            (100, 35, 30),
            "35 in 100 ms exceed the allowance"
        );
        assert_eq!(worst(rule, &[]), []);
    }

    /// HV-68, HV-77
    #[test]
    fn hv_77_audit_of_slots_finds_the_most_held_at_once() {
        let samples = [sample(0, 1), sample(100, 4), sample(200, 2)];
        let found = most_held(Rule::count(3), &samples);
        assert_eq!((found[0].window_ms, found[0].issued, found[0].allowed), (0, 4, 3), "above the limit, once");
        assert_eq!(most_held(Rule::count(3), &[sample(0, 0)]), []);
    }
}

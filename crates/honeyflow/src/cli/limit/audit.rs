//! `honeyflow limit audit NAME`: the ledger is read again and again, and the worst window shown: by what the store has
//! issued, whatever nodes say of themselves.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use honeyflow_hive::contract::limit::{MICRO, Rule};
use honeyflow_runtime::Failure;
use serde::Serialize;

use super::stored::{Kind, Store, burst};
use crate::{
    cli::{Context, Done, Fault, block_on},
    config::units,
};

const KEYS_MAX: u32 = 1_000;
const SHOWN: usize = 20;

#[derive(clap::Args)]
pub struct Arguments {
    /// The limit, as in [limit.NAME]
    limit: String,
    /// How long to watch
    #[arg(long = "for", value_name = "DURATION", default_value = "10s")]
    watched: String,
    /// How often to look
    #[arg(long, value_name = "DURATION", default_value = "100ms")]
    every: String,
}

/// What one key was given at the most, against what it may be.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Worst {
    key: String,
    window_ms: u64,
    issued: u64,
    allowed: u64,
    share: f64,
}

/// What was read, between two moments of ours.
struct Look {
    begun: Duration,
    ended: Duration,
    issued_u: Vec<(u128, u64)>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    let duration = |text: &str| {
        let found = units::duration(text).filter(|time| *time >= Duration::from_millis(10));
        found.ok_or_else(|| Fault::usage(format!("`{text}` is not a duration above 10ms"), units::DURATION_HELP))
    };
    let (watched, every) = (duration(&arguments.watched)?, duration(&arguments.every)?);
    let (rule, looks) = block_on(watch(&config, &arguments.limit, watched, every))??;
    if Kind::of(&config, &arguments.limit) == Kind::Concurrent {
        return report(context, ["key", "window", "held", "allowed", "share"], &most_held(rule, &looks));
    }
    report(context, ["key", "window", "issued", "allowed", "share"], &worst(rule, &looks))
}

fn report(context: &Context, head: [&'static str; 5], worst: &[Worst]) -> Result<Done, Fault> {
    context.output.rows(head, worst, |row| {
        let window = match row.window_ms {
            0 => "–".to_owned(),
            window_ms => format!("{:.1} s", Duration::from_millis(window_ms).as_secs_f64()),
        };
        let share = format!("{:.1} %", row.share * 100.0);
        [row.key.clone(), window, row.issued.to_string(), row.allowed.to_string(), share]
    })?;
    if worst.is_empty() {
        context.output.note("nothing was given out");
    }
    Ok(if worst.iter().any(|row| row.issued > row.allowed) { Done::Negative } else { Done::Well })
}

async fn watch(
    config: &crate::config::Config,
    limit: &str,
    watched: Duration,
    every: Duration,
) -> Result<(Rule, Vec<Look>), Fault> {
    let store = Store::open(config).await?;
    let stored = store.read().await?;
    stored.one(config, limit)?;
    let Some(rule) = stored.limit(limit).map(|limit| limit.now.rule) else {
        return Err(Failure::retry("not-defined", format!("no node has told `{limit}` to the store yet")).into());
    };
    let from = Instant::now();
    let mut looks = Vec::new();
    while from.elapsed() < watched {
        let begun = from.elapsed();
        let rows = store.buckets(limit, Kind::of(config, limit), KEYS_MAX).await?;
        let issued_u = rows.iter().map(|row| (row.key.0, row.issued_u)).collect();
        looks.push(Look { begun, ended: from.elapsed(), issued_u });
        tokio::time::sleep(every).await;
    }
    Ok((rule, looks))
}

/// Of each key the window that comes nearest to what is allowed, or goes beyond it. Longest possible times count: the
/// first look may have seen the store early, the second late.
fn worst(rule: Rule, looks: &[Look]) -> Vec<Worst> {
    let mut all: Vec<Worst> = Vec::new();
    let issued =
        |look: &Look, key: u128| look.issued_u.iter().find(|(of, _)| *of == key).map_or(0, |(_, issued)| *issued);
    let Some(last) = looks.last() else { return all };
    for (key, _) in &last.issued_u {
        let mut found: Option<Worst> = None;
        for (at, first) in looks.iter().enumerate() {
            for second in &looks[at + 1..] {
                let given = issued(second, *key).saturating_sub(issued(first, *key)) / MICRO;
                let window = second.ended.saturating_sub(first.begun);
                let allowed = allowed(rule, window);
                #[expect(clippy::cast_precision_loss, reason = "for people")]
                let share = given as f64 / allowed.max(1) as f64;
                if given > 0 && found.as_ref().is_none_or(|worst| share > worst.share) {
                    let window_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
                    let key = honeyflow_hive::contract::limit::Key(*key).to_string();
                    found = Some(Worst { key, window_ms, issued: given, allowed, share });
                }
            }
        }
        all.extend(found);
    }
    worst_first(all)
}

/// Of each key the most that all nodes held at once, at any look: a window of no length.
fn most_held(rule: Rule, looks: &[Look]) -> Vec<Worst> {
    let mut most: BTreeMap<u128, u64> = BTreeMap::new();
    for (key, held_u) in looks.iter().flat_map(|look| &look.issued_u) {
        let held = most.entry(*key).or_default();
        *held = (held_u / MICRO).max(*held);
    }
    let allowed = burst(rule);
    let rows = most.into_iter().filter(|(_, held)| *held > 0).map(|(key, issued)| {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let share = issued as f64 / allowed.max(1) as f64;
        let key = honeyflow_hive::contract::limit::Key(key).to_string();
        Worst { key, window_ms: 0, issued, allowed, share }
    });
    worst_first(rows.collect())
}

fn worst_first(mut all: Vec<Worst>) -> Vec<Worst> {
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

    fn look(at_ms: u64, issued: u64) -> Look {
        let at = Duration::from_millis(at_ms);
        Look { begun: at, ended: at, issued_u: vec![(7, issued * MICRO)] }
    }

    /// HV-77
    #[test]
    fn hv_77_the_worst_window_is_found_among_all() {
        let rule = Rule::rate(100, 1000, 20);
        let calm = [look(0, 0), look(1000, 50), look(2000, 90)];
        let found = worst(rule, &calm);
        assert_eq!((found[0].window_ms, found[0].issued, found[0].allowed), (1000, 50, 120));
        let burst = [look(0, 0), look(1000, 50), look(1100, 85), look(2000, 90)];
        let found = worst(rule, &burst);
        assert_eq!((found[0].window_ms, found[0].issued, found[0].allowed), (100, 35, 30), "too many at once");
        assert_eq!(worst(rule, &[]), []);
    }

    /// HV-68, HV-77
    #[test]
    fn hv_77_of_so_many_at_once_the_most_that_was_held_is_found() {
        let looks = [look(0, 1), look(100, 4), look(200, 2)];
        let found = most_held(Rule::count(3), &looks);
        assert_eq!((found[0].window_ms, found[0].issued, found[0].allowed), (0, 4, 3), "above the limit, once");
        assert_eq!(most_held(Rule::count(3), &[look(0, 0)]), []);
    }
}

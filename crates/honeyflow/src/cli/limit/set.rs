//! `honeyflow limit set NAME RATE|COUNT`: changes a limit for all nodes at one instant. The new value lasts until the
//! limit is changed in the configuration.

use honeyflow_hive::{
    contract::limit::{self as ledger, Rule},
    limit::{
        Definition, Terms,
        definition::LimitKind,
        rate::Quota,
        service::change::{RESERVED_MS, declared_name},
    },
};
use honeyflow_runtime::Failure;
use serde::Serialize;

use super::stored::{Kind, Store, StoredLimits, in_words, misplaced};
use crate::{
    cli::{Context, Fault, Outcome, block_on, output::age},
    codes,
    config::{Config, units},
};

/// Attempts to change the limit: each time another operator may have changed it first. Five in a row are not expected.
const TRIES: usize = 5;

#[derive(clap::Args)]
pub struct Arguments {
    /// Limit, as in [limit.NAME]
    limit: String,
    /// New rate, such as `500/s`, `1000/min` or `3/h`; for a concurrency limit a number, such as `20`
    rate: String,
    /// Maximum number of permits that may be used at once
    #[arg(long)]
    burst: Option<u64>,
    /// Delay before the change takes effect; less than two heartbeats is raised to two
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    after: String,
}

#[derive(Serialize)]
struct Change {
    limit: String,
    rate: String,
    burst: Option<u64>,
    concurrent: Option<u64>,
    version: u64,
    in_ms: u64,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let after = units::duration(&arguments.after)
        .ok_or_else(|| Fault::usage(format!("`{}` is not a duration", arguments.after), units::DURATION_HELP))?;
    let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(RESERVED_MS);
    let rule = rule(arguments, &config)?;
    let set = block_on(set(&config, &arguments.limit, rule, after_ms))??;
    if context.output.is_json() {
        context.output.object(&set)?;
    } else {
        let Change { limit, rate, burst, version, in_ms, .. } = &set;
        let what = in_words(rate, *burst);
        let text = format!("{limit}: {what}, in {} (version {version})\n", age(*in_ms));
        context.output.print(&text)?;
    }
    Ok(Outcome::Success)
}

/// Parses the rule that was typed. It must be of the kind that the configuration has, because nodes enforce that kind.
fn rule(arguments: &Arguments, config: &Config) -> Result<Rule, Fault> {
    let wrong = |failure: Failure| match failure.message.split_once("; ") {
        Some((wrong, help)) => Fault::usage(wrong, help),
        None => Fault::usage(failure.message.to_string(), "for example 500/s"),
    };
    if Kind::of(config, &arguments.limit) == Kind::Concurrent {
        let message = format!("`{}` is not the kind of limit that `{}` is", arguments.rate, arguments.limit);
        let help =
            "it limits concurrency: pass a whole number and no --burst; change the configuration for another kind";
        let max = arguments.rate.parse().ok().filter(|_| arguments.burst.is_none());
        let max = max.ok_or_else(|| Fault::usage(message, help))?;
        return Ok(Terms::from_definition(&Definition::slots(&arguments.limit, max)).map_err(wrong)?.rule());
    }
    let quota = match (arguments.rate.parse().map_err(wrong)?, arguments.burst) {
        (quota, None) => quota,
        (Quota::Rate { rate, burst: None }, burst) => Quota::Rate { rate, burst },
        _ => {
            return Err(Fault::usage(
                "--burst cannot be used with this rate",
                "give the burst once; a calendar quota has none",
            ));
        }
    };
    let configured = config.limit(&arguments.limit).map(|limit| limit.definition.kind);
    match (configured, quota) {
        (Some(LimitKind::Quota(Quota::Calendar { every, .. })), Quota::Calendar { every: other, .. })
            if every == other => {}
        (Some(LimitKind::Quota(Quota::Calendar { .. })), _) | (_, Quota::Calendar { .. }) => {
            let message = format!("`{}` is not the kind of limit that `{}` is", arguments.rate, arguments.limit);
            return Err(Fault::usage(
                message,
                "a calendar quota can only become a quota of the same period; change the configuration for another kind",
            ));
        }
        _ => {}
    }
    let terms = Terms::from_definition(&Definition::new(&arguments.limit, LimitKind::Quota(quota))).map_err(wrong)?;
    Ok(terms.rule())
}

async fn set(config: &Config, limit: &str, rule: Rule, after_ms: u64) -> Result<Change, Fault> {
    let store = Store::open(config).await?;
    for _ in 0..TRIES {
        let stored = store.read().await?;
        stored.one(config, limit)?;
        declare_first(&store, &stored, config, limit).await?;
        let was = stored.limit(limit).map(|limit| limit.next.unwrap_or(limit.now).version);
        let request = ledger::Request::Set { limit: limit.into(), was, rule, after_ms };
        match store.ask(request).await? {
            ledger::Reply::Set { version, effective_ms } => {
                let in_ms = effective_ms.saturating_sub(stored.hive_ms);
                let kind = Kind::of(config, limit);
                let (burst, concurrent) = kind.split(rule);
                let limit = limit.to_owned();
                return Ok(Change { limit, rate: kind.text(rule), burst, concurrent, version, in_ms });
            }
            ledger::Reply::Pending { effective_ms } => {
                let wait = age(effective_ms.saturating_sub(stored.hive_ms));
                let message =
                    format!("another change of `{limit}` is pending; set it again once that is in force, in {wait}");
                return Err(Failure::retry(codes::CHANGE_PENDING, message).into());
            }
            ledger::Reply::Raced => {}
            other => return Err(misplaced(&other).into()),
        }
    }
    Err(Failure::retry(codes::RACED, format!("other operators keep changing `{limit}`; try again")).into())
}

/// Stores the configured rule first, if no node has done so yet. Otherwise the first node to start would overwrite the
/// rule that is set here.
async fn declare_first(store: &Store, stored: &StoredLimits, config: &Config, limit: &str) -> Result<(), Fault> {
    let Some(configured) = config.limit(limit).filter(|_| stored.declared(limit).is_none()) else { return Ok(()) };
    let rule = Terms::from_definition(&configured.definition)?.rule();
    store.ask(ledger::Request::Set { limit: declared_name(limit), was: None, rule, after_ms: 0 }).await?;
    Ok(())
}

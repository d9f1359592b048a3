//! `honeyflow limit set NAME RATE|COUNT`: another limit for all nodes, from an instant on. It lasts until what the
//! configuration says changes.

use honeyflow_hive::{
    contract::limit::{self as ledger, Rule},
    limit::{
        Definition, Terms,
        definition::What,
        rate::Quota,
        service::change::{BOOKED_MS, told_name},
    },
};
use honeyflow_runtime::Failure;
use serde::Serialize;

use super::stored::{Kind, Store, Stored, in_words, misplaced};
use crate::{
    cli::{Context, Done, Fault, block_on, output::age},
    config::{Config, units},
};

/// Another one may be quicker; nobody is that often.
const TRIES: usize = 5;

#[derive(clap::Args)]
pub struct Arguments {
    /// The limit, as in [limit.NAME]
    limit: String,
    /// What it is to be: `500/s`, `1000/min`, `3/h`; of a limit on how many at once, so many: `20`
    rate: String,
    /// So many may come at once
    #[arg(long)]
    burst: Option<u64>,
    /// When: not before two heartbeats have gone round
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    after: String,
}

#[derive(Serialize)]
struct Set {
    limit: String,
    rate: String,
    burst: Option<u64>,
    concurrent: Option<u64>,
    version: u64,
    in_ms: u64,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    let after = units::duration(&arguments.after)
        .ok_or_else(|| Fault::usage(format!("`{}` is not a duration", arguments.after), units::DURATION_HELP))?;
    let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(BOOKED_MS);
    let rule = rule(arguments, &config)?;
    let set = block_on(set(&config, &arguments.limit, rule, after_ms))??;
    if context.output.is_json() {
        context.output.object(&set)?;
    } else {
        let Set { limit, rate, burst, version, in_ms, .. } = &set;
        let what = in_words(rate, *burst);
        let text = format!("{limit}: {what}, in {} (version {version})\n", age(*in_ms));
        context.output.print(&text)?;
    }
    Ok(Done::Well)
}

/// As it was typed; of the kind that the configuration has, for nodes decide by that.
fn rule(arguments: &Arguments, config: &Config) -> Result<Rule, Fault> {
    let wrong = |failure: Failure| match failure.message.split_once("; ") {
        Some((wrong, help)) => Fault::usage(wrong, help),
        None => Fault::usage(failure.message.to_string(), "for example 500/s"),
    };
    if Kind::of(config, &arguments.limit) == Kind::Concurrent {
        let message = format!("`{}` is not the kind of limit that `{}` is", arguments.rate, arguments.limit);
        let help =
            "it says how many at once: a whole number, without a burst; change the configuration for another kind";
        let max = arguments.rate.parse().ok().filter(|_| arguments.burst.is_none());
        let max = max.ok_or_else(|| Fault::usage(message, help))?;
        return Ok(Terms::of(&Definition::slots(&arguments.limit, max)).map_err(wrong)?.rule());
    }
    let quota = match (arguments.rate.parse().map_err(wrong)?, arguments.burst) {
        (quota, None) => quota,
        (Quota::Rate { rate, burst: None }, burst) => Quota::Rate { rate, burst },
        _ => return Err(Fault::usage("the burst has no place here", "write it once; calendar quotas have none")),
    };
    let configured = config.limit(&arguments.limit).map(|limit| limit.definition.what);
    match (configured, quota) {
        (Some(What::Quota(Quota::Calendar { every, .. })), Quota::Calendar { every: other, .. }) if every == other => {}
        (Some(What::Quota(Quota::Calendar { .. })), _) | (_, Quota::Calendar { .. }) => {
            let message = format!("`{}` is not the kind of limit that `{}` is", arguments.rate, arguments.limit);
            return Err(Fault::usage(message, "a calendar quota stays one; change the configuration for another kind"));
        }
        _ => {}
    }
    let terms = Terms::of(&Definition::new(&arguments.limit, What::Quota(quota))).map_err(wrong)?;
    Ok(terms.rule())
}

async fn set(config: &Config, limit: &str, rule: Rule, after_ms: u64) -> Result<Set, Fault> {
    let store = Store::open(config).await?;
    for _ in 0..TRIES {
        let stored = store.read().await?;
        stored.one(config, limit)?;
        tell_first(&store, &stored, config, limit).await?;
        let was = stored.limit(limit).map(|limit| limit.next.unwrap_or(limit.now).version);
        let request = ledger::Request::Set { limit: limit.into(), was, rule, after_ms };
        match store.ask(request).await? {
            ledger::Reply::Set { version, effective_ms } => {
                let in_ms = effective_ms.saturating_sub(stored.hive_ms);
                let kind = Kind::of(config, limit);
                let (burst, concurrent) = kind.split(rule);
                let limit = limit.to_owned();
                return Ok(Set { limit, rate: kind.text(rule), burst, concurrent, version, in_ms });
            }
            ledger::Reply::Pending { effective_ms } => {
                let wait = age(effective_ms.saturating_sub(stored.hive_ms));
                let message =
                    format!("another change of `{limit}` is on its way; set it again once that is in force, in {wait}");
                return Err(Failure::retry("change-pending", message).into());
            }
            ledger::Reply::Raced => {}
            other => return Err(misplaced(&other).into()),
        }
    }
    Err(Failure::retry("raced", format!("`{limit}` is being changed by others all the time; try again")).into())
}

/// A limit that no node has told yet would be told over what is set here.
async fn tell_first(store: &Store, stored: &Stored, config: &Config, limit: &str) -> Result<(), Fault> {
    let Some(configured) = config.limit(limit).filter(|_| stored.told(limit).is_none()) else { return Ok(()) };
    let rule = Terms::of(&configured.definition)?.rule();
    store.ask(ledger::Request::Set { limit: told_name(limit), was: None, rule, after_ms: 0 }).await?;
    Ok(())
}

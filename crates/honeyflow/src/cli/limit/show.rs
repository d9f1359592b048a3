//! `honeyflow limit show NAME`: what is in force, and the keys that were given most.

use honeyflow_hive::{
    contract::limit::{BucketRow, MICRO},
    limit::keys::{OVERFLOW, WHOLE, hash, of_slots},
};
use serde::Serialize;

use super::stored::{Kind, Known, Store, in_words};
use crate::cli::{Context, Done, Fault, block_on, output::age};

/// Keys are shown here and nowhere else.
const KEYS: usize = 20;
const KEYS_MAX: u32 = 100_000;

#[derive(clap::Args)]
pub struct Arguments {
    /// The limit, as in [limit.NAME]
    limit: String,
    /// Only what was given to this key; the store knows keys by their hash alone
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    known: Known,
    buckets: Vec<Bucket>,
}

#[derive(Serialize)]
struct Bucket {
    key: String,
    /// As of its last change: what has flowed back since is not in it.
    left: f64,
    unchanged_ms: u64,
    /// Ever; of slots, those that are held.
    issued: u64,
    /// Of the present second, by all nodes; the others draw from the pool.
    booked: u64,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    let Arguments { limit, key } = arguments;
    let kind = Kind::of(&config, limit);
    let (stored, rows) = block_on(async {
        let store = Store::open(&config).await?;
        Ok::<_, honeyflow_runtime::Failure>((store.read().await?, store.buckets(limit, kind, KEYS_MAX).await?))
    })??;
    let known = stored.one(&config, limit)?;
    let stored_as = |key: u128| if kind == Kind::Concurrent { of_slots(key) } else { key };
    let wanted = key.as_deref().map(|key| stored_as(hash(key)));
    let rows = rows.iter().filter(|row| wanted.is_none_or(|wanted| row.key.0 == wanted)).take(KEYS);
    let buckets: Vec<Bucket> = rows.map(|row| bucket(row, stored.hive_ms, known.concurrent)).collect();
    let shown = Shown { known, buckets };
    if context.output.is_json() {
        context.output.object(&shown)?;
        return Ok(Done::Well);
    }
    let Known { rate, burst, version, configured, set, next, .. } = &shown.known;
    let mut text = match (rate, version) {
        (Some(rate), Some(version)) => format!("{limit}: {} (version {version})\n", in_words(rate, *burst)),
        _ => format!("{limit}: no node has told it to the store yet\n"),
    };
    if let Some(next) = next {
        text += &format!("next: {}, in {}\n", in_words(&next.rate, next.burst), age(next.in_ms));
    }
    match configured {
        Some(configured) if *set => text += &format!("set by somebody; the configuration says {configured}\n"),
        Some(_) => text += "as the configuration says\n",
        None => text += "not in this configuration\n",
    }
    context.output.print(&text)?;
    if kind == Kind::Concurrent {
        context.output.rows(["key", "held", "free"], &shown.buckets, |row| {
            [row.key.clone(), row.issued.to_string(), format!("{:.0}", row.left)]
        })?;
        return Ok(Done::Well);
    }
    context.output.rows(["key", "issued", "left", "booked", "unchanged for"], &shown.buckets, |row| {
        let booked = if row.booked > 0 { format!("{}/s", row.booked) } else { "-".to_owned() };
        [row.key.clone(), row.issued.to_string(), format!("{:.0}", row.left), booked, age(row.unchanged_ms)]
    })?;
    Ok(Done::Well)
}

fn bucket(row: &BucketRow, hive_ms: u64, concurrent: Option<u64>) -> Bucket {
    let is = |key: u128| row.key.0 == key || row.key.0 == of_slots(key);
    let key = match row {
        _ if is(WHOLE) => "(the limit as a whole)".to_owned(),
        _ if is(OVERFLOW) => "(keys that found no room)".to_owned(),
        row => row.key.to_string(),
    };
    let (issued, booked) = (row.issued_u / MICRO, row.booked_u / MICRO);
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let left = concurrent.map_or(row.pool_u as f64 / MICRO as f64, |max| max.saturating_sub(issued) as f64);
    Bucket { key, left, unchanged_ms: hive_ms.saturating_sub(row.pool_ms), issued, booked }
}

//! `honeyflow limit show NAME`: the rule in force, and the keys that were issued most.

use honeyflow_hive::{
    contract::limit::{BucketRow, MICRO},
    limit::keys::{OVERFLOW, WHOLE, hash, slots_key},
};
use serde::Serialize;

use super::stored::{Kind, LimitStatus, Store, in_words};
use crate::cli::{Context, Fault, Outcome, block_on, output::age};

/// Number of keys shown. Keys appear in this command only, never in metrics.
const KEYS: usize = 20;
const KEYS_MAX: u32 = 100_000;

#[derive(clap::Args)]
pub struct Arguments {
    /// Limit, as in [limit.NAME]
    limit: String,
    /// Show only this key; the store knows keys only by their hash
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
}

#[derive(Serialize)]
struct Details {
    #[serde(flatten)]
    status: LimitStatus,
    buckets: Vec<Bucket>,
}

#[derive(Serialize)]
struct Bucket {
    key: String,
    /// Permits left at the bucket's last change, without those refilled since then.
    left: f64,
    unchanged_ms: u64,
    /// Permits issued in total; for slots, the number held now.
    issued: u64,
    /// Permits of the current second that nodes have reserved; other nodes draw from the pool.
    booked: u64,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let Arguments { limit, key } = arguments;
    let kind = Kind::of(&config, limit);
    let (stored, rows) = block_on(async {
        let store = Store::open(&config).await?;
        Ok::<_, honeyflow_runtime::Failure>((store.read().await?, store.buckets(limit, kind, KEYS_MAX).await?))
    })??;
    let status = stored.one(&config, limit)?;
    let stored_as = |key: u128| if kind == Kind::Concurrent { slots_key(key) } else { key };
    let wanted = key.as_deref().map(|key| stored_as(hash(key)));
    let rows = rows.iter().filter(|row| wanted.is_none_or(|wanted| row.key.0 == wanted)).take(KEYS);
    let buckets: Vec<Bucket> = rows.map(|row| bucket(row, stored.hive_ms, status.concurrent)).collect();
    let details = Details { status, buckets };
    if context.output.is_json() {
        context.output.object(&details)?;
        return Ok(Outcome::Success);
    }
    let LimitStatus { rate, burst, version, configured, set, next, .. } = &details.status;
    let mut text = match (rate, version) {
        (Some(rate), Some(version)) => format!("{limit}: {} (version {version})\n", in_words(rate, *burst)),
        _ => format!("{limit}: not in the store yet: no node has started with it\n"),
    };
    if let Some(next) = next {
        text += &format!("next: {}, in {}\n", in_words(&next.rate, next.burst), age(next.in_ms));
    }
    match configured {
        Some(configured) if *set => {
            text += &format!("set with `honeyflow limit set`; the configuration says {configured}\n");
        }
        Some(_) => text += "as configured\n",
        None => text += "not in this configuration\n",
    }
    context.output.print(&text)?;
    if kind == Kind::Concurrent {
        context.output.rows(["key", "held", "free"], &details.buckets, |row| {
            [row.key.clone(), row.issued.to_string(), format!("{:.0}", row.left)]
        })?;
        return Ok(Outcome::Success);
    }
    context.output.rows(["key", "issued", "left", "reserved", "unchanged for"], &details.buckets, |row| {
        let reserved = if row.booked > 0 { format!("{}/s", row.booked) } else { "-".to_owned() };
        [row.key.clone(), row.issued.to_string(), format!("{:.0}", row.left), reserved, age(row.unchanged_ms)]
    })?;
    Ok(Outcome::Success)
}

fn bucket(row: &BucketRow, hive_ms: u64, concurrent: Option<u64>) -> Bucket {
    let is = |key: u128| row.key.0 == key || row.key.0 == slots_key(key);
    let key = match row {
        _ if is(WHOLE) => "(the limit as a whole)".to_owned(),
        _ if is(OVERFLOW) => "(keys beyond max-keys)".to_owned(),
        row => row.key.to_string(),
    };
    let (issued, booked) = (row.issued_u / MICRO, row.booked_u / MICRO);
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let left = concurrent.map_or(row.pool_u as f64 / MICRO as f64, |max| max.saturating_sub(issued) as f64);
    Bucket { key, left, unchanged_ms: hive_ms.saturating_sub(row.pool_ms), issued, booked }
}

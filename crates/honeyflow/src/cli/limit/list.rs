//! `honeyflow limit list`

use honeyflow_hive::contract::limit::MICRO;
use honeyflow_runtime::Failure;
use serde::Serialize;

use super::stored::{Kind, Known, Store, in_words};
use crate::{
    cli::{Context, Done, Fault, block_on, output::age},
    config::Config,
};

/// Among which the one is sought of which most is held; a limit that was a rate has others, too.
const KEYS_MAX: u32 = 1_000;

#[derive(clap::Args)]
pub struct Arguments {}

#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    known: Known,
    /// Of a limit on how many at once: what all nodes hold of it, for the key that has most.
    held: Option<u64>,
}

pub fn run(_: &Arguments, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    let listed = block_on(listed(&config))??;
    let none = || "–".to_owned();
    context.output.rows(["limit", "rate", "burst", "held", "version", "by", "next"], &listed, |listed| {
        let row = &listed.known;
        let by = match (&row.rate, row.set) {
            (None, _) => "not started yet",
            (Some(_), true) => "set",
            (Some(_), false) => "told",
        };
        let next = |next: &super::stored::Next| format!("{} in {}", in_words(&next.rate, next.burst), age(next.in_ms));
        [
            row.limit.clone(),
            row.rate.clone().or(row.configured.clone()).unwrap_or_else(none),
            row.burst.map_or_else(none, |burst| burst.to_string()),
            listed.held.zip(row.concurrent).map_or_else(none, |(held, max)| format!("{held} of {max}")),
            row.version.map_or_else(none, |version| version.to_string()),
            by.to_owned(),
            row.next.as_ref().map_or_else(none, next),
        ]
    })?;
    Ok(Done::Well)
}

async fn listed(config: &Config) -> Result<Vec<Listed>, Failure> {
    let store = Store::open(config).await?;
    let mut all = Vec::new();
    for known in store.read().await?.all(config) {
        let held = match Kind::of(config, &known.limit) {
            Kind::Concurrent => {
                let rows = store.buckets(&known.limit, Kind::Concurrent, KEYS_MAX).await?;
                Some(rows.first().map_or(0, |row| row.issued_u / MICRO))
            }
            Kind::Rate => None,
        };
        all.push(Listed { known, held });
    }
    Ok(all)
}

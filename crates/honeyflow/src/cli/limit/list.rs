//! `honeyflow limit list`: lists the limits with the rule in force and the next change.

use honeyflow_hive::contract::limit::MICRO;
use honeyflow_runtime::Failure;
use serde::Serialize;

use super::stored::{Kind, LimitStatus, Store, in_words};
use crate::{
    cli::{Context, Fault, Outcome, block_on, output::age},
    config::Config,
};

/// Buckets read to find the key that holds most. A limit that was a rate before also has buckets of that kind.
const KEYS_MAX: u32 = 1_000;

#[derive(clap::Args)]
pub struct Arguments {}

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    status: LimitStatus,
    /// For a concurrency limit: how many slots all nodes hold, for the key that holds most.
    held: Option<u64>,
}

pub fn run(_: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let rows = block_on(read_rows(&config))??;
    let none = || "–".to_owned();
    context.output.rows(["limit", "rate", "burst", "held", "version", "origin", "next"], &rows, |row| {
        let (held, row) = (row.held, &row.status);
        let origin = match (&row.rate, row.set) {
            (None, _) => "not started yet",
            (Some(_), true) => "set",
            (Some(_), false) => "configured",
        };
        let next = |next: &super::stored::PendingChange| {
            format!("{} in {}", in_words(&next.rate, next.burst), age(next.in_ms))
        };
        [
            row.limit.clone(),
            row.rate.clone().or(row.configured.clone()).unwrap_or_else(none),
            row.burst.map_or_else(none, |burst| burst.to_string()),
            held.zip(row.concurrent).map_or_else(none, |(held, max)| format!("{held} of {max}")),
            row.version.map_or_else(none, |version| version.to_string()),
            origin.to_owned(),
            row.next.as_ref().map_or_else(none, next),
        ]
    })?;
    Ok(Outcome::Success)
}

async fn read_rows(config: &Config) -> Result<Vec<Row>, Failure> {
    let store = Store::open(config).await?;
    let mut all = Vec::new();
    for status in store.read().await?.all(config) {
        let held = match Kind::of(config, &status.limit) {
            Kind::Concurrent => {
                let rows = store.buckets(&status.limit, Kind::Concurrent, KEYS_MAX).await?;
                Some(rows.first().map_or(0, |row| row.issued_u / MICRO))
            }
            Kind::Rate => None,
        };
        all.push(Row { status, held });
    }
    Ok(all)
}

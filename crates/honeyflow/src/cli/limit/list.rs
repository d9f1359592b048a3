//! `honeyflow limit list`

use super::stored::Store;
use crate::cli::{Context, Done, Fault, block_on, output::age};

#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_: &Arguments, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    let stored = block_on(async { Store::open(&config).await?.read().await })??;
    let none = || "–".to_owned();
    context.output.rows(["limit", "rate", "burst", "version", "by", "next"], &stored.all(&config), |row| {
        let by = match (&row.rate, row.set) {
            (None, _) => "not started yet",
            (Some(_), true) => "set",
            (Some(_), false) => "told",
        };
        let next = |next: &super::stored::Next| format!("{} burst {} in {}", next.rate, next.burst, age(next.in_ms));
        [
            row.limit.clone(),
            row.rate.clone().or(row.configured.clone()).unwrap_or_else(none),
            row.burst.map_or_else(none, |burst| burst.to_string()),
            row.version.map_or_else(none, |version| version.to_string()),
            by.to_owned(),
            row.next.as_ref().map_or_else(none, next),
        ]
    })?;
    Ok(Done::Well)
}

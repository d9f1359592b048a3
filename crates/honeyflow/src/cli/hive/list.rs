//! `honeyflow hive list`: lists the nodes with their state, leases and roles.

use honeyflow_hive::{contract::View, roster};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{OpenHive, open_all, shown};
use crate::cli::{Context, Fault, Outcome, block_on, output};

#[derive(clap::Args)]
pub struct Arguments {}

#[derive(Serialize)]
pub(super) struct Row {
    pub name: String,
    pub id: String,
    pub state: roster::State,
    pub ready: bool,
    pub queen: bool,
    pub shards: usize,
    pub leases: Vec<String>,
    pub beat_age_ms: u64,
    pub hive: String,
    pub meta: Map<String, Value>,
}

pub fn run(_: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let rows = block_on(async { rows(&open_all(&config).await?).await })??;
    print(&rows, context)?;
    if rows.is_empty() && !context.output.is_json() {
        context.output.note("no node is running, and none has left recently");
    }
    Ok(Outcome::Success)
}

/// The nodes of all hives. A process that is a member of several hives has one row for each.
pub(super) async fn rows(hives: &[OpenHive]) -> Result<Vec<Row>, honeyflow_runtime::Failure> {
    let mut rows = Vec::new();
    for opened in hives {
        rows.extend(rows_of(&opened.view().await?, &shown(opened)));
    }
    Ok(rows)
}

pub(super) fn rows_of(view: &View, hive: &str) -> Vec<Row> {
    let row = |entry: roster::Entry| Row {
        id: entry.id.to_string(),
        state: entry.state,
        ready: entry.ready,
        queen: entry.queen,
        shards: entry.shards,
        leases: entry.leases,
        beat_age_ms: entry.beat_age_ms,
        hive: hive.to_owned(),
        meta: entry.meta,
        name: entry.name,
    };
    roster::of(view).into_iter().map(row).collect()
}

pub(super) fn print(rows: &[Row], context: &Context) -> Result<(), Fault> {
    let several = rows.iter().any(|row| row.hive != rows[0].hive);
    let text = |row: &Row, key: &str| row.meta.get(key).and_then(Value::as_str).unwrap_or("–").to_owned();
    let cells = |row: &Row| {
        let roles = row.meta.get("roles").and_then(Value::as_array).into_iter().flatten();
        let roles: Vec<&str> = roles.filter_map(Value::as_str).collect();
        let queen = if row.queen { "queen" } else { "" };
        [
            row.name.clone(),
            row.id.get(..8).unwrap_or(&row.id).to_owned(),
            row.state.word().to_owned(),
            queen.to_owned(),
            row.shards.to_string(),
            format!("{} ago", output::age(row.beat_age_ms)),
            text(row, "address"),
            roles.join(","),
            text(row, "version"),
            if several { row.hive.clone() } else { String::new() },
        ]
    };
    let last = if several { "hive" } else { "" };
    let header = ["node", "id", "state", "", "shards", "heartbeat", "address", "roles", "version", last];
    context.output.rows(header, rows, cells)
}

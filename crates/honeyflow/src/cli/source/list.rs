//! `honeyflow source list`: lists the sources with their state and the number of waiting and parked events.

use honeyflow_store::{Admin, AdminReply};
use serde::Serialize;

use crate::{
    cli::{Context, Fault, Outcome, block_on, open},
    node::delete_guard,
};

#[derive(clap::Args)]
pub struct Arguments {}

#[derive(Serialize)]
struct Row {
    source: String,
    url: String,
    entities: usize,
    state: String,
    waiting: Option<u64>,
    parked: Option<u64>,
}

/// Lists all sources. A source that cannot be reached is listed with the reason.
pub fn run(_: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let mut rows = Vec::new();
    for source in &config.sources {
        let mut row = Row {
            source: source.name.to_string(),
            url: source.url.to_string(),
            entities: config.entities_of(&source.name).count(),
            state: "installed".into(),
            waiting: None,
            parked: None,
        };
        let found = block_on(async {
            let database = open(&config, source).await?;
            if database.installed().await?.is_none() {
                return Ok(None);
            }
            let held = delete_guard::held_entities(&database.store).await?;
            database.admin(Admin::Lag).await.map(|lag| Some((lag, held)))
        })?;
        match found {
            Ok(Some((AdminReply::Lag(lag), held))) => {
                (row.waiting, row.parked) = (Some(lag.waiting), Some(lag.parked));
                if !held.is_empty() {
                    row.state = format!("held: {}; honeyflow source confirm", held.join(", "));
                }
            }
            Ok(_) => row.state = "not installed".into(),
            Err(failure) => row.state = failure.message,
        }
        rows.push(row);
    }
    let number = |count: Option<u64>| count.map_or_else(|| "–".to_owned(), |count| count.to_string());
    context.output.rows(["source", "url", "entities", "state", "waiting", "parked"], &rows, |row| {
        [
            row.source.clone(),
            row.url.clone(),
            row.entities.to_string(),
            row.state.clone(),
            number(row.waiting),
            number(row.parked),
        ]
    })?;
    Ok(Outcome::Success)
}

//! `honeyflow status`: shows the events that wait in each source. It reads the databases themselves, so that it also
//! works while no node runs.

use honeyflow_store::{Admin, AdminReply, admin::Lag};
use serde::Serialize;

use super::{Context, Fault, Outcome, block_on, open, output::age, unexpected};

#[derive(clap::Args)]
pub struct Arguments {}

#[derive(Serialize)]
struct Row {
    source: String,
    #[serde(flatten)]
    lag: Lag,
}

pub fn run(_: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let mut rows = Vec::new();
    for source in &config.sources {
        let lag = block_on(async {
            match open(&config, source).await?.admin(Admin::Lag).await? {
                AdminReply::Lag(lag) => Ok(lag),
                other => Err(unexpected(&other)),
            }
        })??;
        rows.push(Row { source: source.name.to_string(), lag });
    }
    context.output.rows(["source", "waiting", "oldest", "delayed", "parked", "by priority"], &rows, |row| {
        let lag = &row.lag;
        let levels: Vec<String> =
            lag.by_priority.iter().map(|(priority, count)| format!("{priority}: {count}")).collect();
        let oldest = if lag.waiting == 0 { "–".to_owned() } else { age(lag.oldest_ms) };
        [
            row.source.clone(),
            lag.waiting.to_string(),
            oldest,
            lag.delayed.to_string(),
            lag.parked.to_string(),
            levels.join(", "),
        ]
    })?;
    Ok(Outcome::Success)
}

//! `honeyflow workflow list`

use honeyflow_store::{Admin, AdminReply};
use serde::Serialize;

use super::stored;
use crate::cli::{Context, Done, Fault, block_on, open};

#[derive(clap::Args)]
pub struct Arguments {}

#[derive(Serialize)]
struct Row {
    workflow: String,
    /// None: no node has worked by it yet, or its source cannot be asked.
    version: Option<u32>,
    on: Vec<String>,
    steps: Vec<String>,
    /// Why it is paused; none: it is not, or its source cannot be asked.
    paused: Option<String>,
}

pub fn run(_: &Arguments, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    let mut paused = Vec::new();
    for source in &config.sources {
        // the list is worth having without the database, too
        let asked = block_on(async { open(&config, source).await?.admin(Admin::Paused).await })?;
        if let Ok(AdminReply::Paused(found)) = asked {
            paused.extend(found.into_iter().filter(|pause| pause.noun == "workflow"));
        }
    }
    let rows: Vec<Row> = config
        .workflows
        .iter()
        .map(|workflow| Row {
            workflow: workflow.name.to_string(),
            version: block_on(stored::versions(&config, &workflow.name))
                .ok()
                .and_then(|found| stored::version_of(workflow, &found.ok()?)),
            on: workflow.on.iter().map(|on| format!("{}.{}", on.source, on.entity)).collect(),
            steps: workflow.steps.iter().map(|step| step.name.to_string()).collect(),
            paused: paused.iter().find(|pause| *pause.name == *workflow.name).map(|pause| pause.why.clone()),
        })
        .collect();
    let none = || "–".to_owned();
    context.output.rows(["workflow", "version", "on", "steps", "paused"], &rows, |row| {
        let version = row.version.map_or_else(none, |version| version.to_string());
        let paused = row.paused.clone().unwrap_or_else(none);
        [row.workflow.clone(), version, row.on.join(", "), row.steps.join(", "), paused]
    })?;
    Ok(Done::Well)
}

//! `honeyflow workflow list`: lists the workflows with version, entities, steps and pauses.

use honeyflow_store::{Admin, AdminReply};
use serde::Serialize;

use super::stored;
use crate::cli::{Context, Fault, Outcome, block_on, open};

#[derive(clap::Args)]
pub struct Arguments {}

#[derive(Serialize)]
struct Row {
    workflow: String,
    /// None if no node has used this definition yet, or its source cannot be read.
    version: Option<u32>,
    on: Vec<String>,
    steps: Vec<String>,
    /// Why the workflow is paused; none if it is not paused, or its source cannot be read.
    paused: Option<String>,
}

pub fn run(_: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let mut paused = Vec::new();
    for source in &config.sources {
        // The list is useful even if the database cannot be read.
        let reply = block_on(async { open(&config, source).await?.admin(Admin::Paused).await })?;
        if let Ok(AdminReply::Paused(found)) = reply {
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
    Ok(Outcome::Success)
}

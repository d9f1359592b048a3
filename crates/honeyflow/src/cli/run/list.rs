//! `honeyflow run list`: lists the open runs of the running node, then the last ended runs of each store.

use honeyflow_store::{Admin, AdminReply};
use serde::Serialize;
use serde_json::Value;

use crate::{
    cli::{Context, Fault, Outcome, block_on, node_client, open},
    config::Config,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Maximum number of open runs, and of ended runs of each source
    #[arg(long, short = 'n', default_value = "20")]
    limit: u32,
}

#[derive(Serialize)]
struct Row {
    state: String,
    workflow: String,
    entity: String,
    key: String,
    detail: String,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let mut rows = open_runs(&config, &format!("/v1/runs?limit={}", arguments.limit))?;
    for source in &config.sources {
        let database = block_on(open(&config, source))??;
        if block_on(database.installed())??.is_none() {
            continue;
        }
        let history = block_on(database.admin(Admin::History { limit: arguments.limit }))??;
        if let AdminReply::History(ended) = history {
            rows.extend(ended.iter().map(ended_run));
        }
    }
    context.output.rows(["state", "workflow", "entity", "key", "detail"], &rows, |row| {
        [row.state.clone(), row.workflow.clone(), row.entity.clone(), row.key.clone(), row.detail.clone()]
    })?;
    Ok(Outcome::Success)
}

fn open_runs(config: &Config, path: &str) -> Result<Vec<Row>, Fault> {
    let answer = node_client::get(config, path)?.unwrap_or_default();
    let runs = answer["runs"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |run: &Value| Row {
        state: "open".to_owned(),
        workflow: text(&run["workflow"]),
        entity: text(&run["entity"]),
        key: text(&run["key"]),
        detail: format!("{} for {} ms", text(&run["waits_for"]), run["open_ms"]),
    };
    Ok(runs.iter().map(row).collect())
}

fn ended_run(run: &Value) -> Row {
    let text = |name: &str| run[name].as_str().unwrap_or_default().to_owned();
    let first = run.pointer("/steps").and_then(Value::as_array).and_then(|steps| {
        steps.iter().find_map(|step| {
            let message = step.pointer("/errors/0/failure/message")?.as_str()?;
            Some(format!("{}: {message}", step["step"].as_str()?))
        })
    });
    Row {
        state: text("verdict"),
        workflow: text("workflow"),
        entity: text("entity"),
        key: text("key"),
        detail: first.unwrap_or_default(),
    }
}

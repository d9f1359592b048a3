//! `honeyflow run list`

use honeyflow_store::{Admin, AdminReply};
use serde::Serialize;
use serde_json::Value;

use crate::{
    cli::{Context, Done, Fault, ask, block_on, open},
    config::Config,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Runs to show
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

pub fn run(arguments: &Arguments, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    let mut rows = open_runs(&config, &format!("/v1/runs?limit={}", arguments.limit))?;
    for source in &config.sources {
        let database = block_on(open(&config, source))??;
        if block_on(database.installed())??.is_none() {
            continue;
        }
        let asked = block_on(database.admin(Admin::History { limit: arguments.limit }))??;
        if let AdminReply::History(ended) = asked {
            rows.extend(ended.iter().map(ended_run));
        }
    }
    context.output.rows(["state", "workflow", "entity", "key", "detail"], &rows, |row| {
        [row.state.clone(), row.workflow.clone(), row.entity.clone(), row.key.clone(), row.detail.clone()]
    })?;
    Ok(Done::Well)
}

fn open_runs(config: &Config, path: &str) -> Result<Vec<Row>, Fault> {
    let answer = ask::node(config, path)?.unwrap_or_default();
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

//! `honeyflow worker list`: lists the workers of the running node, their current work and their free capacity.

use serde::Serialize;
use serde_json::Value;

use super::{Context, Fault, Outcome, node_client};

#[derive(clap::Subcommand)]
pub enum Verb {
    /// List the workers of the running node with their current work and free capacity
    List,
}

#[derive(Serialize)]
struct Row {
    worker: String,
    batches: u64,
    items: u64,
    room: String,
}

pub fn run(verb: &Verb, context: &Context) -> Result<Outcome, Fault> {
    let Verb::List = verb;
    let config = context.config()?;
    let Some(status) = node_client::get(&config, "/v1/status")? else {
        context.output.note("no node runs on this data folder: there are no workers");
        return Ok(Outcome::Negative);
    };
    let workers = status.pointer("/engine/workers").and_then(Value::as_array).cloned().unwrap_or_default();
    let rows: Vec<Row> = workers.iter().map(row).collect();
    context.output.rows(["worker", "batches", "items", "room"], &rows, |row| {
        [row.worker.clone(), row.batches.to_string(), row.items.to_string(), row.room.clone()]
    })?;
    Ok(Outcome::Success)
}

fn row(worker: &Value) -> Row {
    let room = worker["room"].as_array().into_iter().flatten();
    let room = room.filter_map(|pair| Some(format!("{} {}", pair[0].as_str()?, pair[1].as_u64()?)));
    Row {
        worker: if worker["id"] == 0 { "in the node".to_owned() } else { worker["id"].to_string() },
        batches: worker["batches"].as_u64().unwrap_or(0),
        items: worker["items"].as_u64().unwrap_or(0),
        room: room.collect::<Vec<_>>().join(", "),
    }
}

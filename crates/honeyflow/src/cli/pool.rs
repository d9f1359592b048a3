//! `honeyflow pool …`: the connection pools of the running node. Their state is in no table, so the commands ask the
//! node itself.

mod drain;
mod list;
mod show;

use serde_json::Value;

use super::{Context, Fault, Outcome, no_such, node_client};
use crate::config::Config;

#[derive(clap::Subcommand)]
pub enum Verb {
    /// List the pools of the running node and their connections
    List,
    /// Show one pool with its servers, their state and the counters
    Show(show::Arguments),
    /// Finish the requests in flight and close all connections; sinks of the cluster wait
    Drain(drain::Arguments),
    /// Open the connections of a drained pool again
    Activate(drain::Arguments),
}

pub fn run(verb: &Verb, context: &Context) -> Result<Outcome, Fault> {
    match verb {
        Verb::List => list::run(context),
        Verb::Show(arguments) => show::run(arguments, context),
        Verb::Drain(arguments) => drain::run(arguments, "drain", context),
        Verb::Activate(arguments) => drain::run(arguments, "activate", context),
    }
}

/// The pools of the running node. If no node runs here, prints that and returns none.
fn pools(config: &Config, context: &Context) -> Result<Option<Vec<Value>>, Fault> {
    let Some(mut status) = node_client::get(config, "/v1/status")? else {
        note_no_node(context);
        return Ok(None);
    };
    Ok(Some(status["pools"].as_array_mut().map(std::mem::take).unwrap_or_default()))
}

fn note_no_node(context: &Context) {
    context.output.note("no node runs on this data folder: there are no pools");
}

/// Checks that the configuration has [cassandra.NAME].
fn check_cluster(config: &Config, name: &str) -> Result<(), Fault> {
    match config.cluster(name) {
        Some(_) => Ok(()),
        None => Err(no_such("cassandra", name, config.clusters.iter().map(|cluster| &*cluster.name))),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

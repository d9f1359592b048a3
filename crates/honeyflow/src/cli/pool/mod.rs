//! `honeyflow pool`: what the running node knows of the clusters that its sinks lie in. It stands in no table, so the
//! node itself is asked.

mod list;
mod show;
mod steer;

use serde_json::Value;

use super::{Context, Done, Fault, ask, no_such};
use crate::config::Config;

#[derive(clap::Subcommand)]
pub enum Verb {
    /// Every pool of the running node, with its connections
    List,
    /// One pool: its servers, how they do, what was counted
    Show(show::Arguments),
    /// Let what is under way end and close every connection; sinks of the cluster wait
    Drain(steer::Arguments),
    /// Open connections again
    Activate(steer::Arguments),
}

pub fn run(verb: &Verb, context: &Context) -> Result<Done, Fault> {
    match verb {
        Verb::List => list::run(context),
        Verb::Show(arguments) => show::run(arguments, context),
        Verb::Drain(arguments) => steer::run(arguments, "drain", context),
        Verb::Activate(arguments) => steer::run(arguments, "activate", context),
    }
}

/// None if no node runs here, which has been said.
fn pools(config: &Config, context: &Context) -> Result<Option<Vec<Value>>, Fault> {
    let Some(mut status) = ask::node(config, "/v1/status")? else {
        nobody(context);
        return Ok(None);
    };
    Ok(Some(status["pools"].as_array_mut().map(std::mem::take).unwrap_or_default()))
}

fn nobody(context: &Context) {
    context.output.note("no node runs on this data folder: there are no pools");
}

/// As in [cassandra.NAME].
fn known(config: &Config, name: &str) -> Result<(), Fault> {
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

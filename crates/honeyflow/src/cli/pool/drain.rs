//! `honeyflow pool drain|activate NAME`: sends the command to the running node, which answers when it is done.

use std::time::Duration;

use serde_json::json;

use super::{check_cluster, note_no_node, text};
use crate::cli::{Context, Fault, Outcome, node_client};

/// Added to the time that the drain itself may take.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub struct Arguments {
    /// Cluster, as in [cassandra.NAME]
    name: String,
}

pub fn run(arguments: &Arguments, command: &str, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    check_cluster(&config, &arguments.name)?;
    let drain = config.cluster(&arguments.name).map_or(Duration::ZERO, |cluster| cluster.pool.drain_timeout);
    let wanted = json!({ "pool": arguments.name, "command": command });
    let Some(answer) = node_client::post(&config, "/v1/pools", &wanted, drain + PATIENCE)? else {
        note_no_node(context);
        return Ok(Outcome::Negative);
    };
    if context.output.is_json() {
        context.output.object(&answer)?;
        return Ok(Outcome::Success);
    }
    let (before, now) = (text(&answer["before"]), text(&answer["now"]));
    let moved = if before == now { format!("is already {now}") } else { format!("was {before}, is {now}") };
    let drained = answer["drained"].as_object().filter(|_| before != now).map_or_else(String::new, |drained| {
        let of = |key: &str| drained.get(key).map_or_else(String::new, text);
        format!("; {} finished, {} aborted, {} connections closed", of("finished"), of("aborted"), of("closed"))
    });
    context.output.print(&format!("{} {moved}{drained}\n", arguments.name))?;
    Ok(Outcome::Success)
}

//! `honeyflow pool drain|activate NAME`: told to the running node, which answers when it is done.

use std::time::Duration;

use serde_json::json;

use super::{known, nobody, text};
use crate::cli::{Context, Done, Fault, ask};

/// Beyond what a drain may take by itself.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub struct Arguments {
    /// The cluster, as in [cassandra.NAME]
    name: String,
}

pub fn run(arguments: &Arguments, command: &str, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    known(&config, &arguments.name)?;
    let drain = config.cluster(&arguments.name).map_or(Duration::ZERO, |cluster| cluster.pool.drain_timeout);
    let wanted = json!({ "pool": arguments.name, "command": command });
    let Some(answer) = ask::tell(&config, "/v1/pools", &wanted, drain + PATIENCE)? else {
        nobody(context);
        return Ok(Done::Negative);
    };
    if context.output.is_json() {
        context.output.object(&answer)?;
        return Ok(Done::Well);
    }
    let (before, now) = (text(&answer["before"]), text(&answer["now"]));
    let moved = if before == now { format!("is {now} already") } else { format!("was {before}, is {now}") };
    let drained = answer["drained"].as_object().filter(|_| before != now).map_or_else(String::new, |drained| {
        let of = |key: &str| drained.get(key).map_or_else(String::new, text);
        format!("; {} finished, {} aborted, {} connections closed", of("finished"), of("aborted"), of("closed"))
    });
    context.output.print(&format!("{} {moved}{drained}\n", arguments.name))?;
    Ok(Done::Well)
}

//! `honeyflow pool list`: lists the connection pools of the running node.

use serde_json::Value;

use super::{pools, text};
use crate::cli::{Context, Fault, Outcome};

pub fn run(context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let Some(pools) = pools(&config, context)? else { return Ok(Outcome::Negative) };
    if pools.is_empty() && !context.output.is_json() {
        context.output.note("no sink uses a Cassandra cluster: the node has no pools");
    }
    let header = ["pool", "state", "servers", "up", "open", "wanted", "in use", "waiting", "error"];
    context.output.rows(header, &pools, |pool| {
        let servers = pool["servers"].as_array().map_or(&[][..], Vec::as_slice);
        let up = servers.iter().filter(|server| server["state"] == "up").count();
        let waiting: u64 =
            pool["waiting"].as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum();
        [
            text(&pool["name"]),
            text(&pool["state"]),
            servers.len().to_string(),
            up.to_string(),
            text(&pool["open"]),
            text(&pool["wanted"]),
            text(&pool["lent"]),
            waiting.to_string(),
            error(pool),
        ]
    })?;
    Ok(Outcome::Success)
}

/// The most important error of the pool.
fn error(pool: &Value) -> String {
    let servers = pool["servers"].as_array().into_iter().flatten().filter(|server| server["state"] != "up");
    let of_servers = servers.map(|server| &server["last_error"]);
    let own = [&pool["broken_by"], &pool["settings_error"]];
    let found = own.into_iter().chain(of_servers).chain([&pool["discovery_error"]]).find_map(Value::as_str);
    found.unwrap_or_default().to_owned()
}

//! `honeyflow pool show NAME`: shows one pool of the running node with its servers.

use super::{check_cluster, pools, text};
use crate::cli::{Context, Fault, Outcome, output::brief};

#[derive(clap::Args)]
pub struct Arguments {
    /// Cluster, as in [cassandra.NAME]
    name: String,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    check_cluster(&config, &arguments.name)?;
    let Some(pools) = pools(&config, context)? else { return Ok(Outcome::Negative) };
    let Some(pool) = pools.iter().find(|pool| pool["name"] == *arguments.name) else {
        context.output.note("no sink uses this cluster: the node has no pool for it");
        return Ok(Outcome::Negative);
    };
    let output = &context.output;
    if output.is_json() {
        output.object(pool)?;
        return Ok(Outcome::Success);
    }
    let of = |key: &str| text(&pool[key]);
    output.print(&format!(
        "{}: {}; {} of {} connections, {} in use\n",
        of("name"),
        of("state"),
        of("open"),
        of("wanted"),
        of("lent")
    ))?;
    for key in ["broken_by", "settings_error", "discovery_error"] {
        if let Some(error) = pool[key].as_str() {
            output.note(error);
        }
    }
    for remark in pool["remarks"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str) {
        output.note(remark);
    }
    let servers = pool["servers"].as_array().cloned().unwrap_or_default();
    let header = ["server", "state", "datacentre", "open", "in use", "latency", "share", "last error"];
    output.rows(header, &servers, |server| {
        let latency = server["latency_us"].as_f64().unwrap_or(0.0) / 1000.0;
        [
            text(&server["address"]),
            text(&server["state"]),
            text(&server["datacentre"]),
            format!("{} of {}", text(&server["open"]), text(&server["target"])),
            text(&server["lent"]),
            format!("{latency:.1} ms"),
            format!("{:.0} %", server["share"].as_f64().unwrap_or(0.0) * 100.0),
            brief(server["last_error"].as_str().unwrap_or_default(), 80),
        ]
    })?;
    let counted = pool["counters"].as_object().into_iter().flatten();
    let counted: Vec<String> = counted
        .filter(|(_, count)| count.as_u64() != Some(0))
        .map(|(name, count)| format!("{} {count}", name.replace('_', " ")))
        .collect();
    output.print(&format!("counters: {}\n", counted.join(", ")))?;
    Ok(Outcome::Success)
}

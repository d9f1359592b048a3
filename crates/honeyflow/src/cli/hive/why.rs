//! `honeyflow hive why`: lists the holders of a lease and why each got it, from the events that the hive keeps for a
//! week.

use honeyflow_hive::{
    NodeId, Reply, Request,
    contract::{Event, EventKind, QUEEN},
};
use honeyflow_runtime::Failure;
use serde::Serialize;

use super::{OpenHive, hive_time, misplaced, open_all};
use crate::cli::{Context, Fault, Outcome, block_on};

#[derive(clap::Args)]
pub struct Arguments {
    /// Show events up to an instant (2026-11-15T21:07:22Z), or up to a time ago (10m)
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Lease to show: queen, duty/NAME or shard/SOURCE/NUMBER
    #[arg(long, value_name = "NAME", default_value = QUEEN)]
    lease: String,
    /// Maximum number of events to show, newest last
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

#[derive(Serialize)]
struct Row {
    time: String,
    what: EventKind,
    lease: String,
    epoch: Option<String>,
    node: Option<String>,
    id: Option<String>,
    cause: String,
    version: u64,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let found = block_on(async {
        let hives = open_all(&config).await?;
        let hive = hive_of_lease(&hives, &arguments.lease);
        let view = hive.view().await?;
        let until_ms = match &arguments.at {
            None => None,
            Some(text) => match hive_time::parse(text, view.head.hive_ms) {
                Some(at) => Some(at),
                None => return Ok::<_, Failure>(None),
            },
        };
        let lease = Some(arguments.lease.as_str().into());
        let events = match hive.call(Request::History { lease, until_ms, max: arguments.limit }).await? {
            Reply::History(events) => events,
            other => return Err(misplaced(&other)),
        };
        let names = view.nodes.into_iter().map(|node| (node.id, node.name)).collect::<Vec<_>>();
        Ok(Some((events, names)))
    })??;
    let Some((events, names)) = found else {
        let help = "for example 2026-11-15T21:07:22Z, 2026-11-15, or 10m for ten minutes ago";
        return Err(Fault::usage(format!("`{}` is not a time", arguments.at.as_deref().unwrap_or_default()), help));
    };
    if events.is_empty() {
        context.output.note(&format!("no events of {}; `honeyflow hive show` lists the shards", arguments.lease));
        return Ok(Outcome::Negative);
    }
    let rows: Vec<Row> = events.iter().rev().map(|event| row(event, &names)).collect();
    context.output.rows(["time", "what", "epoch", "node", "id", "cause"], &rows, |row| {
        let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "–".to_owned());
        let id = row.id.as_deref().map_or("–", |id| id.get(..8).unwrap_or(id)).to_owned();
        [row.time.clone(), row.what.to_string(), or(&row.epoch), or(&row.node), id, row.cause.clone()]
    })?;
    Ok(Outcome::Success)
}

/// The hive that holds a lease: a shard's lease is in its source's database, all others are in the first hive.
pub(super) fn hive_of_lease<'a>(hives: &'a [OpenHive], lease: &str) -> &'a OpenHive {
    let source = lease.strip_prefix("shard/").and_then(|rest| rest.rsplit_once('/')).map(|(source, _)| source);
    let holds = |hive: &&OpenHive| source.is_some_and(|source| hive.sources.iter().any(|name| **name == *source));
    hives.iter().find(holds).unwrap_or(&hives[0])
}

fn row(event: &Event, names: &[(NodeId, String)]) -> Row {
    let name = |id: NodeId| names.iter().find(|(known, _)| *known == id).map(|(_, name)| name.clone());
    Row {
        time: hive_time::format(event.at_ms),
        what: event.kind,
        lease: event.lease.as_deref().unwrap_or_default().to_owned(),
        epoch: event.epoch.map(|epoch| epoch.0.to_string()),
        node: event.node.and_then(name),
        id: event.node.map(|id| id.to_string()),
        cause: event.cause.to_string(),
        version: event.version,
    }
}

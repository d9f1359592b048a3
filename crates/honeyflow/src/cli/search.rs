//! `honeyflow search`: searches an index directly, with or without a running node.

use honeyflow_event::Stamp;
use honeyflow_sink::Hit;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

use super::{Context, Fault, Outcome, block_on, no_such, output::brief};
use crate::registry;

#[derive(clap::Args)]
pub struct Arguments {
    /// Sink, as in [sink.NAME]
    sink: String,
    /// Words, or a query such as title:bees AND price:[1 TO 20] [default: all documents]
    #[arg(default_value = "")]
    query: String,
    /// Maximum number of documents to show
    #[arg(long, short = 'n', default_value = "20", conflicts_with = "all")]
    limit: u32,
    /// Show all documents, in the order of the index; cannot be used with a query
    #[arg(long, conflicts_with = "query")]
    all: bool,
}

#[derive(Serialize)]
struct Row {
    entity: String,
    key: String,
    version: Stamp,
    document: Arc<Value>,
}

/// Documents read at a time with --all.
const PAGE: u32 = 500;

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let names = || config.sinks.iter().map(|sink| &*sink.name);
    let sink = config.sink(&arguments.sink).ok_or_else(|| no_such("sink", &arguments.sink, names()))?;
    let entity = config.entities_into(&sink.name).first().map(ToString::to_string).unwrap_or_default();
    let Some(index) = block_on(async { registry::reading_sink(sink, &config) })?? else {
        context.output.note(&format!("the index of `{}` does not exist yet: honeyflow start creates it", sink.name));
        return Ok(Outcome::Success);
    };
    let row = |hit: Hit| Row { entity: entity.clone(), key: hit.key, version: hit.stamp, document: hit.document };
    if !arguments.all {
        let hits = block_on(index.search(arguments.query.clone(), arguments.limit))??;
        print(&hits.into_iter().map(row).collect::<Vec<_>>(), context)?;
        return Ok(Outcome::Success);
    }
    let mut after = None;
    loop {
        let (hits, next) = block_on(index.list(after, PAGE))??;
        print(&hits.into_iter().map(row).collect::<Vec<_>>(), context)?;
        if next.is_none() {
            return Ok(Outcome::Success);
        }
        after = next;
    }
}

fn print(rows: &[Row], context: &Context) -> Result<(), Fault> {
    context.output.rows(["entity", "key", "version", "document"], rows, |row| {
        [row.entity.clone(), row.key.clone(), row.version.to_string(), brief(&row.document.to_string(), 160)]
    })
}

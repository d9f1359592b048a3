//! Whether this node may work beside those that are there. An index in a data folder has one writer, and documents in
//! several such indexes would each be a part: a node that keeps one works on its sources alone, and says so in its meta
//! data. All others share.

use std::time::Duration;

use honeyflow_hive::{
    HiveStore, Reply, Request,
    contract::{NodeRow, View},
};
use honeyflow_runtime::Failure;
use serde_json::Value;

use super::hive::{Planned, embedded, plan};
use crate::{config::Config, registry::HivePlace};

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// # Errors
/// If a node lives with which this one does not go together, by its name and process.
pub async fn refuse_misfits(config: &Config) -> Result<(), Failure> {
    for Planned { place, name, sources, .. } in plan(config)?.into_iter().filter(|planned| !planned.sources.is_empty())
    {
        // Nobody can be there before the file is.
        if place.file().is_some_and(|file| !file.exists()) {
            continue;
        }
        let own: Vec<String> = sources.iter().flat_map(|source| embedded(config, source)).collect();
        let store = place.open(&name, false).await?;
        let matters = |other: &NodeRow| !own.is_empty() || !indexes(other).is_empty();
        let others = others(&*store, &place, matters).await?;
        let misfit = others.iter().find_map(|other| {
            let theirs = indexes(other);
            if let Some(index) = theirs.first() {
                return Some(explained(
                    other,
                    &place,
                    &format!("it keeps the index of [sink.{index}] in its data folder"),
                ));
            }
            let index = own.first()?;
            Some(explained(other, &place, &format!("[sink.{index}] is an index in this node's own data folder")))
        });
        if let Some(failure) = misfit {
            return Err(failure);
        }
    }
    Ok(())
}

fn explained(other: &NodeRow, place: &HivePlace, why: &str) -> Failure {
    let pid = meta(other).get("pid").map_or_else(String::new, |pid| format!(", process {pid}"));
    let message = format!(
        "node {} ({}{pid}) works on {}, and {why}: such an index has one writer, which must see every event; stop that \
         node first, or let both work without an embedded index",
        other.name,
        other.id,
        place.shown()
    );
    Failure::fatal("another-node", message)
}

fn indexes(node: &NodeRow) -> Vec<String> {
    let indexes = meta(node).get("indexes").cloned().unwrap_or_default();
    serde_json::from_value(indexes).unwrap_or_default()
}

fn meta(node: &NodeRow) -> Value {
    serde_json::from_str(&node.meta).unwrap_or_default()
}

/// Those that live and matter. A row alone says little: its node may have been killed just now. So it is watched until it
/// beats or expires.
async fn others(
    store: &dyn HiveStore,
    place: &HivePlace,
    matters: impl Fn(&NodeRow) -> bool,
) -> Result<Vec<NodeRow>, Failure> {
    if let Some(file) = place.file() {
        // Kernel locks tell at once.
        let living = honeyflow_hive_sqlite::living_nodes(file);
        let view = view(store).await?;
        let lives = |node: &NodeRow| living.contains(&node.id.to_string());
        return Ok(view.nodes.into_iter().filter(|node| lives(node) && matters(node)).collect());
    }
    let first = view(store).await?;
    loop {
        let now = view(store).await?;
        let lives = |node: &NodeRow| node.is_alive(now.head.hive_ms);
        let has_beaten = |node: &NodeRow| first.nodes.iter().all(|seen| seen.id != node.id || seen.beat != node.beat);
        let living: Vec<NodeRow> = now.nodes.iter().filter(|node| lives(node) && matters(node)).cloned().collect();
        if living.iter().all(has_beaten) {
            return Ok(living);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn view(store: &dyn HiveStore) -> Result<View, Failure> {
    match store.call(Request::View).await? {
        Reply::View(view) => Ok(*view),
        other => Err(Failure::fatal("misplaced-reply", format!("the hive answered another question: {other:?}"))),
    }
}

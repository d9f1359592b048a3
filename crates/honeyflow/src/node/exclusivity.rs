//! Decides whether this node may work beside the nodes that are already running. An index in a data folder has one
//! writer that must see every event; with two such nodes, each index would hold only part of the documents. A node with
//! an embedded index therefore works on its sources alone, and publishes its indexes in its meta data. Nodes without
//! one share the work.
//!
//! The check is made twice: before anything is opened, so that a start beside another node costs nothing, and after the
//! node has joined. Joins are ordered, and the later node always sees the earlier one: of two nodes that start at the
//! same moment, exactly one stays.

use std::time::Duration;

use honeyflow_event::Name;
use honeyflow_hive::{
    Hive, HiveStore, NodeId, Reply, Request,
    contract::{Event, EventKind, NodeRow, View},
};
use honeyflow_runtime::Failure;
use serde_json::Value;

use super::hive::{PlannedHive, embedded, plan};
use crate::{codes, config::Config, registry::HivePlace};

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long to wait for this node's own join event. Without it the order of the joins is unknown.
const JOIN_WITHIN: Duration = Duration::from_secs(20);
/// Number of recent events that are searched for joins.
const EVENTS_MAX: u32 = 10_000;

/// Refuses the start if a running node excludes this one, before anything is opened.
///
/// # Errors
/// If such a node is alive; the message names it and its process.
pub async fn refuse_conflicting_nodes(config: &Config) -> Result<(), Failure> {
    let all: Vec<Name> = config.sources.iter().map(|source| source.name.clone()).collect();
    refuse_conflicting_nodes_of(config, &all).await
}

/// Like [`refuse_conflicting_nodes`], but looks only into databases that hold one of these sources.
pub async fn refuse_conflicting_nodes_of(config: &Config, of: &[Name]) -> Result<(), Failure> {
    for PlannedHive { place, name, sources, .. } in
        plan(config)?.into_iter().filter(|planned| planned.sources.iter().any(|source| of.contains(source)))
    {
        // No node can be running before the file exists.
        if place.file().is_some_and(|file| !file.exists()) {
            continue;
        }
        let own: Vec<String> = sources.iter().flat_map(|source| embedded(config, source)).collect();
        let store = place.open(&name, false).await?;
        let matters = |other: &NodeRow| !own.is_empty() || !indexes(other).is_empty();
        let others = live_nodes(&*store, &place, matters).await?;
        if let Some(failure) = others.iter().find_map(|other| conflict(other, &own, place.shown())) {
            return Err(failure);
        }
    }
    Ok(())
}

/// What this node has published about itself in the hive that it joined.
pub struct JoinedNode<'a> {
    /// The sinks in its data folder.
    pub own: &'a [String],
    /// Identifies the process. A process that joins again is a new node in the hive, but the same process.
    pub process: &'a str,
    /// The address of the database, for messages.
    pub shown: &'a str,
}

/// Repeats the check after this node has joined, and each time it has joined again.
///
/// # Errors
/// If a node that joined earlier is alive and excludes this one.
pub async fn refuse_if_joined_later(hive: &Hive, us: &JoinedNode<'_>) -> Result<(), Failure> {
    let patience = tokio::time::Instant::now() + JOIN_WITHIN;
    loop {
        // Read the nodes before the events: then every node that was read has its join among the events.
        let now = view(&**hive.store()).await?;
        let events = history(&**hive.store()).await?;
        let joined = |id: NodeId| {
            let join = events.iter().find(|event| event.kind == EventKind::Joined && event.node == Some(id));
            join.map(|event| event.version)
        };
        if let Some((me, ours)) = hive.node().and_then(|me| Some((me, joined(me)?))) {
            let others = now.nodes.iter().filter(|node| {
                let ours_too = meta(node).get("process").is_some_and(|process| process == us.process);
                node.id != me && !ours_too && node.is_alive(now.head.hive_ms)
            });
            let mut earlier = others.filter(|node| joined(node.id).is_none_or(|theirs| theirs < ours));
            return earlier.find_map(|other| conflict(other, us.own, us.shown)).map_or(Ok(()), Err);
        }
        if tokio::time::Instant::now() >= patience {
            let message = format!("could not join the hive in {} in time; is the database reachable?", us.shown);
            return Err(Failure::retry(codes::NOT_JOINED, message));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The failure if one of the two nodes excludes the other; none if they can work together.
fn conflict(other: &NodeRow, own: &[String], shown: &str) -> Option<Failure> {
    if let Some(index) = indexes(other).first() {
        return Some(conflict_failure(other, shown, &format!("it has the index of [sink.{index}] in its data folder")));
    }
    let index = own.first()?;
    Some(conflict_failure(other, shown, &format!("[sink.{index}] is an index in this node's own data folder")))
}

fn conflict_failure(other: &NodeRow, shown: &str, why: &str) -> Failure {
    let pid = meta(other).get("pid").map_or_else(String::new, |pid| format!(", process {pid}"));
    let message = format!(
        "node {} ({}{pid}) works on {shown}, and {why}: such an index has one writer, which must see every event; stop \
         that node first, or configure both nodes without an embedded index",
        other.name, other.id,
    );
    Failure::fatal(codes::ANOTHER_NODE, message)
}

fn indexes(node: &NodeRow) -> Vec<String> {
    let indexes = meta(node).get("indexes").cloned().unwrap_or_default();
    serde_json::from_value(indexes).unwrap_or_default()
}

fn meta(node: &NodeRow) -> Value {
    serde_json::from_str(&node.meta).unwrap_or_default()
}

/// The live nodes for which `matters` is true. A row alone does not prove that its node is alive: the node may just
/// have been killed. So each row is watched until it has a new heartbeat or expires.
async fn live_nodes(
    store: &dyn HiveStore,
    place: &HivePlace,
    matters: impl Fn(&NodeRow) -> bool,
) -> Result<Vec<NodeRow>, Failure> {
    if let Some(file) = place.file() {
        // Kernel locks show immediately which nodes are alive.
        let living = honeyflow_hive_sqlite::running_nodes(file);
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
        other => Err(Failure::fatal(
            codes::MISPLACED_REPLY,
            format!("the hive sent a reply that does not fit the request: {other:?}"),
        )),
    }
}

async fn history(store: &dyn HiveStore) -> Result<Vec<Event>, Failure> {
    match store.call(Request::History { lease: None, until_ms: None, max: EVENTS_MAX }).await? {
        Reply::History(events) => Ok(events),
        other => Err(Failure::fatal(
            codes::MISPLACED_REPLY,
            format!("the hive sent a reply that does not fit the request: {other:?}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use honeyflow_hive::{Options, contract::HIVE};

    use super::*;

    async fn join(file: &std::path::Path, process: &str, indexes: &[&str]) -> Hive {
        let mut options = Options { watch_runtime: false, ..Options::named(process) };
        options.meta.insert("process".to_owned(), process.into());
        if !indexes.is_empty() {
            options.meta.insert("indexes".to_owned(), indexes.into());
        }
        let store = Arc::new(honeyflow_hive_sqlite::make(file, HIVE).expect("a file"));
        Hive::join(store, options).await.expect("a member")
    }

    async fn refused(hive: &Hive, process: &str, own: &[&str]) -> Option<String> {
        let own: Vec<String> = own.iter().map(ToString::to_string).collect();
        let us = JoinedNode { own: &own, process, shown: "here" };
        let deadline = Duration::from_secs(60);
        let judged =
            tokio::time::timeout(deadline, refuse_if_joined_later(hive, &us)).await.expect("it takes too long");
        judged.err().map(|failure| failure.message)
    }

    /// Both nodes saw no other node before they joined. The node that joined first stays, no matter which one checks
    /// first.
    #[tokio::test]
    async fn of_two_nodes_that_start_together_the_first_to_join_stays() {
        for (one, other) in [(&["books"][..], &["books"][..]), (&["books"], &[]), (&[], &["books"])] {
            let home = tempfile::tempdir().expect("a folder");
            let file = home.path().join("hive.db");
            let (first, second) = (join(&file, "a", one).await, join(&file, "b", other).await);
            assert_eq!(refused(&first, "a", one).await, None, "{one:?} before {other:?}");
            let message = refused(&second, "b", other).await.expect("the second node joined later");
            assert!(message.contains("node a (") && message.contains("[sink.books]"), "{message}");
            assert_eq!(refused(&first, "a", one).await, None);
        }
    }

    #[tokio::test]
    async fn nodes_without_an_embedded_index_work_together() {
        let home = tempfile::tempdir().expect("a folder");
        let file = home.path().join("hive.db");
        let _first = join(&file, "a", &[]).await;
        let second = join(&file, "b", &[]).await;
        assert_eq!(refused(&second, "b", &[]).await, None);
    }

    /// A join whose answer was lost leaves a row behind until it expires.
    #[tokio::test]
    async fn a_process_that_joins_again_does_not_exclude_itself() {
        let home = tempfile::tempdir().expect("a folder");
        let file = home.path().join("hive.db");
        let _first = join(&file, "a", &["books"]).await;
        let again = join(&file, "a", &["books"]).await;
        assert_eq!(refused(&again, "a", &["books"]).await, None);
    }
}

//! Whether this node may work beside those that are there. An index in a data folder has one writer, and documents in
//! several such indexes would each be a part: a node that keeps one works on its sources alone, and says so in its meta
//! data. All others share.
//!
//! Looked at twice: before anything is opened, so that a start beside another node costs nothing, and once it has joined.
//! Joins have an order, and whoever is later finds the earlier one: of two that start at the same moment one stays.

use std::time::Duration;

use honeyflow_hive::{
    Hive, HiveStore, NodeId, Reply, Request,
    contract::{Event, EventKind, NodeRow, View},
};
use honeyflow_runtime::Failure;
use serde_json::Value;

use super::hive::{Planned, embedded, plan};
use crate::{config::Config, registry::HivePlace};

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A join that is not to be seen by then is nothing that could be judged.
const JOIN_WITHIN: Duration = Duration::from_secs(20);
/// Of what has happened last, so much is looked through for joins.
const EVENTS_MAX: u32 = 10_000;

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
        if let Some(failure) = others.iter().find_map(|other| misfit(other, &own, place.shown())) {
            return Err(failure);
        }
    }
    Ok(())
}

/// What this node has said of itself where it has joined.
pub struct Joiner<'a> {
    /// Sinks that it keeps in its data folder.
    pub own: &'a [String],
    /// One process is a node of its own under each identity.
    pub process: &'a str,
    /// The database, for messages.
    pub shown: &'a str,
}

/// Once it has joined, and whenever it has joined anew.
///
/// # Errors
/// If a node that has come before lives with which this one does not go together.
pub async fn refuse_if_later(hive: &Hive, us: &Joiner<'_>) -> Result<(), Failure> {
    let patience = tokio::time::Instant::now() + JOIN_WITHIN;
    loop {
        // The nodes first: whoever is among them has its join among the events.
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
            return earlier.find_map(|other| misfit(other, us.own, us.shown)).map_or(Ok(()), Err);
        }
        if tokio::time::Instant::now() >= patience {
            let said = format!("this node has not been able to join the hive of {} in time; is it there?", us.shown);
            return Err(Failure::retry("not-joined", said));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Why the two do not go together, if they do not.
fn misfit(other: &NodeRow, own: &[String], shown: &str) -> Option<Failure> {
    if let Some(index) = indexes(other).first() {
        return Some(explained(other, shown, &format!("it keeps the index of [sink.{index}] in its data folder")));
    }
    let index = own.first()?;
    Some(explained(other, shown, &format!("[sink.{index}] is an index in this node's own data folder")))
}

fn explained(other: &NodeRow, shown: &str, why: &str) -> Failure {
    let pid = meta(other).get("pid").map_or_else(String::new, |pid| format!(", process {pid}"));
    let message = format!(
        "node {} ({}{pid}) works on {shown}, and {why}: such an index has one writer, which must see every event; stop \
         that node first, or let both work without an embedded index",
        other.name, other.id,
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

async fn history(store: &dyn HiveStore) -> Result<Vec<Event>, Failure> {
    match store.call(Request::History { lease: None, until_ms: None, max: EVENTS_MAX }).await? {
        Reply::History(events) => Ok(events),
        other => Err(Failure::fatal("misplaced-reply", format!("the hive answered another question: {other:?}"))),
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
        let us = Joiner { own: &own, process, shown: "here" };
        let deadline = Duration::from_secs(60);
        let judged = tokio::time::timeout(deadline, refuse_if_later(hive, &us)).await.expect("it takes too long");
        judged.err().map(|failure| failure.message)
    }

    /// Both have found nobody, and have joined: whoever came first stays, whoever looks first.
    #[tokio::test]
    async fn of_two_that_start_at_the_same_moment_the_first_one_stays() {
        for (one, other) in [(&["books"][..], &["books"][..]), (&["books"], &[]), (&[], &["books"])] {
            let home = tempfile::tempdir().expect("a folder");
            let file = home.path().join("hive.db");
            let (first, second) = (join(&file, "a", one).await, join(&file, "b", other).await);
            assert_eq!(refused(&first, "a", one).await, None, "{one:?} before {other:?}");
            let message = refused(&second, "b", other).await.expect("it is later");
            assert!(message.contains("node a (") && message.contains("[sink.books]"), "{message}");
            assert_eq!(refused(&first, "a", one).await, None);
        }
    }

    #[tokio::test]
    async fn nodes_without_an_index_of_their_own_go_together() {
        let home = tempfile::tempdir().expect("a folder");
        let file = home.path().join("hive.db");
        let _first = join(&file, "a", &[]).await;
        let second = join(&file, "b", &[]).await;
        assert_eq!(refused(&second, "b", &[]).await, None);
    }

    /// A join that went unanswered leaves a row behind, until it expires.
    #[tokio::test]
    async fn another_identity_of_the_same_process_is_no_other_node() {
        let home = tempfile::tempdir().expect("a folder");
        let file = home.path().join("hive.db");
        let _first = join(&file, "a", &["books"]).await;
        let again = join(&file, "a", &["books"]).await;
        assert_eq!(refused(&again, "a", &["books"]).await, None);
    }
}

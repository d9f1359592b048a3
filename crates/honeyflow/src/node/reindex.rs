//! Reindex in place: one event per row, behind everything else. Live traffic goes on; positions are kept, so that an
//! interrupted one goes on where it was.

use std::time::Duration;

use honeyflow_event::{Key, Kind, PRIORITY_REINDEX, Priority};
use honeyflow_runtime::Failure;
use honeyflow_source_outbox::Entity;
use honeyflow_store::{Admin, AdminReply, NewEvent, Reply, Request, Store};
use serde::{Deserialize, Serialize};

const PAGE: u32 = 1000;
/// While so many of its events are waiting, nothing is added.
const WAITING_MAX: u64 = 20_000;

#[derive(Default, Serialize, Deserialize)]
struct Position {
    after: Option<String>,
    events: u64,
    done: bool,
}

/// Stores an event for every row of the entity's table, no faster than they are worked on; `progress` hears how many
/// so far.
pub async fn reindex(store: &dyn Store, entity: &Entity, progress: impl FnMut(u64)) -> Result<u64, Failure> {
    store_events(store, entity, WAITING_MAX, progress).await
}

/// The same all at once, while no node works on them yet.
pub async fn queue_all(store: &dyn Store, entity: &Entity) -> Result<u64, Failure> {
    store_events(store, entity, u64::MAX, |_| {}).await
}

async fn store_events(
    store: &dyn Store,
    entity: &Entity,
    waiting_max: u64,
    mut progress: impl FnMut(u64),
) -> Result<u64, Failure> {
    let mut position = resume(store, &entity.name).await?;
    loop {
        while waiting_max < u64::MAX && waiting(store).await? > waiting_max {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let after = position.after.clone().map(Key::from);
        let table = entity.table.clone();
        let keys = Admin::TableKeys { table, key: entity.key.clone(), after, limit: PAGE };
        let AdminReply::Keys(keys) = ask(store, keys).await? else { return Err(misplaced()) };
        let Some(last) = keys.last() else { break };
        position.after = Some(last.to_string());
        position.events += keys.len() as u64;
        let events = keys.into_iter().map(|key| event(entity, key, PRIORITY_REINDEX)).collect();
        store.call(Request::Append { events, idempotency: None }).await?;
        put(store, &entity.name, &position).await?;
        progress(position.events);
    }
    position.done = true;
    put(store, &entity.name, &position).await?;
    Ok(position.events)
}

/// "This key is to be looked at."
pub fn event(entity: &Entity, key: Key, priority: Priority) -> NewEvent {
    NewEvent {
        kind: Kind::Row,
        tenant: "".into(),
        entity: entity.name.clone(),
        key,
        priority,
        workflow: None,
        delay: None,
        dedupe: None,
        traceparent: None,
        root: None,
        payload: None,
    }
}

/// Whether every row of the entity has been queued at least once.
pub async fn was_done(store: &dyn Store, entity: &str) -> Result<bool, Failure> {
    Ok(position(store, entity).await?.done)
}

/// The entity counts as never indexed.
pub async fn forget(store: &dyn Store, entity: &str) -> Result<(), Failure> {
    put(store, entity, &Position::default()).await
}

async fn resume(store: &dyn Store, entity: &str) -> Result<Position, Failure> {
    let position = position(store, entity).await?;
    Ok(if position.done { Position::default() } else { position })
}

async fn position(store: &dyn Store, entity: &str) -> Result<Position, Failure> {
    let AdminReply::Tasks(tasks) = ask(store, Admin::Tasks).await? else { return Err(misplaced()) };
    let found =
        tasks.into_iter().filter(|task| task.noun == "reindex" && task.name == entity).max_by_key(|task| task.id);
    Ok(found.and_then(|task| serde_json::from_str(&task.state).ok()).unwrap_or_default())
}

async fn put(store: &dyn Store, entity: &str, position: &Position) -> Result<(), Failure> {
    let state = serde_json::to_string(position).unwrap_or_default();
    ask(store, Admin::PutTask { noun: "reindex".to_owned(), name: entity.to_owned(), state }).await.map(|_| ())
}

/// Events of this priority that are waiting.
pub async fn waiting(store: &dyn Store) -> Result<u64, Failure> {
    let AdminReply::Lag(lag) = ask(store, Admin::Lag).await? else { return Err(misplaced()) };
    Ok(lag.by_priority.iter().filter(|(level, _)| *level == PRIORITY_REINDEX).map(|(_, count)| count).sum())
}

/// A question to the store, answered.
pub async fn ask(store: &dyn Store, question: Admin) -> Result<AdminReply, Failure> {
    match store.call(Request::Admin(question)).await? {
        Reply::Admin(reply) => Ok(reply),
        other => Err(honeyflow_store::misplaced(&other)),
    }
}

pub fn misplaced() -> Failure {
    Failure::fatal("misplaced-reply", "the store answered another question")
}

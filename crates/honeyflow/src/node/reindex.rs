//! Reindexes in place: queues one event per row, behind live events (reindex priority), while live traffic continues.
//! The position is stored, so that an interrupted reindex continues where it stopped.

use std::{num::NonZeroU32, time::Duration};

use honeyflow_event::{Changes, Key, Kind, PRIORITY_REINDEX, Priority};
use honeyflow_runtime::Failure;
use honeyflow_source_outbox::Entity;
use honeyflow_store::{Admin, AdminReply, NewEvent, Reply, Request, Store};
use serde::{Deserialize, Serialize};

use crate::codes;

const PAGE: u32 = 1000;
/// While more of its events are waiting, no further page is queued.
const WAITING_MAX: u64 = 20_000;

#[derive(Default, Serialize, Deserialize)]
struct Position {
    after: Option<String>,
    events: u64,
    done: bool,
}

/// The progress of a reindex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueProgress {
    pub events: u64,
    /// The number of these events that are not processed yet.
    pub waiting: u64,
}

/// Stores an event for every row of the entity's table, not faster than they are processed and, with `rate`, at most
/// that number of rows per second. `progress` receives the current state.
pub async fn reindex(
    store: &dyn Store,
    entity: &Entity,
    rate: Option<NonZeroU32>,
    progress: impl FnMut(QueueProgress),
) -> Result<u64, Failure> {
    store_events(store, entity, WAITING_MAX, rate, progress).await
}

/// Stores all events without waiting, for use while no node processes them yet.
pub async fn queue_all(store: &dyn Store, entity: &Entity) -> Result<u64, Failure> {
    store_events(store, entity, u64::MAX, None, |_| {}).await
}

/// Counts the rows of the entity's table by their keys.
pub async fn count(store: &dyn Store, entity: &Entity) -> Result<u64, Failure> {
    const AT_ONCE: u32 = 10_000;
    let (mut count, mut after) = (0, None);
    loop {
        let keys = Admin::TableKeys { table: entity.table.clone(), key: entity.key.clone(), after, limit: AT_ONCE };
        let AdminReply::Keys(keys) = ask(store, keys).await? else { return Err(misplaced()) };
        count += keys.len() as u64;
        let Some(last) = keys.last().filter(|_| keys.len() >= AT_ONCE as usize) else { return Ok(count) };
        after = Some(last.clone());
    }
}

/// The pause before the next page that keeps the rate of stored rows within the limit.
fn pause(rows: usize, rate: NonZeroU32, took: Duration) -> Duration {
    let rows = u32::try_from(rows).unwrap_or(u32::MAX);
    (Duration::from_secs(1) * rows / rate.get()).saturating_sub(took)
}

async fn until_fewer_wait(
    store: &dyn Store,
    waiting_max: u64,
    events: u64,
    progress: &mut impl FnMut(QueueProgress),
) -> Result<(), Failure> {
    loop {
        let waiting = waiting(store).await?;
        progress(QueueProgress { events, waiting });
        if waiting <= waiting_max {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn store_events(
    store: &dyn Store,
    entity: &Entity,
    waiting_max: u64,
    rate: Option<NonZeroU32>,
    mut progress: impl FnMut(QueueProgress),
) -> Result<u64, Failure> {
    let mut position = resume(store, &entity.name).await?;
    let page = rate.map_or(PAGE, |rate| PAGE.min(rate.get()));
    loop {
        let began = tokio::time::Instant::now();
        if waiting_max < u64::MAX {
            until_fewer_wait(store, waiting_max, position.events, &mut progress).await?;
        }
        let after = position.after.clone().map(Key::from);
        let table = entity.table.clone();
        let keys = Admin::TableKeys { table, key: entity.key.clone(), after, limit: page };
        let AdminReply::Keys(keys) = ask(store, keys).await? else { return Err(misplaced()) };
        let Some(last) = keys.last() else { break };
        position.after = Some(last.to_string());
        let rows = keys.len();
        position.events += rows as u64;
        let events = keys.into_iter().map(|key| event(entity, key, PRIORITY_REINDEX)).collect();
        store.call(Request::Append { events, idempotency: None }).await?;
        put(store, &entity.name, &position).await?;
        if let Some(rate) = rate {
            tokio::time::sleep(pause(rows, rate, began.elapsed())).await;
        }
    }
    position.done = true;
    put(store, &entity.name, &position).await?;
    Ok(position.events)
}

/// An event that says: load this key again.
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
        change: Changes::UNKNOWN,
        columns: None,
        payload: None,
    }
}

/// Whether every row of the entity has been queued at least once.
pub async fn was_done(store: &dyn Store, entity: &str) -> Result<bool, Failure> {
    Ok(position(store, entity).await?.done)
}

/// Marks the entity as never indexed.
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

/// The number of waiting events of the reindex priority.
pub async fn waiting(store: &dyn Store) -> Result<u64, Failure> {
    let AdminReply::Lag(lag) = ask(store, Admin::Lag).await? else { return Err(misplaced()) };
    Ok(lag.by_priority.iter().filter(|(level, _)| *level == PRIORITY_REINDEX).map(|(_, count)| count).sum())
}

/// Sends an administrative request to the store and returns the reply.
pub async fn ask(store: &dyn Store, question: Admin) -> Result<AdminReply, Failure> {
    match store.call(Request::Admin(question)).await? {
        Reply::Admin(reply) => Ok(reply),
        other => Err(honeyflow_store::mismatched_reply(&other)),
    }
}

pub fn misplaced() -> Failure {
    Failure::fatal(codes::MISPLACED_REPLY, "the store sent a reply that does not fit the request")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_76_no_more_rows_are_stored_in_a_second_than_allowed() {
        let rate = |rate| NonZeroU32::new(rate).unwrap_or(NonZeroU32::MIN);
        let millis = Duration::from_millis;
        assert_eq!(pause(1000, rate(500), millis(300)), millis(1700));
        assert_eq!(pause(7, rate(10), Duration::ZERO), millis(700));
        assert_eq!(
            pause(1000, rate(500), Duration::from_secs(3)),
            Duration::ZERO,
            "the page took longer than the pause"
        );
    }
}

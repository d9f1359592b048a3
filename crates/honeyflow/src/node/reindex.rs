//! Queues one event per row for one workflow, behind live events (reindex priority), while live traffic continues. Such
//! an event names its workflow: it leads to its own document alone, and to no other workflow.
//!
//! The position is stored for each entity and workflow, so that an interrupted reindex continues where it stopped. The
//! same position says whether the workflow has had every row once.

use std::{num::NonZeroU32, time::Duration};

use honeyflow_event::{Changes, Key, Kind, Name, PRIORITY_REINDEX, Priority};
use honeyflow_runtime::Failure;
use honeyflow_source_outbox::Entity;
use honeyflow_store::{Admin, AdminReply, NewEvent, Reply, Request, Store};
use serde::{Deserialize, Serialize};

use super::patience::Patience;
use crate::{codes, registry::Database};

const PAGE: u32 = 1000;
/// While more of its events are waiting, no further page is queued.
const WAITING_MAX: u64 = 20_000;
/// A reindex that makes no progress for this long ends; the next one continues.
const NO_PROGRESS_MAX: Duration = Duration::from_secs(10 * 60);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The noun of the task that stores a position; its name is `entity/workflow`.
const TASK_NOUN: &str = "reindex";

#[derive(Clone, Default, Serialize, Deserialize)]
struct Position {
    after: Option<String>,
    events: u64,
    done: bool,
}

/// The position of an entity over all its workflows, as earlier releases stored it. Its task has the entity's name.
#[derive(Default, Serialize, Deserialize)]
struct EntityPosition {
    #[serde(flatten)]
    position: Position,
    /// Each workflow that existed then has been given this position.
    #[serde(default)]
    by_workflow: bool,
}

/// The progress of a reindex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueProgress {
    pub events: u64,
    /// The number of these events that are not processed yet.
    pub waiting: u64,
}

/// The rows of an entity, as one workflow gets them.
pub struct Rows<'a> {
    pub database: &'a Database,
    pub entity: &'a Entity,
    pub workflow: &'a Name,
}

impl Rows<'_> {
    /// Stores an event for every row, not faster than they are processed and, with `rate`, at most that number of rows
    /// per second. `progress` receives the current state.
    pub async fn reindex(&self, rate: Option<NonZeroU32>, progress: impl FnMut(QueueProgress)) -> Result<u64, Failure> {
        self.store_events(WAITING_MAX, rate, progress).await
    }

    /// Stores all events without waiting, for use while no node processes them yet.
    pub async fn queue_all(&self) -> Result<u64, Failure> {
        self.store_events(u64::MAX, None, |_| {}).await
    }

    /// Counts the rows by their keys.
    pub async fn count(&self) -> Result<u64, Failure> {
        const AT_ONCE: u32 = 10_000;
        let (mut count, mut after) = (0, None);
        loop {
            let keys = self.keys(after, AT_ONCE).await?;
            count += keys.len() as u64;
            let Some(last) = keys.last().filter(|_| keys.len() >= AT_ONCE as usize) else { return Ok(count) };
            after = Some(last.clone());
        }
    }

    /// The number of these rows that are queued and not processed yet.
    pub async fn waiting(&self) -> Result<u64, Failure> {
        self.database.reindex_events(&self.entity.name, self.workflow).await
    }

    /// Whether every row has been queued at least once.
    pub async fn was_done(&self) -> Result<bool, Failure> {
        Ok(self.position().await?.done)
    }

    /// Records that the workflow has had none of the rows.
    pub async fn forget(&self) -> Result<(), Failure> {
        self.put(&Position::default()).await
    }

    /// Records that the workflow has had every row.
    pub async fn note_done(&self) -> Result<(), Failure> {
        self.put(&Position { done: true, ..Position::default() }).await
    }

    /// Waits until these rows are processed. Returns the number that still wait after a long time without progress,
    /// because their runs sleep or their target is down.
    pub async fn until_done(&self, mut progress: impl FnMut(u64)) -> Result<u64, Failure> {
        let mut patience = Patience::new(NO_PROGRESS_MAX);
        loop {
            let waiting = self.waiting().await?;
            progress(waiting);
            if waiting == 0 || !patience.allows(waiting) {
                return Ok(waiting);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn keys(&self, after: Option<Key>, limit: u32) -> Result<Vec<Key>, Failure> {
        let (table, key) = (self.entity.table.clone(), self.entity.key.clone());
        match ask(&self.database.store, Admin::TableKeys { table, key, after, limit }).await? {
            AdminReply::Keys(keys) => Ok(keys),
            _ => Err(misplaced()),
        }
    }

    async fn until_fewer_wait(
        &self,
        waiting_max: u64,
        events: u64,
        progress: &mut impl FnMut(QueueProgress),
    ) -> Result<(), Failure> {
        let mut patience = Patience::new(NO_PROGRESS_MAX);
        loop {
            let waiting = self.waiting().await?;
            progress(QueueProgress { events, waiting });
            if waiting <= waiting_max {
                return Ok(());
            }
            if !patience.allows(waiting) {
                let message = format!(
                    "{waiting} rows of {} wait for workflow {}, and none was processed for {} min; \
                     run the command again to continue where it stopped",
                    self.entity.name,
                    self.workflow,
                    NO_PROGRESS_MAX.as_secs() / 60
                );
                return Err(Failure::retry(codes::NO_PROGRESS, message));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn store_events(
        &self,
        waiting_max: u64,
        rate: Option<NonZeroU32>,
        mut progress: impl FnMut(QueueProgress),
    ) -> Result<u64, Failure> {
        let mut position = Some(self.position().await?).filter(|position| !position.done).unwrap_or_default();
        let page = rate.map_or(PAGE, |rate| PAGE.min(rate.get()));
        loop {
            let began = tokio::time::Instant::now();
            if waiting_max < u64::MAX {
                self.until_fewer_wait(waiting_max, position.events, &mut progress).await?;
            }
            let keys = self.keys(position.after.clone().map(Key::from), page).await?;
            let Some(last) = keys.last() else { break };
            position.after = Some(last.to_string());
            let rows = keys.len();
            position.events += rows as u64;
            let event = |key| event(self.entity, key, PRIORITY_REINDEX, self.workflow);
            append(&self.database.store, keys.into_iter().map(event).collect()).await?;
            self.put(&position).await?;
            if let Some(rate) = rate {
                tokio::time::sleep(pause(rows, rate, began.elapsed())).await;
            }
        }
        position.done = true;
        self.put(&position).await?;
        Ok(position.events)
    }

    fn task_name(&self) -> String {
        format!("{}/{}", self.entity.name, self.workflow)
    }

    async fn position(&self) -> Result<Position, Failure> {
        let store = &self.database.store;
        match task(store, &self.task_name()).await? {
            Some(state) => Ok(serde_json::from_str(&state).unwrap_or_default()),
            None => Ok(inherited(store, self.entity, self.workflow).await?.unwrap_or_default()),
        }
    }

    async fn put(&self, position: &Position) -> Result<(), Failure> {
        let state = serde_json::to_string(position).unwrap_or_default();
        put(&self.database.store, self.task_name(), state).await
    }
}

/// The position that an earlier release has stored for all workflows of the entity together, if the workflow has run
/// before.
async fn inherited(store: &dyn Store, entity: &Entity, workflow: &Name) -> Result<Option<Position>, Failure> {
    let Some(before) = entity_position(store, entity).await?.filter(|before| !before.by_workflow) else {
        return Ok(None);
    };
    match ask(store, Admin::Definitions { workflow: Some(workflow.clone()) }).await? {
        AdminReply::Definitions(known) => Ok((!known.is_empty()).then_some(before.position)),
        _ => Err(misplaced()),
    }
}

/// Gives each workflow of the entity a position of its own, if an earlier release has stored one for all of them: so
/// an upgrade queues no row again. Does so once, because workflows that run later have not had these rows.
pub async fn adopt_entity_position(database: &Database, entity: &Entity, workflows: &[&Name]) -> Result<(), Failure> {
    let store = &database.store;
    let Some(before) = entity_position(store, entity).await?.filter(|before| !before.by_workflow) else {
        return Ok(());
    };
    for workflow in workflows {
        let rows = Rows { database, entity, workflow };
        rows.put(&rows.position().await?).await?;
    }
    put_entity_position(store, entity, before.position).await
}

/// Records for the entity as a whole that its rows were queued. Earlier releases read only that: without it, going back
/// to one would queue them for every workflow.
pub async fn note_filled(database: &Database, entity: &Entity) -> Result<(), Failure> {
    let before = entity_position(&database.store, entity).await?;
    if before.is_some_and(|before| before.by_workflow && before.position.done) {
        return Ok(());
    }
    put_entity_position(&database.store, entity, Position { done: true, ..Position::default() }).await
}

async fn put_entity_position(store: &dyn Store, entity: &Entity, position: Position) -> Result<(), Failure> {
    let state = EntityPosition { position, by_workflow: true };
    put(store, entity.name.to_string(), serde_json::to_string(&state).unwrap_or_default()).await
}

async fn entity_position(store: &dyn Store, entity: &Entity) -> Result<Option<EntityPosition>, Failure> {
    Ok(task(store, &entity.name).await?.map(|state| serde_json::from_str(&state).unwrap_or_default()))
}

/// The pause before the next page that keeps the rate of stored rows within the limit.
fn pause(rows: usize, rate: NonZeroU32, took: Duration) -> Duration {
    let rows = u32::try_from(rows).unwrap_or(u32::MAX);
    (Duration::from_secs(1) * rows / rate.get()).saturating_sub(took)
}

/// An event that says: load this key again, for this workflow.
pub fn event(entity: &Entity, key: Key, priority: Priority, workflow: &Name) -> NewEvent {
    NewEvent {
        kind: Kind::Row,
        tenant: "".into(),
        entity: entity.name.clone(),
        key,
        priority,
        workflow: Some(workflow.clone()),
        delay: None,
        dedupe: None,
        traceparent: None,
        root: None,
        change: Changes::UNKNOWN,
        columns: None,
        payload: None,
    }
}

/// Stores the events and returns their ids.
pub async fn append(store: &dyn Store, events: Vec<NewEvent>) -> Result<Vec<honeyflow_event::EventId>, Failure> {
    match store.call(Request::Append { events, idempotency: None }).await? {
        Reply::Appended { ids, .. } => Ok(ids),
        other => Err(honeyflow_store::mismatched_reply(&other)),
    }
}

async fn task(store: &dyn Store, name: &str) -> Result<Option<String>, Failure> {
    let AdminReply::Tasks(tasks) = ask(store, Admin::Tasks).await? else { return Err(misplaced()) };
    let found = tasks.into_iter().filter(|task| task.noun == TASK_NOUN && task.name == name);
    Ok(found.max_by_key(|task| task.id).map(|task| task.state))
}

async fn put(store: &dyn Store, name: String, state: String) -> Result<(), Failure> {
    ask(store, Admin::PutTask { noun: TASK_NOUN.to_owned(), name, state }).await.map(|_| ())
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

    #[test]
    fn ob_98_a_position_of_an_earlier_release_is_read_and_kept() {
        let before: EntityPosition = serde_json::from_str(r#"{"after":"7","events":7,"done":true}"#).unwrap();
        assert!(before.position.done && !before.by_workflow);
        let state = serde_json::to_string(&EntityPosition { by_workflow: true, ..before }).unwrap();
        let read: Position = serde_json::from_str(&state).unwrap();
        assert!(read.done && read.after.as_deref() == Some("7"), "an earlier release reads it, too: {state}");
    }
}

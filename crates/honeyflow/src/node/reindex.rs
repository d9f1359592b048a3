//! Queues one event per row for one workflow, behind live events (reindex priority), while live traffic continues. Such
//! an event names its workflow: it leads to its own document alone, and to no other workflow.
//!
//! The position is stored for each entity and workflow, so that an interrupted reindex continues where it stopped. The
//! same position says whether the workflow has had every row once.

use std::{num::NonZeroU32, time::Duration};

use honeyflow_event::{Changes, Key, Kind, Name, PRIORITY_REINDEX, Priority, document};
use honeyflow_runtime::Failure;
use honeyflow_source_outbox::Entity;
use honeyflow_store::{Admin, AdminReply, Idempotency, NewEvent, Reply, Request, Store};
use serde::{Deserialize, Serialize};

use super::patience::Patience;
use crate::{codes, registry::Database};

const PAGE: u32 = 1000;
/// While more of its events are waiting, no further page is queued.
const WAITING_MAX: u64 = 20_000;
/// A reindex that makes no progress for this long ends; the next one continues.
const NO_PROGRESS_MAX: Duration = Duration::from_secs(10 * 60);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long another node may take to store its position after a page.
const OTHER_NODE_MAX: Duration = Duration::from_secs(5);
/// The noun of the task that stores a position; its name is `entity/workflow`.
const TASK_NOUN: &str = "reindex";

/// How far the rows of an entity have been queued for a workflow.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Position {
    after: Option<String>,
    events: u64,
    done: bool,
    /// Counts how often the rows were queued from the first one on.
    #[serde(default)]
    round: u32,
}

impl Position {
    /// Whether every row has been queued at least once.
    pub fn is_done(&self) -> bool {
        self.done
    }

    fn next_round(&self) -> Position {
        Position { round: self.round.wrapping_add(1), ..Position::default() }
    }

    fn is_further_than(&self, other: &Position) -> bool {
        let more = self.done || self.events > other.events;
        self.round > other.round || (self.round == other.round && more)
    }
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
        let position = self.begin(self.position().await?).await?;
        self.store_events(position, WAITING_MAX, rate, progress).await
    }

    /// Stores all events without waiting, for use while no node processes them yet. Nodes that do so at the same time,
    /// from the same position, store each page once.
    pub async fn queue_all(&self, from: Position) -> Result<u64, Failure> {
        let position = self.begin(from).await?;
        self.store_events(position, u64::MAX, None, |_| {}).await
    }

    /// Begins again at the first row if every row has been queued.
    async fn begin(&self, from: Position) -> Result<Position, Failure> {
        if !from.done {
            return Ok(from);
        }
        let position = from.next_round();
        self.put(&position).await?;
        Ok(position)
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

    /// Records that the workflow has had none of the rows.
    pub async fn forget(&self) -> Result<(), Failure> {
        self.put(&self.position().await?.next_round()).await
    }

    /// Records that the workflow has had every row.
    pub async fn note_done(&self) -> Result<(), Failure> {
        let round = self.position().await?.round;
        self.put(&Position { done: true, round, ..Position::default() }).await
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
        mut position: Position,
        waiting_max: u64,
        rate: Option<NonZeroU32>,
        mut progress: impl FnMut(QueueProgress),
    ) -> Result<u64, Failure> {
        let page = rate.map_or(PAGE, |rate| PAGE.min(rate.get()));
        // Another node may have queued the last rows meanwhile.
        while !position.done {
            let began = tokio::time::Instant::now();
            if waiting_max < u64::MAX {
                self.until_fewer_wait(waiting_max, position.events, &mut progress).await?;
            }
            let keys = self.keys(position.after.clone().map(Key::from), page).await?;
            let Some(last) = keys.last() else { break };
            let (after, rows) = (Some(last.to_string()), keys.len());
            let next = Position { after, events: position.events + rows as u64, ..position.clone() };
            position = self.store_page(&position, next, keys).await?;
            if let Some(rate) = rate {
                tokio::time::sleep(pause(rows, rate, began.elapsed())).await;
            }
        }
        position.done = true;
        self.put(&position).await?;
        Ok(position.events)
    }

    /// Stores the events of one page and returns the position after it. A page that another node has stored, or this
    /// one before a crash, is not stored again.
    async fn store_page(&self, from: &Position, next: Position, keys: Vec<Key>) -> Result<Position, Failure> {
        let store = &self.database.store;
        let texts: Vec<&str> = keys.iter().map(|key| &**key).collect();
        let body_hash = document::hash(&texts.into());
        let (round, after) = (from.round, from.after.as_deref().unwrap_or_default());
        let key = format!("honeyflow: {TASK_NOUN}/{}/{round}/{after}", self.task_name());
        let events: Vec<NewEvent> =
            keys.into_iter().map(|key| event(self.entity, key, PRIORITY_REINDEX, self.workflow)).collect();
        let idempotency = Some(Idempotency { key, body_hash });
        let further = match store.call(Request::Append { events: events.clone(), idempotency }).await? {
            Reply::Appended { repeated: false, .. } => None,
            Reply::Appended { repeated: true, .. } => {
                Some(self.position().await?).filter(|stored| stored.is_further_than(&next))
            }
            Reply::Conflict => {
                let further = self.until_further_than(from).await?;
                if further.is_none() {
                    append(store, events).await?;
                }
                further
            }
            other => return Err(honeyflow_store::mismatched_reply(&other)),
        };
        if let Some(further) = further {
            return Ok(further);
        }
        self.put(&next).await?;
        Ok(next)
    }

    /// Waits until the node that has stored other rows after this position says how far it is. None if it does not, as
    /// after a crash: the rows may then be queued twice, but none is left out.
    async fn until_further_than(&self, from: &Position) -> Result<Option<Position>, Failure> {
        let begun = tokio::time::Instant::now();
        loop {
            let stored = self.position().await?;
            if stored.is_further_than(from) {
                return Ok(Some(stored));
            }
            if begun.elapsed() > OTHER_NODE_MAX {
                return Ok(None);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn task_name(&self) -> String {
        format!("{}/{}", self.entity.name, self.workflow)
    }

    /// The stored position.
    pub async fn position(&self) -> Result<Position, Failure> {
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
    use crate::{config, node::source::OpenSource, registry};

    const FILE: &str = r#"
        [source.shop]
        url = "sqlite:shop.db"
        [entity.book]
        source = "shop"
        key = ["id"]
        document = "select id from book where id in $keys"
    "#;

    /// Two nodes that have read the same position, on one file as on one server.
    #[tokio::test]
    async fn ob_114_nodes_that_fill_at_the_same_time_queue_each_row_once() {
        let home = tempfile::tempdir().unwrap();
        let shop = rusqlite::Connection::open(home.path().join("shop.db")).unwrap();
        shop.execute_batch("create table book(id integer primary key);").unwrap();
        let insert = |from, to| {
            let rows = "insert into book with recursive n(i) as (values(?1) union all select i + 1 from n where i < ?2)
                        select i from n";
            shop.execute(rows, [from, to]).unwrap();
        };
        let queued =
            || shop.query_row("select count(*) from honeyflow_outbox", [], |row| row.get::<_, i64>(0)).unwrap();
        insert(1, 2500);
        let file = home.path().join("honeyflow.toml");
        let Ok(loaded) = config::parse(&file, FILE.to_owned(), &registry::kinds()) else { panic!("no TOML") };
        let problems = format!("{:?}", loaded.problems);
        let config = loaded.config.expect(&problems);
        let open = OpenSource::open(&config, &config.sources[0]).await.unwrap();
        open.database.install(Vec::new(), false).await.unwrap();
        let workflow = Name::from("book");
        let rows = Rows { database: &open.database, entity: &open.bound[0].entity, workflow: &workflow };

        let before = rows.position().await.unwrap();
        let (one, other) = tokio::join!(rows.queue_all(before.clone()), rows.queue_all(before.clone()));
        assert_eq!((one.unwrap(), other.unwrap(), queued()), (2500, 2500, 2500));
        rows.queue_all(before.clone()).await.unwrap();
        assert_eq!(queued(), 2500, "it had read the position before the fill, and comes late");
        // The node ended after it had stored the first page, and before it noted that.
        rows.put(&before).await.unwrap();
        rows.queue_all(rows.position().await.unwrap()).await.unwrap();
        assert_eq!(queued(), 2500);

        let done = rows.position().await.unwrap();
        assert!(done.is_done());
        rows.queue_all(done.clone()).await.unwrap();
        assert_eq!(queued(), 5000, "the next round");
        // This node reads other pages.
        shop.execute("delete from book where id = 7", []).unwrap();
        rows.queue_all(done.next_round()).await.unwrap();
        assert_eq!(queued(), 5000);
        // Other pages after a crash: rows are queued twice, and none is left out.
        rows.put(&done.next_round()).await.unwrap();
        insert(3000, 3000);
        rows.queue_all(done.next_round()).await.unwrap();
        let new = "select count(*) from honeyflow_outbox where entity_key = '3000'";
        assert_eq!(shop.query_row(new, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
        assert!(rows.position().await.unwrap().is_done() && queued() > 5000);
    }

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

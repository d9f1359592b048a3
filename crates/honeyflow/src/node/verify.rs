//! Compares a table and a sink in both directions: first it pages through the table and looks up each key in the sink,
//! then it pages through the sink and looks up each key in the table, because the two have no common order. A
//! difference counts only if it remains after the waiting events of its key. A repair is a new event. A flood of
//! documents without rows is repaired only after an operator confirms it (see [`delete_guard`]).

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use honeyflow_event::{Document, EventId, Key, Name, PRIORITY_DEFAULT, Stamp, document};
use honeyflow_runtime::{Class, Failure};
use honeyflow_sink::Sink;
use honeyflow_step_http::codes::EXPRESSION_FAILED;
use honeyflow_store::{Admin, AdminReply, Load, LoadResult, Reply, Request, Store, admin::ParkedFilter};
use honeyflow_workflow::{Expression, Graph, Role, Variables};
use serde::Serialize;

use super::{
    delete_guard,
    patience::Patience,
    reindex::{append, ask, event, misplaced},
};
use crate::registry::BoundEntity;

const PAGE: u32 = 500;
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest number of differences that are checked again and listed.
const DIFFERENCES_MAX: usize = 100_000;
/// How long waiting events may explain a difference.
const PENDING_MAX: Duration = Duration::from_secs(60);
/// The number of repairs that are stored, or looked up, at once.
const REPAIRS_AT_ONCE: usize = 1000;
/// How long a repair waits for its rows while none of them is processed: longer than the attempts of a step take.
const REPAIR_MAX: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A row without a document.
    Missing,
    /// A document that is not what its row gives.
    Stale,
    /// A document without a row.
    Extra,
    /// A row that gives no document: it cannot be loaded or transformed, or the sink cannot store the result.
    Unreadable,
}

/// What is wrong with a row that gives no document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Reason {
    pub code: String,
    pub message: String,
}

impl From<Failure> for Reason {
    fn from(failure: Failure) -> Reason {
        Reason { code: failure.code.to_string(), message: failure.message }
    }
}

/// Why a document still differs from its row after the repair.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NotRepaired {
    /// The repair is parked under this id.
    Parked { id: i64, code: String, message: String },
    /// The repair was not processed in time.
    Waiting,
    /// The repair was processed.
    Different,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    Compared(u64),
    /// Differences that waiting events may explain.
    Unexplained(u64),
}

#[derive(Serialize)]
pub struct VerifyReport {
    pub entity: Name,
    pub rows: u64,
    pub documents: u64,
    pub missing: u64,
    pub stale: u64,
    pub extra: u64,
    pub unreadable: u64,
    pub repaired: u64,
    /// Documents without a row that the delete guard holds back.
    #[serde(skip_serializing_if = "is_zero")]
    pub held: u64,
    /// `content` if contents were compared, `presence` if only the existence of documents was.
    pub compared: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub differences: BTreeMap<String, Kind>,
    /// Why a row is unreadable, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, Reason>,
    /// The differences that a repair has not removed, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub not_repaired: BTreeMap<String, NotRepaired>,
}

impl VerifyReport {
    pub fn is_equal(&self) -> bool {
        self.missing + self.stale + self.extra + self.unreadable == 0
    }

    /// Whether nothing differs any more after a repair.
    pub fn is_repaired(&self) -> bool {
        self.not_repaired.is_empty() && self.held == 0
    }
}

/// How a document is built from a row: by the load and the transforms after it, or in a way that cannot be repeated
/// here.
enum Recipe {
    Content(Vec<Expression>),
    Presence,
}

/// What the sink should hold for a key.
enum Wanted {
    Nothing,
    /// A document with any content.
    Any,
    Document(Arc<serde_json::Value>),
    /// The row gives no document: it is parked, and the sink may still hold the last valid one.
    Unreadable(Reason),
}

/// The differences between a table and a sink.
#[derive(Default)]
struct Differences {
    kinds: BTreeMap<String, Kind>,
    reasons: BTreeMap<String, Reason>,
    /// The stamps of the documents when the difference was found first, and by the last comparison.
    stamps: BTreeMap<String, (Option<Stamp>, Option<Stamp>)>,
}

impl Differences {
    fn note(&mut self, key: &str, held: Option<Stamp>, difference: Option<(Kind, Option<Reason>)>) {
        self.reasons.remove(key);
        match difference {
            Some((kind, reason)) if self.kinds.len() < DIFFERENCES_MAX || self.kinds.contains_key(key) => {
                self.kinds.insert(key.to_owned(), kind);
                self.stamps.entry(key.to_owned()).or_insert((held, held)).1 = held;
                self.reasons.extend(reason.map(|reason| (key.to_owned(), reason)));
            }
            Some(_) => {}
            None => {
                self.kinds.remove(key);
                self.stamps.remove(key);
            }
        }
    }

    /// Forgets the differences of documents that were written since: their rows keep changing, and every change is
    /// followed.
    fn forget_written(&mut self) {
        let stamps = &self.stamps;
        self.kinds
            .retain(|key, kind| *kind == Kind::Unreadable || stamps.get(key).is_none_or(|(first, last)| first == last));
    }

    fn keys(&self) -> Vec<Key> {
        self.kinds.keys().map(|key| key.as_str().into()).collect()
    }
}

/// The rows that a repair has queued, by key.
#[derive(Default)]
pub struct Repairs {
    rows: BTreeMap<String, EventId>,
}

impl Repairs {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

pub struct Verification<'a> {
    pub store: &'a dyn Store,
    pub bound: &'a BoundEntity,
    pub sink: &'a dyn Sink,
    pub graph: &'a Graph,
}

impl Verification<'_> {
    /// Runs the comparison.
    pub async fn run(&self, mut progress: impl FnMut(Stage)) -> Result<VerifyReport, Failure> {
        let recipe = recipe(self.graph);
        let mut found = Differences::default();
        let (mut rows, mut documents) = (0, 0);
        let mut after = None;
        loop {
            let entity = &self.bound.entity;
            let page = Admin::TableKeys { table: entity.table.clone(), key: entity.key.clone(), after, limit: PAGE };
            let AdminReply::Keys(keys) = ask(self.store, page).await? else { return Err(misplaced()) };
            let Some(last) = keys.last().cloned() else { break };
            rows += keys.len() as u64;
            self.compare(&keys, &recipe, &mut found).await?;
            after = Some(last);
            progress(Stage::Compared(rows + documents));
        }
        let mut cursor = None;
        loop {
            let (hits, next) = self.sink.list(cursor, PAGE).await?;
            documents += hits.len() as u64;
            let keys: Vec<Key> = hits.iter().map(|hit| hit.key.as_str().into()).collect();
            self.compare(&keys, &recipe, &mut found).await?;
            progress(Stage::Compared(rows + documents));
            match next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        self.wait_for_events(&recipe, &mut found, &mut progress).await?;
        let count = |kind| found.kinds.values().filter(|found| **found == kind).count() as u64;
        Ok(VerifyReport {
            entity: self.bound.entity.name.clone(),
            rows,
            documents,
            missing: count(Kind::Missing),
            stale: count(Kind::Stale),
            extra: count(Kind::Extra),
            unreadable: count(Kind::Unreadable),
            repaired: 0,
            held: 0,
            compared: if matches!(recipe, Recipe::Content(_)) { "content" } else { "presence" },
            differences: found.kinds,
            reasons: found.reasons,
            not_repaired: BTreeMap::new(),
        })
    }

    /// Notes each key that differs, and forgets the keys that do not differ.
    async fn compare(&self, keys: &[Key], recipe: &Recipe, found: &mut Differences) -> Result<(), Failure> {
        if keys.is_empty() {
            return Ok(());
        }
        let wanted = self.wanted(keys, recipe).await?;
        let held = self.sink.stat(keys.to_vec()).await?;
        for ((key, wanted), held) in keys.iter().zip(wanted).zip(held) {
            let stamp = held.as_ref().map(|held| held.stamp);
            let difference = match (wanted, held) {
                (Wanted::Unreadable(reason), _) => Some((Kind::Unreadable, Some(reason))),
                (Wanted::Nothing, None) | (Wanted::Any, Some(_)) => None,
                (Wanted::Nothing, Some(_)) => Some((Kind::Extra, None)),
                (Wanted::Any, None) => Some((Kind::Missing, None)),
                (Wanted::Document(wanted), held) => match (self.sink.as_held(&wanted), held) {
                    (Err(failure), _) if failure.class == Class::Reject => {
                        Some((Kind::Unreadable, Some(failure.into())))
                    }
                    (Err(failure), _) => return Err(failure),
                    (Ok(_), None) => Some((Kind::Missing, None)),
                    (Ok(wanted), Some(held)) => (document::hash(&wanted) != held.hash).then_some((Kind::Stale, None)),
                },
            };
            found.note(key, stamp, difference);
        }
        Ok(())
    }

    async fn wanted(&self, keys: &[Key], recipe: &Recipe) -> Result<Vec<Wanted>, Failure> {
        let statement = self.bound.document.clone();
        let load = Load { statement, keys: keys.to_vec(), expand: None, timeout: LOAD_TIMEOUT };
        let Reply::Loaded(loaded) = self.store.call(Request::Load(load)).await? else { return Err(misplaced()) };
        let made = loaded.into_iter().map(|loaded| match (loaded, recipe) {
            (LoadResult::Document(None), _) => Wanted::Nothing,
            (LoadResult::Document(Some(row)), Recipe::Content(transforms)) => match transformed(&row, transforms) {
                Ok(Some(document)) => Wanted::Document(document),
                Ok(None) => Wanted::Nothing,
                Err(message) => Wanted::Unreadable(Failure::reject(EXPRESSION_FAILED, message).into()),
            },
            (LoadResult::Document(Some(_)), Recipe::Presence) => Wanted::Any,
            (LoadResult::Rejected(failure), _) => Wanted::Unreadable(failure.into()),
        });
        Ok(made.collect())
    }

    /// Waits while waiting events may explain the differences, and removes those that disappear.
    async fn wait_for_events(
        &self,
        recipe: &Recipe,
        found: &mut Differences,
        progress: &mut impl FnMut(Stage),
    ) -> Result<(), Failure> {
        let compared_at = Instant::now();
        // No event changes what a row gives.
        let is_open = |found: &Differences| found.kinds.values().any(|kind| *kind != Kind::Unreadable);
        while is_open(found) && compared_at.elapsed() < PENDING_MAX {
            progress(Stage::Unexplained(found.kinds.len() as u64));
            let AdminReply::Lag(lag) = ask(self.store, Admin::Lag).await? else { return Err(misplaced()) };
            // Events that were written after the comparison explain nothing: steady traffic is not waited for.
            let is_newer = Duration::from_millis(lag.oldest_ms) < compared_at.elapsed();
            self.compare_again(&found.keys(), recipe, found).await?;
            if lag.waiting == 0 || is_newer {
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        found.forget_written();
        Ok(())
    }

    async fn compare_again(&self, keys: &[Key], recipe: &Recipe, found: &mut Differences) -> Result<(), Failure> {
        for keys in keys.chunks(PAGE as usize) {
            self.compare(keys, recipe, found).await?;
        }
        Ok(())
    }

    /// Queues an event for each difference, for the compared workflow alone. Documents that the delete guard holds back
    /// are only counted.
    pub async fn queue_repairs(&self, report: &mut VerifyReport) -> Result<Repairs, Failure> {
        let entity = &self.bound.entity;
        let removes =
            delete_guard::may_remove(self.store, &entity.name, usize::try_from(report.extra).unwrap_or(usize::MAX));
        let removes = removes.await?;
        report.held = if removes { 0 } else { report.extra };
        let repaired = report.differences.iter().filter(|(_, kind)| removes || **kind != Kind::Extra);
        let keys: Vec<&String> = repaired.map(|(key, _)| key).collect();
        let mut repairs = Repairs::default();
        for keys in keys.chunks(REPAIRS_AT_ONCE) {
            let event = |key: &&String| event(entity, key.as_str().into(), PRIORITY_DEFAULT, &self.graph.name);
            let ids = append(self.store, keys.iter().map(event).collect()).await?;
            repairs.rows.extend(keys.iter().map(|key| (*key).clone()).zip(ids));
        }
        Ok(repairs)
    }

    /// Compares the repaired keys again: what is equal now was repaired, of all others the report says why not.
    pub async fn check_repairs(&self, repairs: &Repairs, report: &mut VerifyReport) -> Result<(), Failure> {
        let recipe = recipe(self.graph);
        // With new stamps: the repairs have written the documents, too.
        let mut left = Differences::default();
        let keys: Vec<Key> = repairs.rows.keys().map(|key| key.as_str().into()).collect();
        self.compare_again(&keys, &recipe, &mut left).await?;
        if !left.kinds.is_empty() {
            let rows: Vec<EventId> = left.kinds.keys().filter_map(|key| repairs.rows.get(key)).copied().collect();
            let waiting = still_waiting(self.store, &rows).await?;
            let mut parked = self.parked().await?;
            for key in left.kinds.keys() {
                let is_waiting = repairs.rows.get(key).is_some_and(|row| waiting.contains(row));
                let why = if is_waiting { Some(NotRepaired::Waiting) } else { parked.remove(key) };
                report.not_repaired.extend(why.map(|why| (key.clone(), why)));
            }
            report.reasons.extend(left.reasons.clone());
            left.kinds.retain(|key, _| !report.not_repaired.contains_key(key));
            self.forget_followed(&recipe, repairs, &mut left).await?;
            report.not_repaired.extend(left.kinds.into_keys().map(|key| (key, NotRepaired::Different)));
        }
        report.repaired = (repairs.rows.len() - report.not_repaired.len()) as u64;
        Ok(())
    }

    /// Forgets the differences that changes since the repair explain: such a change waits, or was processed meanwhile.
    async fn forget_followed(&self, recipe: &Recipe, repairs: &Repairs, left: &mut Differences) -> Result<(), Failure> {
        self.wait_for_events(recipe, left, &mut |_| {}).await?;
        for key in left.keys() {
            let Some(repair) = repairs.rows.get(&*key) else { continue };
            if self.last_waiting(&key).await?.is_some_and(|last| last > *repair) {
                left.kinds.remove(&*key);
            }
        }
        // A change that was processed between the last comparison and the look at the events.
        self.compare_again(&left.keys(), recipe, left).await?;
        left.forget_written();
        Ok(())
    }

    /// The newest event of the key that waits.
    async fn last_waiting(&self, key: &Key) -> Result<Option<EventId>, Failure> {
        let mut last = None;
        // Triggers store the table's name in an event.
        for entity in [self.bound.entity.name.clone(), self.bound.entity.table.as_str().into()] {
            let page = Admin::Events { entity, key: key.clone(), limit: PAGE };
            let AdminReply::Events(events) = ask(self.store, page).await? else { return Err(misplaced()) };
            last = last.max(events.iter().map(|event| event.id).max());
        }
        Ok(last)
    }

    /// The parked entries of the entity and the workflow, by key.
    async fn parked(&self) -> Result<BTreeMap<String, NotRepaired>, Failure> {
        let (entity, workflow) = (Some(self.bound.entity.name.clone()), Some(self.graph.name.clone()));
        let filter = ParkedFilter { entity, workflow, ..ParkedFilter::default() };
        let (mut found, mut after) = (BTreeMap::new(), 0);
        loop {
            let page = Admin::Parked { filter: filter.clone(), after, limit: PAGE };
            let AdminReply::Parked(rows) = ask(self.store, page).await? else { return Err(misplaced()) };
            let Some(last) = rows.last() else { return Ok(found) };
            after = last.id;
            let parked = |row: honeyflow_store::admin::ParkedRow| {
                (row.key, NotRepaired::Parked { id: row.id, code: row.code, message: row.message })
            };
            found.extend(rows.into_iter().map(parked));
        }
    }
}

/// Waits until the rows of these repairs are processed, or none of them was for a long time. `progress` receives the
/// number of rows left.
pub async fn until_processed<'r>(
    store: &dyn Store,
    repairs: impl IntoIterator<Item = &'r Repairs>,
    mut progress: impl FnMut(u64),
) -> Result<(), Failure> {
    let mut left: Vec<EventId> = repairs.into_iter().flat_map(|repairs| repairs.rows.values().copied()).collect();
    let mut patience = Patience::new(REPAIR_MAX);
    loop {
        left = still_waiting(store, &left).await?;
        progress(left.len() as u64);
        if left.is_empty() || !patience.allows(left.len() as u64) {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The rows among these that are still in the outbox.
async fn still_waiting(store: &dyn Store, rows: &[EventId]) -> Result<Vec<EventId>, Failure> {
    let mut waiting = Vec::new();
    for events in rows.chunks(REPAIRS_AT_ONCE) {
        match ask(store, Admin::Waiting { events: events.to_vec() }).await? {
            AdminReply::Ids(ids) => waiting.extend(ids),
            _ => return Err(misplaced()),
        }
    }
    Ok(waiting)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Whether the documents of the workflow can be verified. Documents built from messages have no rows to compare with;
/// and if `when` selects events, the rows do not show which documents should exist.
pub fn is_possible(graph: &Graph) -> bool {
    graph.steps.iter().any(|step| step.role == Role::Load) && graph.on.iter().any(|on| on.when.is_none())
}

fn recipe(graph: &Graph) -> Recipe {
    let mut transforms = Vec::new();
    for step in graph.topological().iter().map(|id| &graph.steps[*id as usize]) {
        // The expression may use only the row: here there is no event and no run.
        let of_row = step.expressions.iter().all(|(_, expression)| expression.variables().next().is_none());
        let plain = of_row && step.when.is_none() && step.input.is_none() && step.for_each.is_none();
        match step.role {
            Role::Load | Role::Sink if plain => {}
            Role::Work
                if plain
                    && &*step.kind == "transform"
                    && graph.needs(graph.step(&step.name).unwrap_or(0)).len() == 1 =>
            {
                transforms.extend(step.expressions.iter().map(|(_, expression)| expression.clone()));
            }
            _ => return Recipe::Presence,
        }
    }
    Recipe::Content(transforms)
}

/// Applies the transforms as the workflow does; null is no document.
fn transformed(row: &Arc<serde_json::Value>, transforms: &[Expression]) -> Result<Document, String> {
    let mut value = row.clone();
    for expression in transforms {
        value = Arc::new(expression.evaluate(&value, &Variables::default())?);
    }
    Ok((!value.is_null()).then_some(value))
}

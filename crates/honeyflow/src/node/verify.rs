//! Compares a table and a sink in both directions: first it pages through the table and looks up each key in the sink,
//! then it pages through the sink and looks up each key in the table, because the two have no common order. A
//! difference counts only if it remains after the waiting events of its key. A repair is a new event. A flood of
//! documents without rows is repaired only after an operator confirms it (see [`delete_guard`]).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use honeyflow_event::{Document, Key, Name, PRIORITY_DEFAULT, document};
use honeyflow_runtime::{Class, Failure};
use honeyflow_sink::Sink;
use honeyflow_store::{Admin, AdminReply, Load, LoadResult, Reply, Request, Store};
use honeyflow_workflow::{Expression, Graph, Role, Variables};
use serde::Serialize;

use super::{
    delete_guard,
    reindex::{ask, event},
};
use crate::{codes, registry::BoundEntity};

const PAGE: u32 = 500;
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest number of differences that are checked again and listed.
const DIFFERENCES_MAX: usize = 100_000;
/// How long waiting events may explain a difference.
const PENDING_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A row without a document.
    Missing,
    /// A document that is not what its row gives.
    Stale,
    /// A document without a row.
    Extra,
}

#[derive(Serialize)]
pub struct VerifyReport {
    pub entity: Name,
    pub rows: u64,
    pub documents: u64,
    pub missing: u64,
    pub stale: u64,
    pub extra: u64,
    pub repaired: u64,
    /// Documents without a row that the delete guard holds back.
    #[serde(skip_serializing_if = "is_zero")]
    pub held: u64,
    /// `content` if contents were compared, `presence` if only the existence of documents was.
    pub compared: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub differences: BTreeMap<String, Kind>,
}

impl VerifyReport {
    pub fn is_equal(&self) -> bool {
        self.missing + self.stale + self.extra == 0
    }
}

/// How a document is built from a row: by the load and the transforms after it, or in a way that cannot be repeated
/// here.
enum Recipe {
    Content(Vec<Expression>),
    Presence,
}

pub struct Verification<'a> {
    pub store: &'a dyn Store,
    pub bound: &'a BoundEntity,
    pub sink: &'a dyn Sink,
    pub graph: &'a Graph,
}

impl Verification<'_> {
    /// Runs the comparison. `progress` receives the number of rows and documents compared.
    pub async fn run(&self, repair: bool, mut progress: impl FnMut(u64)) -> Result<VerifyReport, Failure> {
        let recipe = recipe(self.graph);
        let mut found = BTreeMap::new();
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
            progress(rows + documents);
        }
        let mut cursor = None;
        loop {
            let (hits, next) = self.sink.list(cursor, PAGE).await?;
            documents += hits.len() as u64;
            let keys: Vec<Key> = hits.iter().map(|hit| hit.key.as_str().into()).collect();
            self.compare(&keys, &recipe, &mut found).await?;
            progress(rows + documents);
            match next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        self.wait_for_events(&recipe, &mut found).await?;
        let (repaired, held) = if repair { self.repair(&found).await? } else { (0, 0) };
        let count = |kind| found.values().filter(|found| **found == kind).count() as u64;
        Ok(VerifyReport {
            entity: self.bound.entity.name.clone(),
            rows,
            documents,
            missing: count(Kind::Missing),
            stale: count(Kind::Stale),
            extra: count(Kind::Extra),
            repaired,
            held,
            compared: if matches!(recipe, Recipe::Content(_)) { "content" } else { "presence" },
            differences: found,
        })
    }

    /// Adds each key that differs to `found`, and removes the keys that do not differ.
    async fn compare(&self, keys: &[Key], recipe: &Recipe, found: &mut BTreeMap<String, Kind>) -> Result<(), Failure> {
        if keys.is_empty() {
            return Ok(());
        }
        let wanted = self.wanted(keys, recipe).await?;
        let held = self.sink.stat(keys.to_vec()).await?;
        for ((key, wanted), held) in keys.iter().zip(wanted).zip(held) {
            let difference = match (wanted, held, recipe) {
                (None, None, _) => None,
                (Some(_), None, _) => Some(Kind::Missing),
                (None, Some(_), _) => Some(Kind::Extra),
                (Some(Some(wanted)), Some(held), Recipe::Content(_)) => match self.sink.as_held(&wanted) {
                    Ok(wanted) => (document::hash(&wanted) != held.hash).then_some(Kind::Stale),
                    // A document that the sink cannot store is parked; the sink may hold the last valid one.
                    Err(failure) if failure.class == Class::Reject => None,
                    Err(failure) => return Err(failure),
                },
                _ => None,
            };
            match difference {
                Some(kind) if found.len() < DIFFERENCES_MAX => {
                    found.insert(key.to_string(), kind);
                }
                Some(_) => {}
                None => {
                    found.remove(&**key);
                }
            }
        }
        Ok(())
    }

    /// What the sink should hold for each key: no document, any document, or this document.
    async fn wanted(&self, keys: &[Key], recipe: &Recipe) -> Result<Vec<Option<Document>>, Failure> {
        let statement = self.bound.document.clone();
        let load = Load { statement, keys: keys.to_vec(), expand: None, timeout: LOAD_TIMEOUT };
        let Reply::Loaded(loaded) = self.store.call(Request::Load(load)).await? else { return Err(misplaced()) };
        let made = loaded.into_iter().map(|loaded| match loaded {
            LoadResult::Document(None) => None,
            LoadResult::Document(Some(row)) => Some(match recipe {
                Recipe::Content(transforms) => transformed(&row, transforms),
                Recipe::Presence => None,
            }),
            // A row that gives no document is parked; the sink may still hold the last valid document.
            LoadResult::Rejected(_) => Some(None),
        });
        Ok(made.collect())
    }

    /// Waits while waiting events may explain the differences, and removes those that disappear.
    async fn wait_for_events(&self, recipe: &Recipe, found: &mut BTreeMap<String, Kind>) -> Result<(), Failure> {
        let pause = Duration::from_millis(500);
        let mut waited = Duration::ZERO;
        while !found.is_empty() && waited < PENDING_MAX {
            let AdminReply::Lag(lag) = ask(self.store, Admin::Lag).await? else { return Err(misplaced()) };
            let keys: Vec<Key> = found.keys().map(|key| key.as_str().into()).collect();
            for keys in keys.chunks(PAGE as usize) {
                self.compare(keys, recipe, found).await?;
            }
            if lag.waiting + lag.delayed == 0 {
                break;
            }
            tokio::time::sleep(pause).await;
            waited += pause;
        }
        Ok(())
    }

    /// Queues an event for each difference. Returns the number of repaired and of held documents.
    async fn repair(&self, found: &BTreeMap<String, Kind>) -> Result<(u64, u64), Failure> {
        let entity = &self.bound.entity;
        let extra = found.values().filter(|kind| **kind == Kind::Extra).count();
        let removes = delete_guard::may_remove(self.store, &entity.name, extra).await?;
        let repaired = found.iter().filter(|(_, kind)| removes || **kind != Kind::Extra);
        let keys: Vec<&String> = repaired.map(|(key, _)| key).collect();
        for keys in keys.chunks(1000) {
            let events = keys.iter().map(|key| event(entity, key.as_str().into(), PRIORITY_DEFAULT)).collect();
            self.store.call(Request::Append { events, idempotency: None }).await?;
        }
        Ok((keys.len() as u64, if removes { 0 } else { extra as u64 }))
    }
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

fn transformed(row: &Arc<serde_json::Value>, transforms: &[Expression]) -> Document {
    let mut value = row.clone();
    for expression in transforms {
        value = Arc::new(expression.evaluate(&value, &Variables::default()).ok()?);
    }
    Some(value)
}

fn misplaced() -> Failure {
    Failure::fatal(codes::MISPLACED_REPLY, "the store sent a reply that does not fit the request")
}

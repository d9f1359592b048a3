//! Database and sink compared, both ways: the table is paged and the sink asked, then the sink is paged and the table
//! asked, since the two have no order in common. A difference counts if it outlives the events of its key; a repair is
//! an event. A flood of documents without rows is not repaired before someone confirms.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use honeyflow_event::{Document, Key, Name, PRIORITY_DEFAULT, document};
use honeyflow_runtime::{Class, Failure};
use honeyflow_sink::Sink;
use honeyflow_store::{Admin, AdminReply, Load, Loaded, Reply, Request, Store};
use honeyflow_workflow::{Expression, Graph, Role, Variables};
use serde::Serialize;

use super::{
    hold,
    reindex::{ask, event},
};
use crate::registry::Bound;

const PAGE: u32 = 500;
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Differences that are looked at again, and listed.
const DIFFERENCES_MAX: usize = 100_000;
/// How long a difference may be explained by events that are still on their way.
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
pub struct Verified {
    pub entity: Name,
    pub rows: u64,
    pub documents: u64,
    pub missing: u64,
    pub stale: u64,
    pub extra: u64,
    pub repaired: u64,
    /// Documents without a row that were left where they are.
    #[serde(skip_serializing_if = "is_zero")]
    pub held: u64,
    /// Whether contents were compared, or only that a document is there.
    pub compared: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub differences: BTreeMap<String, Kind>,
}

impl Verified {
    pub fn is_equal(&self) -> bool {
        self.missing + self.stale + self.extra == 0
    }
}

/// How a document is made of a row: by the load and the transforms behind it, or in ways that cannot be repeated here.
enum Recipe {
    Content(Vec<Expression>),
    Presence,
}

pub struct Verification<'a> {
    pub store: &'a dyn Store,
    pub bound: &'a Bound,
    pub sink: &'a dyn Sink,
    pub graph: &'a Graph,
}

impl Verification<'_> {
    /// `progress` hears how many rows and documents were looked at.
    pub async fn run(&self, repair: bool, mut progress: impl FnMut(u64)) -> Result<Verified, Failure> {
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
        self.outlive_events(&recipe, &mut found).await?;
        let (repaired, held) = if repair { self.repair(&found).await? } else { (0, 0) };
        let count = |kind| found.values().filter(|found| **found == kind).count() as u64;
        Ok(Verified {
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

    /// Notes each key that differs, and forgets those that do not.
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
                    // What cannot be held is parked; the sink may hold the last good one.
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

    /// What should be in the sink: nothing, something, or this document.
    async fn wanted(&self, keys: &[Key], recipe: &Recipe) -> Result<Vec<Option<Document>>, Failure> {
        let statement = self.bound.document.clone();
        let load = Load { statement, keys: keys.to_vec(), expand: None, timeout: LOAD_TIMEOUT };
        let Reply::Loaded(loaded) = self.store.call(Request::Load(load)).await? else { return Err(misplaced()) };
        let made = loaded.into_iter().map(|loaded| match loaded {
            Loaded::Document(None) => None,
            Loaded::Document(Some(row)) => Some(match recipe {
                Recipe::Content(transforms) => transformed(&row, transforms),
                Recipe::Presence => None,
            }),
            // A row that makes no document is parked; the sink should not hold one either, but may hold the last good one.
            Loaded::Rejected(_) => Some(None),
        });
        Ok(made.collect())
    }

    /// Events on their way explain a difference for a while.
    async fn outlive_events(&self, recipe: &Recipe, found: &mut BTreeMap<String, Kind>) -> Result<(), Failure> {
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

    /// How many were repaired, and how many are held.
    async fn repair(&self, found: &BTreeMap<String, Kind>) -> Result<(u64, u64), Failure> {
        let entity = &self.bound.entity;
        let extra = found.values().filter(|kind| **kind == Kind::Extra).count();
        let removes = hold::may_remove(self.store, &entity.name, extra).await?;
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

/// Documents that are made of messages have no rows to be compared with; and where events are chosen by `when`, rows do
/// not tell what should be there.
pub fn is_possible(graph: &Graph) -> bool {
    graph.steps.iter().any(|step| step.role == Role::Load) && graph.on.iter().any(|on| on.when.is_none())
}

fn recipe(graph: &Graph) -> Recipe {
    let mut transforms = Vec::new();
    for step in graph.topological().iter().map(|id| &graph.steps[*id as usize]) {
        // Of the row alone, without the event and the run that there are none of here.
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
    Failure::fatal("misplaced-reply", "the store answered another question")
}

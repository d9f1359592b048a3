//! Finds what each row leads to, in two passes without I/O. The first collects the edge queries, which the shell then
//! executes; the second makes leads of the answers.
//!
//! | row                                | leads                                               |
//! |------------------------------------|-----------------------------------------------------|
//! | of a captured table                | its entities, and the containers that its edges reach |
//! | with a `root`, or named by entity  | that document alone: its edges were followed before  |
//! | that names its workflow            | that document alone: a fill, a repair or a retry     |
//! | `message`                          | the entity as named                                 |
//! | `fan-out`                          | the next page of one edge                           |
//! | an edge reaches more than a page   | replaced by rows for its documents and `fan-out` rows |
//! | a document is in another shard     | replaced by a row for each, which the store puts there |

use std::sync::Arc;

use hashbrown::HashMap;
use honeyflow_event::{Changes, Event, Key, Kind, Name, PRIORITY_FAN_OUT, Target, key, shard, view::related_payload};
use honeyflow_runtime::{Class, Failure};
use honeyflow_source::{Lead, Leads, Page};
use honeyflow_store::{NewEvent, Statement};
use smallvec::{SmallVec, smallvec};

use crate::{
    codes, fan_out,
    payload::Payload,
    route::{Columns, EdgeTarget, Route, Routes},
};

/// The newest payload format that this crate reads.
pub(crate) const FORMAT_MAX: u16 = 2;
/// If an edge has more containers than this, they go through rows.
pub(crate) const CONTAINERS_MAX: usize = 100;

/// An edge statement to execute for one key.
#[derive(Clone, Debug)]
pub(crate) struct EdgeQuery {
    pub statement: Arc<Statement>,
    pub cause: Key,
}

/// The containers' keys, at most one more than [`CONTAINERS_MAX`].
pub(crate) type Answer = Result<Vec<Key>, Failure>;

/// The shard that is polled. Only its owner works on its documents, so documents of other shards are reached by rows.
#[derive(Clone, Copy)]
pub(crate) struct PolledShard {
    pub shard: u16,
    pub shards: u16,
}

impl PolledShard {
    fn contains(self, event: &Event, target: &Target) -> bool {
        self.shards <= 1 || shard::compute(&event.tenant, &target.entity, &target.key, self.shards) == self.shard
    }
}

/// The leads of a row, which may still depend on answers.
pub(crate) enum Draft {
    Ready(Leads),
    NeedsAnswers {
        /// The leads that are known without a query; the first `own` are the row's own documents.
        leads: SmallVec<[Lead; 1]>,
        own: usize,
        pending: Vec<PendingEdge>,
    },
}

pub(crate) struct PendingEdge {
    query: usize,
    entity: Name,
    /// The name of the edge in a `fan-out` row. None: the statement looks up one row.
    edge: Option<String>,
    change: Changes,
}

/// All edge queries of one poll. Two rows of one key need only one query: its answer is newer than both.
#[derive(Default)]
pub(crate) struct EdgeQueries {
    pub list: Vec<EdgeQuery>,
    /// The index of each query, by the statement's address (it belongs to a route, which outlives the poll) and key.
    places: HashMap<(usize, Key), usize>,
}

struct FollowedEdges {
    leads: SmallVec<[Lead; 1]>,
    pending: Vec<PendingEdge>,
}

impl EdgeQueries {
    fn add(&mut self, statement: &Arc<Statement>, cause: &Key) -> usize {
        let list = &mut self.list;
        *self.places.entry((Arc::as_ptr(statement).addr(), Key::clone(cause))).or_insert_with(|| {
            list.push(EdgeQuery { statement: Arc::clone(statement), cause: Key::clone(cause) });
            list.len() - 1
        })
    }
}

impl Routes {
    pub fn draft(&self, event: &Event, queries: &mut EdgeQueries) -> Draft {
        if event.format > FORMAT_MAX {
            return Draft::Ready(Leads::Held(Failure::fatal(
                codes::UNKNOWN_FORMAT,
                format!(
                    "event {} has format {}, this binary reads up to {FORMAT_MAX}; use a newer honeyflow",
                    event.id, event.format
                ),
            )));
        }
        if event.key.len() > key::KEY_BYTES_MAX {
            let why = format!("the key has {} bytes, at most {} are allowed", event.key.len(), key::KEY_BYTES_MAX);
            return Draft::Ready(Leads::Unreadable(Failure::reject(codes::KEY_TOO_LONG, why)));
        }
        match event.kind {
            Kind::Message => Draft::to(&event.entity, event),
            Kind::Row => self.row(event, queries),
            Kind::FanOut => self.page(event, queries),
            Kind::Truncate => Draft::Ready(Leads::Unreadable(Failure::reject(
                codes::UNKNOWN_KIND,
                "a truncated table cannot be followed here; run `honeyflow verify --repair`",
            ))),
        }
    }

    fn row(&self, event: &Event, queries: &mut EdgeQueries) -> Draft {
        if (event.root.is_some() || event.workflow.is_some())
            && let Some(entity) = self.entity(&event.entity)
        {
            return Draft::to(entity, event);
        }
        if let Some(route) = self.table(&event.entity) {
            return route.draft(event, queries);
        }
        match self.entity(&event.entity) {
            Some(entity) => Draft::to(entity, event),
            None => Draft::Ready(Leads::Unreadable(Failure::reject(
                codes::UNKNOWN_ENTITY,
                format!("`{}` is neither a captured table nor a configured entity", event.entity),
            ))),
        }
    }

    fn page(&self, event: &Event, queries: &mut EdgeQueries) -> Draft {
        let position = match fan_out::read(event.payload.as_deref()) {
            Ok(position) => position,
            Err(failure) => return Draft::Ready(Leads::Unreadable(failure)),
        };
        // No entity uses this table any more, so the row leads to nothing.
        let Some(route) = self.table(&event.entity) else { return Draft::Ready(Leads::To(SmallVec::new())) };
        let route_edge = route.edges.iter().find_map(|route_edge| match &route_edge.to {
            EdgeTarget::Statement { statement, edge }
                if *edge == position.edge && *route_edge.entity == *position.entity =>
            {
                Some((route_edge, statement))
            }
            _ => None,
        });
        match route_edge {
            Some((route_edge, statement)) => Draft::Ready(Leads::Page(Box::new(Page {
                root: event.root.unwrap_or(event.id),
                entity: Name::clone(&route_edge.entity),
                statement: Arc::clone(statement),
                causes: vec![Key::clone(&event.key)],
                after: position.after.map(Into::into),
            }))),
            // The edge's statement has changed: follow all edges of the cause again, from the start.
            None => route.draft(&Event { payload: None, ..event.clone() }, queries),
        }
    }
}

impl Route {
    fn draft(&self, event: &Event, queries: &mut EdgeQueries) -> Draft {
        let own = self.own.iter().map(|entity| lead(entity, &event.key, event.change)).collect();
        if self.edges.is_empty() {
            return Draft::Ready(Leads::To(own));
        }
        let payload = match Payload::parse(event.payload.as_deref()) {
            Ok(payload) => payload,
            Err(failure) => return Draft::Ready(Leads::Unreadable(failure)),
        };
        let mut followed = FollowedEdges { leads: own, pending: Vec::new() };
        for route_edge in &self.edges {
            if let Err(failure) = followed.follow(route_edge, event, &payload, queries) {
                return Draft::Ready(Leads::Unreadable(failure));
            }
        }
        Draft::NeedsAnswers { leads: followed.leads, own: self.own.len(), pending: followed.pending }
    }
}

impl FollowedEdges {
    fn follow(
        &mut self,
        route_edge: &crate::route::RouteEdge,
        event: &Event,
        payload: &Payload,
        queries: &mut EdgeQueries,
    ) -> Result<(), Failure> {
        let change = if route_edge.own_table { event.change } else { Changes::RELATED };
        let mut ends = None;
        let keys: SmallVec<[Key; 2]> = match &route_edge.columns {
            Columns::Key => smallvec![Key::clone(&event.key)],
            Columns::Payload { columns, in_key, look_up } => match (payload.linked_keys(columns), in_key, look_up) {
                (Some(ends), ..) if route_edge.shallow && ends.unmoved => return Ok(()),
                (Some(found), ..) => {
                    ends = Some((found.old, found.new));
                    found.keys
                }
                (None, Some((places, parts)), _) => {
                    let parts = key::split(&event.key, *parts).ok_or_else(|| bad_key(event))?;
                    let parts: Vec<_> = places.iter().filter_map(|place| parts.get(*place)).collect();
                    smallvec![key::join(&parts).into()]
                }
                (None, None, Some(look_up)) if matches!(route_edge.to, EdgeTarget::Container) => {
                    let query = queries.add(look_up, &event.key);
                    let entity = Name::clone(&route_edge.entity);
                    self.pending.push(PendingEdge { query, entity, edge: None, change });
                    return Ok(());
                }
                (None, None, _) => {
                    let table = &event.entity;
                    let columns = columns.join(", ");
                    let why = format!("a row of `{table}` leads on by `{columns}`, which its payload does not have");
                    return Err(Failure::reject(codes::NO_PAYLOAD, why));
                }
            },
        };
        match &route_edge.to {
            EdgeTarget::Container => {
                for key in &keys {
                    let change = match &ends {
                        Some(ends) if route_edge.own_table && !change.is_unknown() => change_of_end(key, ends),
                        _ => change,
                    };
                    push(&mut self.leads, lead(&route_edge.entity, key, change));
                }
            }
            EdgeTarget::Statement { statement, edge } => {
                for cause in keys {
                    let query = queries.add(statement, &cause);
                    self.pending.push(PendingEdge {
                        query,
                        entity: Name::clone(&route_edge.entity),
                        edge: Some(edge.clone()),
                        change,
                    });
                }
            }
        }
        Ok(())
    }
}

/// Returns what an event did to the row under this key, which is not the key that the event is written under.
fn change_of_end(key: &Key, (old, new): &(Option<Key>, Option<Key>)) -> Changes {
    match (old.as_ref() == Some(key), new.as_ref() == Some(key)) {
        (true, true) => Changes::UPDATE,
        (true, false) => Changes::DELETE,
        (false, _) => Changes::INSERT,
    }
}

impl Draft {
    fn to(entity: &Name, event: &Event) -> Draft {
        Draft::Ready(Leads::To(smallvec![lead(entity, &event.key, event.change)]))
    }

    /// Makes leads of the answers to `queries`. An error fails the poll: no row was taken, so none is lost.
    pub fn settle(
        self,
        event: &Event,
        queries: &[EdgeQuery],
        answers: &[Answer],
        here: PolledShard,
    ) -> Result<Leads, Failure> {
        let (mut leads, own, pending) = match self {
            Draft::Ready(Leads::To(leads)) => {
                let own = leads.len();
                (leads, own, Vec::new())
            }
            Draft::Ready(leads) => return Ok(leads),
            Draft::NeedsAnswers { leads, own, pending } => (leads, own, pending),
        };
        let mut fan_outs = Vec::new();
        for PendingEdge { query, entity, edge, change } in pending {
            let containers = match &answers[query] {
                Ok(containers) => containers,
                Err(failure) => match failure.class {
                    Class::Retry | Class::RetryAfter => return Err(failure.clone()),
                    Class::Reject => return Ok(Leads::Unreadable(failure.clone())),
                    Class::Fatal => return Ok(Leads::Held(failure.clone())),
                },
            };
            match edge {
                Some(edge) if containers.len() > CONTAINERS_MAX => {
                    fan_outs.push((Key::clone(&queries[query].cause), fan_out::begin(&entity, &edge)));
                }
                _ => containers.iter().for_each(|key| push(&mut leads, lead(&entity, key, change))),
            }
        }
        if fan_outs.is_empty() && leads.iter().all(|lead| here.contains(event, &lead.target)) {
            return Ok(Leads::To(leads));
        }
        Ok(Leads::Replace(replacement(event, &leads, own, fan_outs)))
    }
}

/// Returns the rows that replace one that leads to more than a page. They have a root: their edges are not followed
/// again.
fn replacement(event: &Event, leads: &[Lead], own: usize, fan_outs: Vec<(Key, Arc<str>)>) -> Vec<NewEvent> {
    let blank = NewEvent {
        kind: Kind::Row,
        tenant: Name::clone(&event.tenant),
        entity: Name::clone(&event.entity),
        key: Key::clone(&event.key),
        priority: event.priority,
        workflow: event.workflow.clone(),
        delay: None,
        dedupe: None,
        traceparent: event.traceparent.clone(),
        root: Some(event.root.unwrap_or(event.id)),
        change: Changes::UNKNOWN,
        columns: None,
        payload: None,
    };
    let related = || related_payload(&event.entity, &event.key, event.id);
    let rows = leads.iter().enumerate().map(|(n, lead)| NewEvent {
        entity: Name::clone(&lead.target.entity),
        key: Key::clone(&lead.target.key),
        dedupe: if n < own { event.dedupe.clone() } else { None },
        change: lead.change,
        columns: if lead.change == Changes::UPDATE { event.columns.clone() } else { None },
        // Expressions of the document's own runs see the payload; its edges are not followed again.
        payload: match lead.change {
            _ if n < own => event.payload.clone(),
            Changes::RELATED => Some(related()),
            _ => None,
        },
        ..blank.clone()
    });
    let rest = fan_outs.into_iter().map(|(cause, payload)| NewEvent {
        kind: Kind::FanOut,
        key: cause,
        priority: PRIORITY_FAN_OUT,
        payload: Some(payload),
        ..blank.clone()
    });
    rows.chain(rest).collect()
}

fn lead(entity: &Name, key: &Key, change: Changes) -> Lead {
    Lead { target: Target { entity: Name::clone(entity), key: Key::clone(key) }, change }
}

/// Adds a target once: a row owes it one run, even if several edges lead to it. There are a few hundred at most.
fn push(leads: &mut SmallVec<[Lead; 1]>, lead: Lead) {
    if !leads.iter().any(|known| known.target == lead.target) {
        leads.push(lead);
    }
}

fn bad_key(event: &Event) -> Failure {
    Failure::reject(codes::BAD_KEY, format!("`{}` is no key of `{}`", event.key, event.entity))
}

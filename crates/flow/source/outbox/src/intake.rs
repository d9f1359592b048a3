//! What each row leads to. Two passes without I/O around the statements that the shell runs between them: the first
//! says what has to be asked, the second makes leads of the answers.
//!
//! | row                                | leads                                               |
//! |------------------------------------|-----------------------------------------------------|
//! | of a captured table                | its entities, and the containers its edges reach     |
//! | with a `root`, or named by entity  | that document alone: its edges were followed before  |
//! | `message`                          | the entity as named                                 |
//! | `fan-out`                          | the next page of one edge                           |
//! | any edge reaches more than a page  | replaced by rows of its own                         |
//! | some document is another shard's   | replaced by a row for each, which the store puts there |

use std::sync::Arc;

use hashbrown::HashMap;
use honeyflow_event::{Event, Key, Kind, Name, PRIORITY_FAN_OUT, Target, key, shard};
use honeyflow_runtime::{Class, Failure};
use honeyflow_source::{Leads, Page};
use honeyflow_store::{NewEvent, Statement};
use smallvec::{SmallVec, smallvec};

use crate::{
    fan_out,
    payload::Payload,
    route::{Columns, Route, Routes, To},
};

/// The newest payload format that is understood here.
pub(crate) const FORMAT_MAX: u16 = 2;
/// More containers of one edge than this go through rows.
pub(crate) const CONTAINERS_MAX: usize = 100;

/// An edge statement to be run for one key.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub statement: Arc<Statement>,
    pub cause: Key,
}

/// What the containers' keys are, at most one more than [`CONTAINERS_MAX`].
pub(crate) type Answer = Result<Vec<Key>, Failure>;

/// The shard that is polled. Its owner alone works on its documents, so nothing may lead out of it but rows.
#[derive(Clone, Copy)]
pub(crate) struct Here {
    pub shard: u16,
    pub shards: u16,
}

impl Here {
    fn has(self, event: &Event, target: &Target) -> bool {
        self.shards <= 1 || shard::of(&event.tenant, &target.entity, &target.key, self.shards) == self.shard
    }
}

/// A row whose leads may hang on answers.
pub(crate) enum Draft {
    Ready(Leads),
    Asking {
        /// Known without asking; the first `own` are the row's own documents.
        targets: SmallVec<[Target; 1]>,
        own: usize,
        asked: Vec<Asked>,
    },
}

pub(crate) struct Asked {
    ask: usize,
    entity: Name,
    /// Under which name the rest becomes a `fan-out` row. None: the statement looks one row up.
    edge: Option<String>,
}

/// Everything that one poll asks. Two rows of one key ask once: answers are newer than both.
#[derive(Default)]
pub(crate) struct Asks {
    pub list: Vec<Ask>,
    /// By the statement's address: it is one of a route's, which outlives the poll.
    places: HashMap<(usize, Key), usize>,
}

struct Followed {
    targets: SmallVec<[Target; 1]>,
    asked: Vec<Asked>,
}

impl Asks {
    fn add(&mut self, statement: &Arc<Statement>, cause: &Key) -> usize {
        let list = &mut self.list;
        *self.places.entry((Arc::as_ptr(statement).addr(), Key::clone(cause))).or_insert_with(|| {
            list.push(Ask { statement: Arc::clone(statement), cause: Key::clone(cause) });
            list.len() - 1
        })
    }
}

impl Routes {
    pub fn draft(&self, event: &Event, asks: &mut Asks) -> Draft {
        if event.format > FORMAT_MAX {
            return Draft::Ready(Leads::Held(Failure::fatal(
                "unknown-format",
                format!(
                    "event {} has format {}, this binary reads up to {FORMAT_MAX}; use a newer honeyflow",
                    event.id, event.format
                ),
            )));
        }
        if event.key.len() > key::KEY_BYTES_MAX {
            let why = format!("the key has {} bytes, at most {} are allowed", event.key.len(), key::KEY_BYTES_MAX);
            return Draft::Ready(Leads::Unreadable(Failure::reject("key-too-long", why)));
        }
        match event.kind {
            Kind::Message => Draft::to(&event.entity, &event.key),
            Kind::Row => self.row(event, asks),
            Kind::FanOut => self.page(event, asks),
            Kind::Truncate => Draft::Ready(Leads::Unreadable(Failure::reject(
                "unknown-kind",
                "a truncated table cannot be followed here; run `honeyflow verify --repair`",
            ))),
        }
    }

    fn row(&self, event: &Event, asks: &mut Asks) -> Draft {
        if event.root.is_some()
            && let Some(entity) = self.entity(&event.entity)
        {
            return Draft::to(entity, &event.key);
        }
        if let Some(route) = self.table(&event.entity) {
            return route.draft(event, asks);
        }
        match self.entity(&event.entity) {
            Some(entity) => Draft::to(entity, &event.key),
            None => Draft::Ready(Leads::Unreadable(Failure::reject(
                "unknown-entity",
                format!("`{}` is neither a captured table nor a configured entity", event.entity),
            ))),
        }
    }

    fn page(&self, event: &Event, asks: &mut Asks) -> Draft {
        let position = match fan_out::read(event.payload.as_deref()) {
            Ok(position) => position,
            Err(failure) => return Draft::Ready(Leads::Unreadable(failure)),
        };
        // A table that nobody reads any more has nothing to lead to.
        let Some(route) = self.table(&event.entity) else { return Draft::Ready(Leads::To(SmallVec::new())) };
        let way = route.ways.iter().find_map(|way| match &way.to {
            To::Statement { statement, edge } if *edge == position.edge && *way.entity == *position.entity => {
                Some((way, statement))
            }
            _ => None,
        });
        match way {
            Some((way, statement)) => Draft::Ready(Leads::Page(Box::new(Page {
                root: event.root.unwrap_or(event.id),
                entity: Name::clone(&way.entity),
                statement: Arc::clone(statement),
                causes: vec![Key::clone(&event.key)],
                after: position.after.map(Into::into),
            }))),
            // The edge was rewritten meanwhile: all that the cause leads to now, from the start.
            None => route.draft(&Event { payload: None, ..event.clone() }, asks),
        }
    }
}

impl Route {
    fn draft(&self, event: &Event, asks: &mut Asks) -> Draft {
        let own = self.own.iter().map(|entity| target(entity, &event.key)).collect();
        if self.ways.is_empty() {
            return Draft::Ready(Leads::To(own));
        }
        let payload = match Payload::parse(event.payload.as_deref()) {
            Ok(payload) => payload,
            Err(failure) => return Draft::Ready(Leads::Unreadable(failure)),
        };
        let mut followed = Followed { targets: own, asked: Vec::new() };
        for way in &self.ways {
            if let Err(failure) = followed.follow(way, event, &payload, asks) {
                return Draft::Ready(Leads::Unreadable(failure));
            }
        }
        Draft::Asking { targets: followed.targets, own: self.own.len(), asked: followed.asked }
    }
}

impl Followed {
    fn follow(
        &mut self,
        way: &crate::route::Way,
        event: &Event,
        payload: &Payload,
        asks: &mut Asks,
    ) -> Result<(), Failure> {
        let keys: SmallVec<[Key; 2]> = match &way.columns {
            Columns::Key => smallvec![Key::clone(&event.key)],
            Columns::Payload { columns, in_key, look_up } => match (payload.ends(columns), in_key, look_up) {
                (Some(ends), ..) if way.shallow && ends.unmoved => return Ok(()),
                (Some(ends), ..) => ends.keys,
                (None, Some((places, parts)), _) => {
                    let parts = key::split(&event.key, *parts).ok_or_else(|| bad_key(event))?;
                    let parts: Vec<_> = places.iter().filter_map(|place| parts.get(*place)).collect();
                    smallvec![key::join(&parts).into()]
                }
                (None, None, Some(look_up)) if matches!(way.to, To::Container) => {
                    let ask = asks.add(look_up, &event.key);
                    self.asked.push(Asked { ask, entity: Name::clone(&way.entity), edge: None });
                    return Ok(());
                }
                (None, None, _) => {
                    let table = &event.entity;
                    let columns = columns.join(", ");
                    let why = format!("a row of `{table}` leads on by `{columns}`, which its payload does not have");
                    return Err(Failure::reject("no-payload", why));
                }
            },
        };
        match &way.to {
            To::Container => keys.iter().for_each(|key| push(&mut self.targets, target(&way.entity, key))),
            To::Statement { statement, edge } => {
                for cause in keys {
                    let ask = asks.add(statement, &cause);
                    self.asked.push(Asked { ask, entity: Name::clone(&way.entity), edge: Some(edge.clone()) });
                }
            }
        }
        Ok(())
    }
}

impl Draft {
    fn to(entity: &Name, key: &Key) -> Draft {
        Draft::Ready(Leads::To(smallvec![target(entity, key)]))
    }

    /// Makes leads of the answers to `asks`. An error fails the poll: nothing was taken, so nothing is lost.
    pub fn settle(self, event: &Event, asks: &[Ask], answers: &[Answer], here: Here) -> Result<Leads, Failure> {
        let (mut targets, own, asked) = match self {
            Draft::Ready(Leads::To(targets)) => {
                let own = targets.len();
                (targets, own, Vec::new())
            }
            Draft::Ready(leads) => return Ok(leads),
            Draft::Asking { targets, own, asked } => (targets, own, asked),
        };
        let mut fan_outs = Vec::new();
        for Asked { ask, entity, edge } in asked {
            let containers = match &answers[ask] {
                Ok(containers) => containers,
                Err(failure) => match failure.class {
                    Class::Retry | Class::RetryAfter => return Err(failure.clone()),
                    Class::Reject => return Ok(Leads::Unreadable(failure.clone())),
                    Class::Fatal => return Ok(Leads::Held(failure.clone())),
                },
            };
            match edge {
                Some(edge) if containers.len() > CONTAINERS_MAX => {
                    fan_outs.push((Key::clone(&asks[ask].cause), fan_out::begin(&entity, &edge)));
                }
                _ => containers.iter().for_each(|key| push(&mut targets, target(&entity, key))),
            }
        }
        if fan_outs.is_empty() && targets.iter().all(|target| here.has(event, target)) {
            return Ok(Leads::To(targets));
        }
        Ok(Leads::Replace(replacement(event, &targets, own, fan_outs)))
    }
}

/// Rows in the place of one that leads to more than a page. They bear a root: nobody follows their edges again.
fn replacement(event: &Event, targets: &[Target], own: usize, fan_outs: Vec<(Key, Arc<str>)>) -> Vec<NewEvent> {
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
        payload: None,
    };
    let rows = targets.iter().enumerate().map(|(n, target)| NewEvent {
        entity: Name::clone(&target.entity),
        key: Key::clone(&target.key),
        dedupe: if n < own { event.dedupe.clone() } else { None },
        // Expressions of the document's own runs see what began them; nobody follows it again.
        payload: if n < own { event.payload.clone() } else { None },
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

fn target(entity: &Name, key: &Key) -> Target {
    Target { entity: Name::clone(entity), key: Key::clone(key) }
}

/// Each document once: a row owes it one run, however many ways lead there. There are a few hundred at most.
fn push(targets: &mut SmallVec<[Target; 1]>, target: Target) {
    if !targets.contains(&target) {
        targets.push(target);
    }
}

fn bad_key(event: &Event) -> Failure {
    Failure::reject("bad-key", format!("`{}` is no key of `{}`", event.key, event.entity))
}

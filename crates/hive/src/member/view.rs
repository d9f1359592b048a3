//! The hive as this node knows it: a snapshot, brought forward by events, at most once per beat.
//!
//! | known         | told                                   | next                  | subscribers get       |
//! |---------------|----------------------------------------|-----------------------|-----------------------|
//! | nothing       | any version                            | ask for all           |                       |
//! | version v     | the same                               |                       |                       |
//! | version v     | another                                | ask for events past v |                       |
//! | version v     | events v + 1 … w                       | version w             | these events          |
//! | version v     | an event of a kind that is not known   | ask for all           |                       |
//! | version v     | all, at w > v, or of another origin    | version w             | a fresh snapshot      |
//! | version v     | the store is not the one it was        | ask for all           |                       |
//! | version v     | all at w ≤ v, or events past another   | v                     | nothing: it is older  |
//! | any           | by a server that is not recorded yet   | ask for all, later    | nothing: it may count again what it has lost |

use std::{collections::BTreeMap, sync::Arc};

use super::traits::Traits;
use crate::contract::{Event, EventKind, Events, Head, LeaseRow, NodeId, NodeRow, Reply, Request, View};

/// More than that, and the whole is read anew.
const EVENTS_MAX: u32 = 500;

#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    view: Option<Arc<View>>,
    traits: BTreeMap<NodeId, Traits>,
    /// A beat has told of another version.
    outdated: bool,
    /// And it has been asked for.
    asked: bool,
    /// The store is not the one it was: only all of it says what stands.
    doubted: bool,
}

/// What a reply has changed.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum News {
    Nothing,
    Whole,
    Events(Vec<Event>),
}

impl Known {
    pub fn view(&self) -> Option<&Arc<View>> {
        self.view.as_ref()
    }

    pub fn version(&self) -> u64 {
        self.view.as_ref().map_or(0, |view| view.head.version)
    }

    pub fn nodes(&self) -> &[NodeRow] {
        self.view.as_ref().map_or(&[], |view| &view.nodes)
    }

    pub fn leases(&self) -> &[LeaseRow] {
        self.view.as_ref().map_or(&[], |view| &view.leases)
    }

    pub fn node(&self, id: NodeId) -> Option<&NodeRow> {
        let nodes = self.nodes();
        nodes.binary_search_by_key(&id, |node| node.id).ok().map(|at| &nodes[at])
    }

    pub fn traits(&self, id: NodeId) -> Option<&Traits> {
        self.traits.get(&id)
    }

    /// It is known, and no beat has told of anything later.
    pub fn is_current(&self) -> bool {
        self.view.is_some() && !self.outdated
    }

    pub fn told(&mut self, version: u64) {
        self.outdated = self.view.is_none() || self.doubted || self.version() != version;
        self.asked = false;
    }

    /// Events past a version of another history would be others: the next question is for all.
    pub fn doubt(&mut self) {
        (self.doubted, self.outdated, self.asked) = (true, true, false);
    }

    pub fn asked(&mut self) {
        self.asked = true;
    }

    pub fn question(&self) -> Option<Request> {
        let events = Request::Events { after: self.version(), max: EVENTS_MAX };
        let known = self.view.is_some() && !self.doubted;
        (self.outdated && !self.asked).then_some(if known { events } else { Request::View })
    }

    pub fn read(&mut self, reply: Reply) -> News {
        let head = match &reply {
            Reply::View(whole) => &whole.head,
            Reply::Events(events) => &events.head,
            _ => return News::Nothing,
        };
        if !head.is_recorded() {
            self.doubted = true;
            return News::Nothing;
        }
        match reply {
            Reply::View(whole) => self.replace(*whole),
            Reply::Events(events) => self.bring_forward(*events),
            _ => News::Nothing,
        }
    }

    fn replace(&mut self, whole: View) -> News {
        self.doubted = false;
        let newer = self
            .view
            .as_ref()
            .is_none_or(|view| view.head.origin != whole.head.origin || whole.head.version > view.head.version);
        if !newer {
            return News::Nothing;
        }
        self.traits = whole.nodes.iter().map(|node| (node.id, Traits::read(&node.meta))).collect();
        self.view = Some(Arc::new(whole));
        self.outdated = false;
        News::Whole
    }

    fn bring_forward(&mut self, news: Events) -> News {
        // Of a newer version: what else it has changed is not known here.
        if news.events.iter().any(|event| event.kind == EventKind::Unknown) {
            self.doubt();
            return News::Nothing;
        }
        let follows = news.events.first().is_some_and(|first| first.version == self.version() + 1);
        let history = |head: &Head| (head.origin, head.lineage.clone());
        self.doubted |= self.view.as_ref().is_some_and(|view| history(&view.head) != history(&news.head));
        let Some(view) = self.view.as_mut().filter(|_| follows && !self.doubted) else { return News::Nothing };
        let view = Arc::make_mut(view);
        for named in news.events.iter().filter_map(|event| event.node) {
            if let Ok(at) = view.nodes.binary_search_by_key(&named, |node| node.id) {
                view.nodes.remove(at);
            }
            self.traits.remove(&named);
        }
        for row in news.nodes {
            self.traits.insert(row.id, Traits::read(&row.meta));
            let at = view.nodes.binary_search_by_key(&row.id, |node| node.id).unwrap_or_else(|at| at);
            view.nodes.insert(at, row);
        }
        for row in news.leases {
            match view.leases.binary_search_by(|lease| lease.name.cmp(&row.name)) {
                Ok(at) => view.leases[at] = row,
                Err(at) => view.leases.insert(at, row),
            }
        }
        for lease in &mut view.leases {
            let lives = |holder| view.nodes.binary_search_by_key(&holder, |node| node.id).is_ok();
            lease.free = !lease.holder.is_some_and(lives);
        }
        view.head = news.head;
        self.outdated = false;
        News::Events(news.events)
    }

    /// The shards of a source that somebody has made, as far as they are known: rows are made without an event.
    pub fn shards_of(&self, source: &str) -> Vec<u32> {
        let prefix = format!("shard/{source}/");
        let number = |lease: &LeaseRow| lease.name.strip_prefix(&prefix)?.parse().ok();
        self.leases().iter().filter_map(number).collect()
    }
}

#[cfg(test)]
mod tests;

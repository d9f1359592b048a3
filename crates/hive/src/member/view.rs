//! The members and leases as this node knows them: a snapshot, updated by events, at most once per heartbeat.
//!
//! | known         | received                                   | next                   | subscribers get       |
//! |---------------|--------------------------------------------|------------------------|-----------------------|
//! | nothing       | any version                                | read the whole view    |                       |
//! | version v     | the same version                           |                        |                       |
//! | version v     | another version                            | read the events past v |                       |
//! | version v     | events v + 1 … w                           | version w              | these events          |
//! | version v     | an event of an unknown kind                | read the whole view    |                       |
//! | version v     | whole view at w > v, or of another origin  | version w              | a fresh snapshot      |
//! | version v     | the store was replaced                     | read the whole view    |                       |
//! | version v     | whole view at w ≤ v, or events past another version | v             | nothing: it is older  |
//! | any           | a reply of a server that is not recorded yet | read the whole view, later | nothing: it may have lost versions and use them again |

use std::{collections::BTreeMap, sync::Arc};

use super::traits::Traits;
use crate::contract::{Event, EventKind, Events, Head, LeaseRow, NodeId, NodeRow, Reply, Request, View};

/// With more events than this, the whole view is read instead.
const EVENTS_MAX: u32 = 500;

#[derive(Clone, Debug, Default)]
pub(super) struct KnownView {
    view: Option<Arc<View>>,
    traits: BTreeMap<NodeId, Traits>,
    /// A heartbeat reply has shown another version.
    outdated: bool,
    /// The request to read it was sent since that reply.
    requested: bool,
    /// The store was replaced or restored: only the whole view can be trusted.
    doubted: bool,
}

/// The change that a reply has brought.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum News {
    Nothing,
    Whole,
    Events(Vec<Event>),
}

impl KnownView {
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

    /// Whether the view is known and no heartbeat reply has shown a later version.
    pub fn is_current(&self) -> bool {
        self.view.is_some() && !self.outdated
    }

    pub fn on_version(&mut self, version: u64) {
        self.outdated = self.view.is_none() || self.doubted || self.version() != version;
        self.requested = false;
    }

    /// Makes the next request read the whole view: events past a version of another history would be wrong.
    pub fn doubt(&mut self) {
        (self.doubted, self.outdated, self.requested) = (true, true, false);
    }

    pub fn mark_requested(&mut self) {
        self.requested = true;
    }

    pub fn next_request(&self) -> Option<Request> {
        let events = Request::Events { after: self.version(), max: EVENTS_MAX };
        let known = self.view.is_some() && !self.doubted;
        (self.outdated && !self.requested).then_some(if known { events } else { Request::View })
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
            Reply::Events(events) => self.apply_events(*events),
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

    fn apply_events(&mut self, news: Events) -> News {
        // A newer release wrote it: what else it has changed is unknown here.
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

    /// The known shards of a source. The list may be incomplete, because rows are created without an event.
    pub fn shards_of(&self, source: &str) -> Vec<u32> {
        let prefix = format!("shard/{source}/");
        let number = |lease: &LeaseRow| lease.name.strip_prefix(&prefix)?.parse().ok();
        self.leases().iter().filter_map(number).collect()
    }
}

#[cfg(test)]
mod tests;

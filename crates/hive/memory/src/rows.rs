//! The hive's rows, and how each request changes them: `(rows, now, request) → reply`.
//!
//! It contains no clock, no lock and no randomness: the same input always gives the same reply.

mod lease;
mod limit;
mod members;
mod node;
mod view;

use std::{collections::BTreeMap, sync::Arc};

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Fence, NodeId, Reply, Request,
    contract::{Counts, Event, EventKind, Head},
};
use honeyflow_runtime::Failure;
use uuid::Uuid;

#[derive(Clone, Debug)]
pub struct Rows {
    /// The lineage of the server that answers.
    server: Arc<str>,
    /// The origin that the next view gets when it is made.
    origin: Uuid,
    view: Option<StoredView>,
    nodes: members::Members,
    leases: BTreeMap<Name, Lease>,
    events: BTreeMap<u64, Event>,
    limits: limit::Limits,
}

/// The one row of the hive: a [`Head`] without time and server.
#[derive(Clone, Debug, Default)]
struct StoredView {
    origin: Uuid,
    lineage: Option<Arc<str>>,
    lineage_ms: u64,
    max_ttl_ms: u64,
    hold: Option<String>,
    version: u64,
    limits: u64,
    counts: Counts,
}

#[derive(Clone, Debug)]
struct Lease {
    epoch: Epoch,
    holder: Option<NodeId>,
    heir: Option<NodeId>,
    since_ms: u64,
    cause: Name,
}

impl Default for Rows {
    fn default() -> Rows {
        Rows {
            server: "memory".into(),
            origin: Uuid::from_u128(1),
            view: None,
            nodes: members::Members::default(),
            leases: BTreeMap::new(),
            events: BTreeMap::new(),
            limits: limit::Limits::default(),
        }
    }
}

impl Rows {
    /// Makes rows whose first view gets this `origin`. It distinguishes this hive from others; a simulator passes one
    /// that it drew from its seed.
    pub fn with_origin(origin: Uuid) -> Rows {
        Rows { origin, ..Rows::default() }
    }

    /// `now_ms` is hive time: milliseconds since 2020.
    pub fn apply(&mut self, now_ms: u64, request: Request) -> Result<Reply, Failure> {
        Ok(match request {
            Request::Join { node, name, heartbeat_ms, ttl_ms, meta } => {
                return self.join(now_ms, node, &name, heartbeat_ms, ttl_ms, meta);
            }
            Request::Beat { node, read_only, state } => {
                let member = if read_only { self.nodes.contains_key(&node) } else { self.renew(now_ms, node, state) };
                Reply::Beat(Box::new(self.status(now_ms, node, member, !read_only)))
            }
            Request::Leave { node } => {
                self.remove(now_ms, node, EventKind::Left, &"".into());
                Reply::Done
            }
            Request::Remove { nodes } => Reply::Removed(self.remove_expired(now_ms, &nodes)),
            Request::Mend => Reply::Mended(self.mend(now_ms)),
            Request::Look { leases } => self.read_leases(now_ms, &leases),
            Request::Take { node, claims, cause, mint } => return self.take(now_ms, node, &claims, &cause, &mint),
            Request::HandOver { node, successor: heir, claims, cause, mint } => {
                return self.hand_over(now_ms, (node, heir), &claims, &cause, &mint);
            }
            Request::Release { node, held, cause } => self.release(now_ms, node, &held, &cause),
            Request::SetSuccessor { fence, successor: heir } => self.set_successor(now_ms, &fence, heir),
            Request::Count { fence, every_ms, remove: bury } => self.count(now_ms, &fence, every_ms, &bury),
            Request::Tally => {
                let counts = self.tally(now_ms);
                Reply::Counted { hive_ms: now_ms, counts, published: false, removed: Vec::new() }
            }
            Request::Missed { fence, cause } => self.record_missed(now_ms, &fence, &cause),
            Request::Sweep { fence, event_ms, events_max, idle_ms, rows_max } => {
                self.sweep(now_ms, &fence, (event_ms, events_max), idle_ms, rows_max as usize)
            }
            Request::View => self.read_view(now_ms),
            Request::Events { after, max } => self.events(now_ms, after, u64::from(max)),
            Request::History { lease, until_ms, max } => self.history(lease.as_deref(), until_ms, max as usize),
            Request::NewLineage { was, found } => self.new_lineage(now_ms, was.as_deref(), &found),
            Request::Behind { lineage, version, leases } => self.report_behind(&lineage, version, &leases),
            Request::AcceptRestore { cause } => self.accept_restore(now_ms, &cause),
            Request::Limit(request) => Reply::Limit(self.limit(now_ms, request)),
        })
    }

    /// Makes the comparison that a fence makes in SQL.
    pub fn holds(&self, fence: &Fence) -> bool {
        self.leases.get(fence.lease()).is_some_and(|lease| fence.holds(lease.epoch, lease.holder))
    }

    /// Simulates a failover: from now on another server answers, with the same rows.
    pub fn move_to_server(&mut self, server: &str) {
        self.server = server.into();
    }

    /// Sets the origin of the next view, so that a hive that lost its view does not make the same view again.
    pub fn set_next_origin(&mut self, origin: Uuid) {
        self.origin = origin;
    }

    /// Gives the newest event a kind that only a newer program version knows.
    pub fn forget_newest_kind(&mut self) {
        if let Some(mut newest) = self.events.last_entry() {
            newest.get_mut().kind = EventKind::Unknown;
        }
    }

    /// Deletes every row, as if the store had lost its data.
    pub fn wipe(&mut self) {
        let origin = Uuid::from_u128(self.origin.as_u128().wrapping_add(1));
        *self = Rows { server: Arc::clone(&self.server), origin, ..Rows::default() };
    }

    fn head(&self, now_ms: u64) -> Head {
        let server = self.server.to_string();
        let Some(view) = &self.view else { return Head { hive_ms: now_ms, server, ..Head::default() } };
        Head {
            hive_ms: now_ms,
            server,
            origin: Some(view.origin),
            lineage: view.lineage.as_ref().map(ToString::to_string),
            lineage_ms: view.lineage_ms,
            max_ttl_ms: view.max_ttl_ms,
            hold: view.hold.clone(),
            version: view.version,
            limits: view.limits,
            counts: view.counts,
        }
    }

    /// Returns the view and makes it if it is missing. Where leases exist without a view, the store has lost rows: the
    /// lineage then begins now.
    fn view_or_new(&mut self, now_ms: u64) -> &mut StoredView {
        let lineage_ms = if self.leases.is_empty() { 0 } else { now_ms };
        let (server, origin) = (&self.server, self.origin);
        self.view.get_or_insert_with(|| StoredView {
            origin,
            lineage: Some(Arc::clone(server)),
            lineage_ms,
            ..StoredView::default()
        })
    }

    fn event(
        &mut self,
        at_ms: u64,
        kind: EventKind,
        node: Option<NodeId>,
        lease: Option<(&Name, Epoch)>,
        cause: &Name,
    ) {
        let view = self.view_or_new(at_ms);
        view.version += 1;
        let version = view.version;
        let epoch = lease.map(|(_, epoch)| epoch);
        let lease = lease.map(|(name, _)| Arc::clone(name));
        self.events.insert(version, Event { version, at_ms, kind, node, lease, epoch, cause: Arc::clone(cause) });
    }
}

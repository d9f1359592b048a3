//! The hives this node takes part in, as they are shown. Who lives and who holds what is asked of the store, at most once
//! a second and only if someone looks; what the node itself knows comes from its memory and is there without the store.

use honeyflow_event::Name;
use honeyflow_hive::{
    Hive, NodeId, Reply, Request,
    contract::{QUEEN, View},
    member::Engaged,
    roster::{self, Entry, State},
    service::{Counters, Role, Snapshot},
};
use honeyflow_runtime::Failure;
use serde_json::{Value, json};

/// A database in which this node is a member.
pub struct HiveView {
    /// Nothing secret: it is shown.
    pub place: String,
    /// Whose leases are there.
    pub sources: Vec<Name>,
    pub hive: Hive,
}

/// One look at it.
#[derive(Clone)]
pub(crate) struct HiveSeen {
    pub me: Option<NodeId>,
    pub is_queen: bool,
    pub engaged: Engaged,
    pub snapshot: Snapshot,
    pub counters: Counters,
    pub view: Result<View, Failure>,
}

impl HiveView {
    pub(crate) async fn ask(&self) -> Result<View, Failure> {
        match self.hive.store().call(Request::View).await? {
            Reply::View(view) => Ok(*view),
            other => Err(Failure::fatal("misplaced-reply", format!("the hive answered another question: {other:?}"))),
        }
    }

    pub(crate) fn seen(&self, view: Result<View, Failure>) -> HiveSeen {
        HiveSeen {
            me: self.hive.node(),
            is_queen: matches!(self.hive.role(), Role::Queen(_)),
            engaged: self.hive.engaged(),
            snapshot: self.hive.view(),
            counters: self.hive.counters(),
            view,
        }
    }
}

impl HiveSeen {
    /// Empty while the store is away.
    pub fn roster(&self) -> Vec<Entry> {
        self.view.as_ref().map_or_else(|_| Vec::new(), roster::of)
    }

    /// Whether each shard of the source is held by someone.
    pub fn is_worked_on(&self, source: &str) -> bool {
        self.view.as_ref().is_ok_and(|view| roster::is_worked_on(view, source))
    }

    pub fn count(&self, state: State) -> usize {
        self.roster().iter().filter(|entry| entry.state == state).count()
    }

    pub fn queen(&self) -> Option<Entry> {
        self.roster().into_iter().find(|entry| entry.queen)
    }

    /// Of the queen's lease; 0 if nobody ever was.
    pub fn epoch(&self) -> u64 {
        let leases = self.view.as_ref().map_or(&[][..], |view| &view.leases);
        leases.iter().find(|lease| &*lease.name == QUEEN).map_or(0, |lease| lease.epoch.0)
    }
}

pub(crate) fn json(of: &HiveView, seen: &HiveSeen) -> Value {
    let view = seen.view.as_ref().ok();
    let nodes: Vec<Value> = seen
        .roster()
        .iter()
        .map(|entry| {
            json!({
                "id": entry.id, "name": entry.name, "state": entry.state, "ready": entry.ready,
                "queen": entry.queen,
                "me": seen.me == Some(entry.id), "shards": entry.shards, "beat_age_ms": entry.beat_age_ms,
                "address": entry.meta.get("address"), "version": entry.meta.get("version"),
                "roles": entry.meta.get("roles"), "zone": entry.meta.get("zone"), "pid": entry.meta.get("pid"),
            })
        })
        .collect();
    let shards: Vec<Value> = of
        .sources
        .iter()
        .map(|source| {
            let (held, all) = view.map_or((0, 0), |view| roster::shards_held(view, source));
            json!({ "source": source, "held": held, "all": all })
        })
        .collect();
    json!({
        "place": of.place,
        "node": seen.me,
        "queen": seen.queen().map(|queen| json!({ "id": queen.id, "name": queen.name })),
        "is_queen": seen.is_queen,
        // beyond what a double can hold exactly, once multiplied
        "epoch": seen.epoch().to_string(),
        "engaged": seen.engaged,
        "version": view.map(|view| view.head.version),
        "hold": view.and_then(|view| view.head.hold.clone()),
        "answers": view.is_some(),
        "heard_ms_ago": seen.snapshot.age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        "stale": seen.snapshot.stale,
        // by its code: messages are for the log, this is read by whoever reaches the port
        "trouble": seen.snapshot.trouble.as_ref().map(|failure| &failure.code),
        "nodes": nodes,
        "shards": shards,
    })
}

//! Shows the hives of which this node is a member. Members and lease holders are read from the store, at most once a
//! second and only for a client that looks; what the node itself knows comes from its memory, even without the store.

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

use crate::codes;

/// A database in which this node is a member.
pub struct HiveView {
    /// The place of the database, without secrets: clients see it.
    pub place: String,
    /// The sources whose leases are in this database.
    pub sources: Vec<Name>,
    pub hive: Hive,
}

/// The state of a hive at one time.
#[derive(Clone)]
pub(crate) struct HiveSample {
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
            other => Err(Failure::fatal(
                codes::MISPLACED_REPLY,
                format!("the hive's reply does not fit the request: {other:?}"),
            )),
        }
    }

    pub(crate) fn sample(&self, view: Result<View, Failure>) -> HiveSample {
        HiveSample {
            me: self.hive.node(),
            is_queen: matches!(self.hive.role(), Role::Queen(_)),
            engaged: self.hive.engaged(),
            snapshot: self.hive.view(),
            counters: self.hive.counters(),
            view,
        }
    }
}

impl HiveSample {
    /// Returns the members; empty while the store is unreachable.
    pub fn roster(&self) -> Vec<Entry> {
        self.view.as_ref().map_or_else(|_| Vec::new(), roster::of)
    }

    /// Returns whether each shard of the source has a holder.
    pub fn is_worked_on(&self, source: &str) -> bool {
        self.view.as_ref().is_ok_and(|view| roster::is_worked_on(view, source))
    }

    pub fn count(&self, state: State) -> usize {
        self.roster().iter().filter(|entry| entry.state == state).count()
    }

    pub fn queen(&self) -> Option<Entry> {
        self.roster().into_iter().find(|entry| entry.queen)
    }

    /// Returns the epoch of the queen's lease; 0 if there never was a queen.
    pub fn epoch(&self) -> u64 {
        let leases = self.view.as_ref().map_or(&[][..], |view| &view.leases);
        leases.iter().find(|lease| &*lease.name == QUEEN).map_or(0, |lease| lease.epoch.0)
    }
}

pub(crate) fn json(of: &HiveView, sample: &HiveSample) -> Value {
    let view = sample.view.as_ref().ok();
    let nodes: Vec<Value> = sample
        .roster()
        .iter()
        .map(|entry| {
            json!({
                "id": entry.id, "name": entry.name, "state": entry.state, "ready": entry.ready,
                "queen": entry.queen,
                "me": sample.me == Some(entry.id), "shards": entry.shards, "beat_age_ms": entry.beat_age_ms,
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
        "node": sample.me,
        "queen": sample.queen().map(|queen| json!({ "id": queen.id, "name": queen.name })),
        "is_queen": sample.is_queen,
        // as text: multiplied by 2^22 it exceeds what a JSON double represents exactly
        "epoch": sample.epoch().to_string(),
        "engaged": sample.engaged,
        "version": view.map(|view| view.head.version),
        "hold": view.and_then(|view| view.head.hold.clone()),
        "answers": view.is_some(),
        "heard_ms_ago": sample.snapshot.age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        "stale": sample.snapshot.stale,
        // only the code: messages are for the log, and every client that reaches the port can read this
        "trouble": sample.snapshot.store_failure.as_ref().map(|failure| &failure.code),
        "nodes": nodes,
        "shards": shards,
    })
}

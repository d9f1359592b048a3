//! A view as people read it: who is there, in which state, holding what. Pure; ages are by the store's clock at the time
//! the view was read.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::contract::{LeaseRow, NodeId, NodeRow, QUEEN, View};

/// In order of trust: whoever has expired may be dead, and nobody else is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Ready, and has had traffic lately.
    Engaged,
    Ready,
    /// Beats, but is not to be given traffic.
    Unready,
    /// Leads nothing new.
    Draining,
    /// Has not beaten in time; not buried yet.
    Expired,
}

impl State {
    pub const ALL: [State; 5] = [State::Engaged, State::Ready, State::Unready, State::Draining, State::Expired];

    pub fn of(node: &NodeRow, hive_ms: u64) -> State {
        if !node.is_alive(hive_ms) {
            State::Expired
        } else if !node.eligible {
            State::Draining
        } else if node.is_engaged(hive_ms) {
            State::Engaged
        } else if node.ready {
            State::Ready
        } else {
            State::Unready
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            State::Engaged => "engaged",
            State::Ready => "ready",
            State::Unready => "unready",
            State::Draining => "draining",
            State::Expired => "expired",
        }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Entry {
    pub id: NodeId,
    pub name: String,
    pub state: State,
    /// May be given traffic: also one that drains, until it has served whom it has let in.
    pub ready: bool,
    pub queen: bool,
    /// Shards of sources that it holds.
    pub shards: usize,
    /// Everything that it holds, by name.
    pub leases: Vec<String>,
    /// Since its last beat.
    pub beat_age_ms: u64,
    /// What it said of itself: address, version, roles, weight, and whatever newer versions add.
    pub meta: Map<String, Value>,
}

impl Entry {
    pub fn text(&self, name: &str) -> &str {
        self.meta.get(name).and_then(Value::as_str).unwrap_or_default()
    }
}

/// By name, then id.
pub fn of(view: &View) -> Vec<Entry> {
    let mut entries: Vec<Entry> = view.nodes.iter().map(|node| entry(view, node)).collect();
    entries.sort_by(|one, other| (&one.name, one.id).cmp(&(&other.name, other.id)));
    entries
}

fn entry(view: &View, node: &NodeRow) -> Entry {
    let leases: Vec<String> =
        view.leases.iter().filter(|lease| holds(lease, node.id)).map(|lease| lease.name.to_string()).collect();
    let beaten_ms = node.expires_ms.saturating_sub(node.ttl_ms);
    Entry {
        id: node.id,
        name: node.name.clone(),
        state: State::of(node, view.head.hive_ms),
        ready: node.ready && node.is_alive(view.head.hive_ms),
        queen: leases.iter().any(|lease| lease == QUEEN),
        shards: leases.iter().filter(|lease| lease.starts_with("shard/")).count(),
        leases,
        beat_age_ms: view.head.hive_ms.saturating_sub(beaten_ms),
        meta: serde_json::from_str(&node.meta).unwrap_or_default(),
    }
}

fn holds(lease: &LeaseRow, node: NodeId) -> bool {
    lease.holder == Some(node) && !lease.free
}

/// Shards of the source that a member holds, and how many there are.
pub fn shards_held(view: &View, source: &str) -> (usize, usize) {
    let of_source = |lease: &&LeaseRow| {
        let place = lease.name.strip_prefix("shard/").and_then(|rest| rest.rsplit_once('/'));
        place.is_some_and(|(name, _)| name == source)
    };
    let held = view.leases.iter().filter(of_source).filter(|lease| !lease.free).count();
    (held, view.leases.iter().filter(of_source).count())
}

/// Whether each shard of the source is held by a member.
pub fn is_worked_on(view: &View, source: &str) -> bool {
    let (held, all) = shards_held(view, source);
    all > 0 && held == all
}

#[cfg(test)]
mod tests {
    use honeyflow_event::Epoch;
    use uuid::Uuid;

    use super::*;
    use crate::contract::Head;

    fn node(id: u128, expires_ms: u64) -> NodeRow {
        NodeRow {
            id: NodeId(Uuid::from_u128(id)),
            name: "a".to_owned(),
            beat: 1,
            heartbeat_ms: 2000,
            ttl_ms: 6000,
            expires_ms,
            engaged_ms: 0,
            ready: true,
            eligible: true,
            warm: Vec::new(),
            meta: r#"{"address":"127.0.0.1:1"}"#.to_owned(),
        }
    }

    fn lease(name: &str, holder: u128, free: bool) -> LeaseRow {
        LeaseRow {
            name: name.into(),
            epoch: Epoch(7),
            holder: Some(NodeId(Uuid::from_u128(holder))),
            heir: None,
            since_ms: 0,
            cause: "taken".to_owned(),
            free,
            heir_is_warm: false,
        }
    }

    #[test]
    fn hv_32_the_roster_says_who_is_in_which_state_and_holds_what() {
        let head = Head { hive_ms: 10_000, ..Head::default() };
        let nodes = vec![
            NodeRow { engaged_ms: 10_001, ..node(1, 15_000) },
            NodeRow { eligible: false, engaged_ms: 10_001, ..node(2, 15_000) },
            node(3, 10_000),
        ];
        let leases = vec![lease("queen", 1, false), lease("shard/shop/0", 1, false), lease("shard/shop/1", 9, true)];
        let view = View { head, nodes, leases };
        let roster = of(&view);
        assert_eq!(
            roster.iter().map(|one| one.state).collect::<Vec<_>>(),
            [State::Engaged, State::Draining, State::Expired]
        );
        assert!(roster[0].queen && !roster[1].queen);
        assert_eq!(roster.iter().map(|one| one.ready).collect::<Vec<_>>(), [true, true, false], "expired is not ready");
        assert_eq!(
            (roster[0].shards, &roster[0].leases[..]),
            (1, &["queen".to_owned(), "shard/shop/0".to_owned()][..])
        );
        assert_eq!((roster[0].beat_age_ms, roster[2].beat_age_ms), (1_000, 6_000));
        assert_eq!(roster[0].text("address"), "127.0.0.1:1");
        assert_eq!((shards_held(&view, "shop"), shards_held(&view, "sho")), ((1, 2), (0, 0)));
    }
}

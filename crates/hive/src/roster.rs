//! A view in a form for people: which nodes there are, in which state, and which leases they hold. The functions are
//! pure; ages are by the store's clock at the time when the view was read.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::contract::{LeaseRow, NodeId, NodeRow, QUEEN, View};

/// A node's state, the healthiest first. Only an expired node may be dead.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is ready and has had traffic lately.
    Engaged,
    Ready,
    /// It sends heartbeats, but should get no traffic.
    Unready,
    /// It takes no new leases.
    Draining,
    /// Its heartbeat is overdue; it is not removed yet.
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
    /// It may be given traffic. A draining node is ready too, until it has served the requests it has accepted.
    pub ready: bool,
    pub queen: bool,
    /// The number of shards that it holds, over all sources.
    pub shards: usize,
    /// The names of all leases that it holds.
    pub leases: Vec<String>,
    /// Time since its last heartbeat.
    pub beat_age_ms: u64,
    /// The node's meta data: address, version, roles, weight, and fields that newer releases add.
    pub meta: Map<String, Value>,
}

impl Entry {
    pub fn text(&self, name: &str) -> &str {
        self.meta.get(name).and_then(Value::as_str).unwrap_or_default()
    }
}

/// The entries of a view, ordered by name, then id.
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

/// How many shards of the source are held by a member, and how many there are.
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
            successor: None,
            since_ms: 0,
            cause: "taken".to_owned(),
            free,
            successor_is_warm: false,
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

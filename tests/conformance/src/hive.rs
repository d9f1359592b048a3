//! What every hive promises. A backend makes a fresh [`Harness`] and names it to [`hive_suite!`](crate::hive_suite).

use std::{any::Any, sync::Arc};

use honeyflow_event::Epoch;
use honeyflow_hive::{
    HiveStore, NodeId, Reply, Request,
    contract::{LeaseRow, NodeRow},
};
use uuid::Uuid;

pub struct Harness {
    pub hive: Arc<dyn HiveStore>,
    /// Whether a second node may join while the first lives.
    pub many_nodes: bool,
    /// Dropped last.
    pub keep: Box<dyn Any + Send + Sync>,
}

const LEASE: &str = "shard/conformance/0";

impl Harness {
    async fn call(&self, request: Request) -> Reply {
        self.hive.call(request).await.expect("the hive answers")
    }

    async fn join(&self) -> NodeId {
        let node = NodeId(Uuid::new_v4());
        let join = Request::Join { node, name: "one".into(), ttl_ms: 6000, meta: r#"{"pid":1}"#.into() };
        assert_eq!(self.call(join).await, Reply::Joined);
        node
    }

    async fn look(&self) -> (Epoch, Option<NodeId>, bool) {
        match self.call(Request::Look { lease: LEASE.into() }).await {
            Reply::Lease { epoch, holder, free } => (epoch, holder, free),
            other => panic!("{other:?}"),
        }
    }

    fn take(&self, node: NodeId, seen: Epoch, floor: Epoch) -> Request {
        Request::Take { lease: LEASE.into(), node, seen, floor, cause: "free".into() }
    }

    async fn taken(&self, node: NodeId) -> Epoch {
        let (seen, ..) = self.look().await;
        match self.call(self.take(node, seen, Epoch(0))).await {
            Reply::Taken { epoch } => epoch,
            other => panic!("{other:?}"),
        }
    }

    async fn nodes(&self) -> Vec<NodeRow> {
        match self.call(Request::Nodes).await {
            Reply::Nodes(nodes) => nodes,
            other => panic!("{other:?}"),
        }
    }

    async fn leases(&self) -> Vec<LeaseRow> {
        match self.call(Request::Leases).await {
            Reply::Leases(leases) => leases,
            other => panic!("{other:?}"),
        }
    }

    async fn hive_ms(&self, node: NodeId) -> u64 {
        match self.call(Request::Beat { node, read_only: true }).await {
            Reply::Beat { hive_ms, .. } => hive_ms,
            other => panic!("{other:?}"),
        }
    }
}

pub async fn hv_9_join_inserts_and_leave_removes(h: &Harness) {
    assert_eq!(h.nodes().await, []);
    let node = h.join().await;
    let nodes = h.nodes().await;
    let [row] = &nodes[..] else { panic!("{nodes:?}") };
    assert_eq!((row.id, &*row.name, row.beat), (node, "one", 0));
    assert_eq!(row.meta, r#"{"pid":1}"#);
    assert!((1..=6000).contains(&row.expires_in_ms), "{row:?}");
    assert_eq!(h.call(Request::Leave { node }).await, Reply::Done);
    assert_eq!(h.nodes().await, []);
    assert_eq!(h.call(Request::Leave { node }).await, Reply::Done, "twice is no error");
}

pub async fn hv_11_a_beat_renews_the_node(h: &Harness) {
    let node = h.join().await;
    let Reply::Beat { member: true, hive_ms } = h.call(Request::Beat { node, read_only: false }).await else {
        panic!("not a member")
    };
    assert!(hive_ms > 100_000_000_000, "milliseconds since 2020: {hive_ms}");
    assert_eq!(h.nodes().await[0].beat, 1);
    let Reply::Beat { member: true, .. } = h.call(Request::Beat { node, read_only: true }).await else {
        panic!("not a member")
    };
    assert_eq!(h.nodes().await[0].beat, 1, "a read-only beat renews nothing");
}

pub async fn hv_13_a_node_without_row_is_no_member(h: &Harness) {
    let stranger = NodeId(Uuid::new_v4());
    let node = h.join().await;
    h.call(Request::Leave { node }).await;
    for node in [stranger, node] {
        for read_only in [false, true] {
            let reply = h.call(Request::Beat { node, read_only }).await;
            assert!(matches!(reply, Reply::Beat { member: false, .. }), "{reply:?}");
        }
    }
    assert_eq!(h.nodes().await, [], "a beat never inserts");
}

pub async fn hv_5_look_makes_a_missing_lease(h: &Harness) {
    assert_eq!(h.look().await, (Epoch(0), None, true));
    assert_eq!(h.look().await, (Epoch(0), None, true));
    assert_eq!(h.leases().await.len(), 1);
}

pub async fn hv_33_epochs_only_grow(h: &Harness) {
    let node = h.join().await;
    let first = h.taken(node).await;
    assert!(first.0 + 60_000 > h.hive_ms(node).await, "at least hive time: {first:?}");
    assert_eq!(h.look().await, (first, Some(node), false));
    assert_eq!(h.call(Request::Release { lease: LEASE.into(), node, epoch: first }).await, Reply::Done);
    assert_eq!(h.look().await, (first, None, true), "the epoch outlives its holder");
    let second = h.taken(node).await;
    assert!(second > first);
    h.call(Request::Release { lease: LEASE.into(), node, epoch: second }).await;
    let floor = Epoch(second.0 + 1_000_000_000);
    let reply = h.call(h.take(node, second, floor)).await;
    assert_eq!(reply, Reply::Taken { epoch: Epoch(floor.0 + 1) }, "above a sink that is ahead");
    let row = &h.leases().await[0];
    assert_eq!((&*row.name, row.holder, &*row.cause), (LEASE, Some(node), "free"));
}

pub async fn hv_33_an_epoch_beyond_its_limit_is_refused(h: &Harness) {
    let node = h.join().await;
    let before = h.look().await;
    let failure = h.hive.call(h.take(node, before.0, Epoch::MAX)).await.expect_err("2^40 is the end");
    assert_eq!(failure.code, "epoch-too-large");
    assert_eq!(h.look().await, before, "nothing was taken");
}

pub async fn hv_34_take_compares_the_epoch_seen(h: &Harness) {
    let node = h.join().await;
    let first = h.taken(node).await;
    h.call(Request::Release { lease: LEASE.into(), node, epoch: first }).await;
    for seen in [Epoch(0), Epoch(first.0 - 1), Epoch(first.0 + 1)] {
        assert_eq!(h.call(h.take(node, seen, Epoch(0))).await, Reply::Refused, "{seen:?}");
    }
    assert_eq!(h.look().await, (first, None, true));
}

pub async fn hv_34_a_held_lease_is_not_free(h: &Harness) {
    let node = h.join().await;
    let epoch = h.taken(node).await;
    let taker = if h.many_nodes { h.join().await } else { node };
    assert_eq!(h.call(h.take(taker, epoch, Epoch(0))).await, Reply::Refused);
    assert_eq!(h.look().await, (epoch, Some(node), false));
}

pub async fn hv_34_of_two_takers_one_wins(h: &Harness) {
    let node = h.join().await;
    let (seen, ..) = h.look().await;
    let takes = (0..20).map(|_| h.hive.call(h.take(node, seen, Epoch(0))));
    let replies = futures_util::future::join_all(takes).await;
    let won = replies.iter().filter(|reply| matches!(reply, Ok(Reply::Taken { .. }))).count();
    let refused = replies.iter().filter(|reply| matches!(reply, Ok(Reply::Refused))).count();
    assert_eq!((won, refused), (1, 19), "{replies:?}");
}

pub async fn hv_9_who_has_not_joined_takes_nothing(h: &Harness) {
    let stranger = NodeId(Uuid::new_v4());
    let (seen, ..) = h.look().await;
    assert_eq!(h.call(h.take(stranger, seen, Epoch(0))).await, Reply::Refused);
    let node = h.join().await;
    let epoch = h.taken(node).await;
    let request =
        Request::HandOver { lease: LEASE.into(), node, epoch, heir: stranger, floor: Epoch(0), cause: "test".into() };
    assert_eq!(h.call(request).await, Reply::Refused);
    assert_eq!(h.look().await, (epoch, Some(node), false));
}

pub async fn hv_36_a_hand_over_to_itself_mints_anew(h: &Harness) {
    let node = h.join().await;
    let epoch = h.taken(node).await;
    let hand_over = |epoch| Request::HandOver {
        lease: LEASE.into(),
        node,
        epoch,
        heir: node,
        floor: Epoch(0),
        cause: "anew".into(),
    };
    let Reply::Taken { epoch: minted } = h.call(hand_over(epoch)).await else { panic!("refused") };
    assert!(minted > epoch);
    assert_eq!(h.call(hand_over(epoch)).await, Reply::Refused, "the old epoch is over");
    assert_eq!(h.look().await, (minted, Some(node), false));
}

pub async fn hv_45_a_hand_over_is_never_vacant(h: &Harness) {
    if !h.many_nodes {
        return;
    }
    let (node, heir) = (h.join().await, h.join().await);
    let epoch = h.taken(node).await;
    let request =
        Request::HandOver { lease: LEASE.into(), node, epoch, heir, floor: Epoch(0), cause: "leaving".into() };
    let Reply::Taken { epoch: minted } = h.call(request).await else { panic!("refused") };
    assert_eq!(h.look().await, (minted, Some(heir), false));
    let release = Request::Release { lease: LEASE.into(), node, epoch };
    assert_eq!(h.call(release).await, Reply::Refused, "no longer its own");
}

pub async fn hv_35_only_the_holder_releases(h: &Harness) {
    let node = h.join().await;
    let epoch = h.taken(node).await;
    let stranger = NodeId(Uuid::new_v4());
    for (node, epoch) in [(stranger, epoch), (node, Epoch(epoch.0 - 1))] {
        assert_eq!(h.call(Request::Release { lease: LEASE.into(), node, epoch }).await, Reply::Refused);
    }
    assert_eq!(h.look().await, (epoch, Some(node), false));
}

pub async fn hv_21_leaving_frees_the_leases(h: &Harness) {
    let node = h.join().await;
    let epoch = h.taken(node).await;
    h.call(Request::Leave { node }).await;
    assert_eq!(h.look().await, (epoch, None, true));
    let next = h.join().await;
    assert!(h.taken(next).await > epoch);
}

/// Makes a test of every case. `$fresh` is an async function that answers a [`Harness`](crate::hive::Harness).
#[macro_export]
macro_rules! hive_suite {
    (@tests $fresh:path; $($case:ident)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                let harness = $fresh().await;
                $crate::hive::$case(&harness).await;
            }
        )*
    };
    (@run $fresh:path; $($case:ident)*) => {
        $( $crate::hive::$case(&$fresh().await).await; )*
    };
    (@cases $mode:ident $fresh:path) => {
        $crate::hive_suite! { @$mode $fresh;
            hv_9_join_inserts_and_leave_removes
            hv_11_a_beat_renews_the_node
            hv_13_a_node_without_row_is_no_member
            hv_5_look_makes_a_missing_lease
            hv_33_epochs_only_grow
            hv_33_an_epoch_beyond_its_limit_is_refused
            hv_34_take_compares_the_epoch_seen
            hv_34_a_held_lease_is_not_free
            hv_34_of_two_takers_one_wins
            hv_9_who_has_not_joined_takes_nothing
            hv_36_a_hand_over_to_itself_mints_anew
            hv_45_a_hand_over_is_never_vacant
            hv_35_only_the_holder_releases
            hv_21_leaving_frees_the_leases
        }
    };
    ($fresh:path) => { $crate::hive_suite!(@cases tests $fresh); };
}

/// All cases one after the other, each on a fresh harness.
pub async fn run_all<F: Future<Output = Harness>>(fresh: impl Fn() -> F) {
    crate::hive_suite!(@cases run fresh);
}

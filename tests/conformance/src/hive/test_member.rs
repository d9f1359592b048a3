//! A member of the hive with its own connection, which sends one request at a time.

use std::sync::Arc;

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    HiveStore, NodeId, Reply, Request, Term,
    contract::{Claim, Events, HeldLease, LeaseRow, Mint, NodeRow, Removal, State, Status, View, limit},
    member,
};
use uuid::Uuid;

use super::HEARTBEAT_MS;

pub struct TestMember {
    pub hive: Arc<dyn HiveStore>,
    pub id: NodeId,
    /// The server's lineage, as the reply to the join said.
    pub lineage: Name,
}

pub fn fresh_id() -> NodeId {
    NodeId(Uuid::new_v4())
}

pub fn join(node: NodeId, name: &str, ttl_ms: u64) -> Request {
    Request::Join { node, name: name.into(), heartbeat_ms: HEARTBEAT_MS, ttl_ms, meta: r#"{"pid":1}"#.into() }
}

pub async fn call(hive: &dyn HiveStore, request: Request) -> Reply {
    let text = format!("{request:?}");
    hive.call(request).await.unwrap_or_else(|failure| panic!("{text}: {failure:?}"))
}

pub async fn view(hive: &dyn HiveStore) -> View {
    match call(hive, Request::View).await {
        Reply::View(view) => *view,
        other => panic!("{other:?}"),
    }
}

pub fn eligible_state() -> State {
    State { ready: true, eligible: true, ..State::default() }
}

pub fn epoch_of(reply: &Reply) -> Epoch {
    match reply {
        Reply::Taken(taken) if taken.len() == 1 => taken[0].epoch,
        other => panic!("not taken: {other:?}"),
    }
}

impl TestMember {
    pub async fn join(hive: Arc<dyn HiveStore>, name: &str, ttl_ms: u64) -> TestMember {
        let id = fresh_id();
        let Reply::Joined(status) = call(&*hive, join(id, name, ttl_ms)).await else { panic!("not joined") };
        assert!(status.member && status.renewed, "{status:?}");
        TestMember { hive, id, lineage: status.head.server.into() }
    }

    pub async fn call(&self, request: Request) -> Reply {
        call(&*self.hive, request).await
    }

    pub async fn limit(&self, request: limit::Request) -> limit::Reply {
        match self.call(Request::Limit(request)).await {
            Reply::Limit(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub async fn beat(&self) -> Status {
        self.beat_with(eligible_state()).await
    }

    pub async fn beat_with(&self, state: State) -> Status {
        match self.call(Request::Beat { node: self.id, read_only: false, state }).await {
            Reply::Beat(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    pub async fn read_only(&self) -> Status {
        match self.call(Request::Beat { node: self.id, read_only: true, state: eligible_state() }).await {
            Reply::Beat(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    pub async fn view(&self) -> View {
        view(&*self.hive).await
    }

    /// The member's row, as other members see it.
    pub async fn row(&self) -> Option<NodeRow> {
        self.view().await.nodes.into_iter().find(|row| row.id == self.id)
    }

    pub async fn version(&self) -> u64 {
        self.view().await.head.version
    }

    pub async fn events(&self, after: u64) -> Events {
        match self.call(Request::Events { after, max: 10_000 }).await {
            Reply::Events(events) => *events,
            other => panic!("a gap: {other:?}"),
        }
    }

    pub async fn look(&self, lease: &str) -> LeaseRow {
        match self.call(Request::Look { leases: vec![lease.into()] }).await {
            Reply::Leases { mut leases, .. } if leases.len() == 1 => leases.remove(0),
            other => panic!("{other:?}"),
        }
    }

    pub fn mint(&self) -> Mint {
        Mint { lineage: self.lineage.clone(), watched: false }
    }

    pub fn claim(&self, lease: &str, seen: Epoch) -> Request {
        let claims = vec![Claim::new(lease.into(), seen)];
        Request::Take { node: self.id, claims, cause: "free".into(), mint: self.mint() }
    }

    pub async fn take(&self, lease: &str) -> Epoch {
        let seen = self.look(lease).await.epoch;
        epoch_of(&self.call(self.claim(lease, seen)).await)
    }

    /// Like [`TestMember::take`], but returns the term.
    pub async fn term(&self, lease: &str) -> Term {
        member::take_as_member(&*self.hive, self.id, lease).await.expect("a free lease is granted")
    }

    pub fn transfer_request(&self, lease: &str, epoch: Epoch, successor: NodeId) -> Request {
        let claims = vec![Claim::new(lease.into(), epoch)];
        Request::HandOver { node: self.id, successor, claims, cause: "moving".into(), mint: self.mint() }
    }

    pub async fn release(&self, lease: &str, epoch: Epoch) -> bool {
        let held = vec![HeldLease { lease: lease.into(), epoch }];
        match self.call(Request::Release { node: self.id, held, cause: "done".into() }).await {
            Reply::Released(released) => !released.is_empty(),
            other => panic!("{other:?}"),
        }
    }

    pub fn removal(dead: NodeId, beat: u64, silent: bool) -> Removal {
        Removal { node: dead, beat, silent, cause: "silence".into() }
    }

    pub async fn removes(&self, dead: NodeId, beat: u64, silent: bool) -> bool {
        match self.call(Request::Remove { nodes: vec![TestMember::removal(dead, beat, silent)] }).await {
            Reply::Removed(removed) => removed == [dead],
            other => panic!("{other:?}"),
        }
    }

    /// The member's process dies; its row stays.
    pub fn crash(self) -> NodeId {
        self.id
    }

    /// Removes a member that has died and expired. The kernel may take a moment to free its lock.
    pub async fn removes_in_time(&self, dead: NodeId, beat: u64) -> bool {
        for _ in 0..500 {
            if self.removes(dead, beat, false).await {
                return true;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        false
    }
}

//! Tests of single rules. The test plays the store and moves the clock.

mod duty;
mod heartbeat;
mod lease;
mod shards;

use uuid::Uuid;

use super::*;
use crate::contract::{Counts, Head, LeaseRow, NodeRow, Queen, Status, WatchedNode};

pub const DUTY: &str = "duty/report";

pub fn id(n: u128) -> NodeId {
    NodeId(Uuid::from_u128(n))
}

pub const ME: u128 = 1;

/// One member, and a store that answers as the test says.
pub struct Table {
    pub member: Member,
    pub now: Moment,
    /// Requests that are not answered yet.
    pub in_flight: Vec<(u64, Request)>,
    pub effects: Vec<Effect>,
    pub head: Head,
    pub nodes: Vec<NodeRow>,
    pub leases: Vec<LeaseRow>,
    pub soonest: Vec<WatchedNode>,
    pub queen: Option<Queen>,
    pub successor_of: Vec<Name>,
}

impl Table {
    pub fn new() -> Table {
        Table::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Table {
        let mut config = Config { stands: false, ..Config::new("a", "{}") };
        change(&mut config);
        let head = Head {
            hive_ms: 500_000,
            server: "s".into(),
            lineage: Some("s".into()),
            origin: Some(Uuid::from_u128(7)),
            max_ttl_ms: 6_000,
            version: 1,
            ..Head::default()
        };
        let mut table = Table {
            member: Member::new(config),
            now: Moment::from_millis(1_000_000),
            in_flight: Vec::new(),
            effects: Vec::new(),
            head,
            nodes: vec![node(ME)],
            leases: Vec::new(),
            soonest: Vec::new(),
            queen: None,
            successor_of: Vec::new(),
        };
        table.step(Input::Identity(id(ME)));
        table
    }

    /// Returns the member's effects. Requests go to `in_flight`, and published state to `effects`.
    pub fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.member.step(input, self.now, &mut effects);
        let mut others = Vec::new();
        for effect in effects {
            match effect {
                Effect::Call { call, request, .. } => self.in_flight.push((call, request)),
                Effect::Engaged(_) | Effect::Limits(_) | Effect::Trust(_) | Effect::Changed { .. } => {
                    self.effects.push(effect);
                }
                effect => others.push(effect),
            }
        }
        others
    }

    /// Moves the clock.
    pub fn pass(&mut self, millis: u64) -> Vec<Effect> {
        self.now = self.now.after(Duration::from_millis(millis));
        self.head.hive_ms += millis;
        self.step(Input::Tick)
    }

    pub fn reply(&mut self, wanted: impl Fn(&Request) -> bool, result: Result<Reply, Failure>) -> Vec<Effect> {
        let at = self.in_flight.iter().position(|(_, request)| wanted(request));
        let at = at.unwrap_or_else(|| panic!("no such request in {:?}", self.in_flight));
        let (call, _) = self.in_flight.remove(at);
        self.step(Input::Answer { call, result })
    }

    pub fn request(&self, wanted: impl Fn(&Request) -> bool) -> Option<&Request> {
        self.in_flight.iter().map(|(_, request)| request).find(|request| wanted(request))
    }

    pub fn status(&self) -> Status {
        Status {
            head: self.head.clone(),
            member: true,
            renewed: true,
            queen: self.queen.clone(),
            successor_of: self.successor_of.clone(),
            soonest: self.soonest.clone(),
            ahead: false,
        }
    }

    /// Answers the heartbeat in flight with the current state.
    pub fn answer_heartbeat(&mut self) -> Vec<Effect> {
        let status = self.status();
        self.reply(is_beat, Ok(Reply::Beat(Box::new(status))))
    }

    pub fn answer_view(&mut self) -> Vec<Effect> {
        let view = View { head: self.head.clone(), nodes: self.nodes.clone(), leases: self.leases.clone() };
        self.reply(is_view, Ok(Reply::View(Box::new(view))))
    }

    pub fn answer_look(&mut self) -> Vec<Effect> {
        let Some(Request::Look { leases }) = self.request(is_look).cloned() else { panic!("{:?}", self.in_flight) };
        for name in &leases {
            if !self.leases.iter().any(|row| row.name == *name) {
                self.leases.push(row(name, 0, None));
            }
        }
        let found = |name: &Name| self.leases.iter().find(|row| row.name == *name).cloned();
        let leases = leases.iter().filter_map(found).collect();
        self.reply(is_look, Ok(Reply::Leases { hive_ms: self.head.hive_ms, leases }))
    }

    /// Grants all leases of a take or hand-over, under this epoch.
    pub fn grant(&mut self, wanted: fn(&Request) -> bool, epoch: u64) -> Vec<Effect> {
        let Some(Request::Take { claims, .. } | Request::HandOver { claims, .. }) = self.request(wanted).cloned()
        else {
            panic!("{:?}", self.in_flight)
        };
        let held: Vec<HeldLease> =
            claims.iter().map(|claim| HeldLease { lease: claim.lease.clone(), epoch: Epoch(epoch) }).collect();
        for HeldLease { lease, .. } in &held {
            self.leases.retain(|row| row.name != *lease);
            self.leases.push(row(lease, epoch, Some(ME)));
        }
        self.leases.sort_by(|a, b| a.name.cmp(&b.name));
        self.reply(wanted, Ok(Reply::Taken(held)))
    }

    /// Lets the member join, send a heartbeat, and read the view.
    pub fn join(&mut self) {
        let status = self.status();
        self.reply(|request| matches!(request, Request::Join { .. }), Ok(Reply::Joined(Box::new(status))));
        self.answer_heartbeat();
        self.answer_view();
    }

    /// A member that holds the duty under epoch 5.
    pub fn holding() -> Table {
        let mut table = Table::new();
        table.step(Input::Want(DUTY.into()));
        table.join();
        table.answer_look();
        let effects = table.grant(is_take, 5);
        assert!(matches!(&effects[..], [Effect::Granted(term)] if term.epoch() == Epoch(5)), "{effects:?}");
        table
    }

    pub fn is_settled(&self) -> bool {
        self.member.wake_at() > self.now
    }
}

pub fn node(n: u128) -> NodeRow {
    NodeRow {
        id: id(n),
        name: format!("node-{n}"),
        beat: 1,
        heartbeat_ms: 2_000,
        ttl_ms: 6_000,
        expires_ms: u64::MAX,
        engaged_ms: 0,
        ready: true,
        eligible: true,
        warm: Vec::new(),
        meta: "{}".to_owned(),
    }
}

pub fn row(name: &str, epoch: u64, holder: Option<u128>) -> LeaseRow {
    LeaseRow {
        name: name.into(),
        epoch: Epoch(epoch),
        holder: holder.map(id),
        successor: None,
        since_ms: 0,
        cause: String::new(),
        free: holder.is_none(),
        successor_is_warm: false,
    }
}

pub fn watched(n: u128, beat: u64, expires_ms: u64) -> WatchedNode {
    WatchedNode { id: id(n), beat, heartbeat_ms: 2_000, ttl_ms: 6_000, expires_ms, dead: false }
}

pub fn counts(engaged: u64, counted_ms: u64) -> Counts {
    Counts { alive: engaged, ready: engaged, engaged, epoch: Epoch(1), counted_ms }
}

pub fn broken() -> Result<Reply, Failure> {
    Err(Failure::retry("cut", "the connection broke"))
}

pub fn is_beat(request: &Request) -> bool {
    matches!(request, Request::Beat { .. })
}

pub fn is_writing_beat(request: &Request) -> bool {
    matches!(request, Request::Beat { read_only: false, .. })
}

pub fn is_view(request: &Request) -> bool {
    matches!(request, Request::View | Request::Events { .. })
}

pub fn is_look(request: &Request) -> bool {
    matches!(request, Request::Look { .. })
}

pub fn is_take(request: &Request) -> bool {
    matches!(request, Request::Take { .. })
}

/// A hand-over of a node to itself.
pub fn is_mint(request: &Request) -> bool {
    matches!(request, Request::HandOver { successor, node, .. } if successor == node)
}

pub fn is_transfer(request: &Request) -> bool {
    matches!(request, Request::HandOver { successor, node, .. } if successor != node)
}

pub fn is_release(request: &Request) -> bool {
    matches!(request, Request::Release { .. })
}

pub fn is_lost(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Lost { .. }))
}

pub fn is_granted(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Granted(_)))
}

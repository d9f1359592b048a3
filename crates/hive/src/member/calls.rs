//! The requests in flight. After its deadline a request counts as unanswered and its outcome as unknown; a later answer
//! is ignored.

use std::{collections::BTreeMap, time::Duration};

use honeyflow_event::Name;
use honeyflow_runtime::{Failure, Moment};

use super::Effect;
use crate::{
    codes,
    contract::{NodeId, Request},
};

#[derive(Clone, PartialEq, Debug)]
pub(super) enum CallKind {
    Join,
    Beat {
        read_only: bool,
    },
    View,
    Lineage,
    Behind,
    Mend,
    /// With the members that heartbeat replies have shown to be expired; empty for a probe of kernel locks.
    Remove(Vec<NodeId>),
    Count(Vec<NodeId>),
    Tally,
    Sweep,
    Look(Vec<Name>),
    Take(Vec<Name>),
    Mint(Vec<Name>),
    Transfer(Name, NodeId),
    Release(Vec<Name>),
    /// Names a successor, or clears it (`None`).
    SetSuccessor(Name, Option<NodeId>),
    Leave,
}

impl CallKind {
    /// Whether the request concerns only this node. Such answers count even after the store was replaced: the
    /// heartbeat reply is what reveals another store.
    pub fn concerns_only_this_node(&self) -> bool {
        matches!(self, CallKind::Join | CallKind::Beat { .. } | CallKind::Leave)
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct PendingCall {
    pub kind: CallKind,
    pub at: Moment,
    pub until: Moment,
    /// The view's version known at that time: a reply with a lower one comes from a store that went back in time.
    pub version: u64,
    /// The store (see [`super::Member`]) at that time: if it was replaced since, the answer says nothing.
    pub store: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    last: u64,
    in_flight: BTreeMap<u64, PendingCall>,
}

impl Calls {
    pub fn send(&mut self, sent: PendingCall, request: Request, effects: &mut Vec<Effect>) {
        self.last += 1;
        effects.push(Effect::Call { call: self.last, request, until: sent.until });
        self.in_flight.insert(self.last, sent);
    }

    pub fn take_answered(&mut self, call: u64) -> Option<PendingCall> {
        self.in_flight.remove(&call)
    }

    pub fn take_overdue(&mut self, now: Moment) -> Vec<PendingCall> {
        let late: Vec<u64> =
            self.in_flight.iter().filter(|(_, sent)| sent.until <= now).map(|(call, _)| *call).collect();
        late.iter().filter_map(|call| self.in_flight.remove(call)).collect()
    }

    pub fn deadline(&self) -> Moment {
        self.in_flight.values().map(|sent| sent.until).min().unwrap_or(Moment::FAR)
    }

    pub fn is_in_flight(&self, what: impl Fn(&CallKind) -> bool) -> bool {
        self.in_flight.values().any(|sent| what(&sent.kind))
    }

    pub fn has_heartbeat_in_flight(&self) -> bool {
        self.is_in_flight(|kind| matches!(kind, CallKind::Beat { .. }))
    }

    /// Drops all requests of an incarnation that has ended.
    pub fn drop_all(&mut self) {
        self.in_flight.clear();
    }
}

pub(super) fn no_answer(within: Duration) -> Failure {
    Failure::retry(codes::NO_ANSWER, format!("the hive's store has not answered within {within:?}"))
}

pub(super) fn another_store() -> Failure {
    Failure::retry(codes::ANOTHER_STORE, "the hive's store was replaced before it answered")
}

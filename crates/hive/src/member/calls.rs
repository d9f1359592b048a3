//! What was asked and is not answered yet. Past its deadline a request counts as unanswered, its outcome as unknown, and
//! whatever still comes back is not heard.

use std::{collections::BTreeMap, time::Duration};

use honeyflow_event::Name;
use honeyflow_runtime::{Failure, Moment};

use super::Effect;
use crate::contract::{NodeId, Request};

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Asked {
    Join,
    Beat {
        read_only: bool,
    },
    View,
    Lineage,
    Behind,
    Mend,
    /// With those whose end was told by their beats.
    Bury(Vec<NodeId>),
    Count(Vec<NodeId>),
    Tally,
    Sweep,
    Look(Vec<Name>),
    Take(Vec<Name>),
    Mint(Vec<Name>),
    Give(Name, NodeId),
    Release(Vec<Name>),
    /// None: nobody is to be.
    Heir(Name, Option<NodeId>),
    Leave,
}

impl Asked {
    /// About this node alone; its beat is what tells of another store.
    pub fn is_of_a_node(&self) -> bool {
        matches!(self, Asked::Join | Asked::Beat { .. } | Asked::Leave)
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sent {
    pub asked: Asked,
    pub at: Moment,
    pub until: Moment,
    /// The view's version that was known then: an answer that shows less tells of a store that went back.
    pub version: u64,
    /// Of which store's rows it was asked: of another, the answer says nothing here.
    pub store: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    last: u64,
    open: BTreeMap<u64, Sent>,
}

impl Calls {
    pub fn send(&mut self, sent: Sent, request: Request, effects: &mut Vec<Effect>) {
        self.last += 1;
        effects.push(Effect::Call { call: self.last, request, until: sent.until });
        self.open.insert(self.last, sent);
    }

    pub fn answered(&mut self, call: u64) -> Option<Sent> {
        self.open.remove(&call)
    }

    pub fn overdue(&mut self, now: Moment) -> Vec<Sent> {
        let late: Vec<u64> = self.open.iter().filter(|(_, sent)| sent.until <= now).map(|(call, _)| *call).collect();
        late.iter().filter_map(|call| self.open.remove(call)).collect()
    }

    pub fn deadline(&self) -> Moment {
        self.open.values().map(|sent| sent.until).min().unwrap_or(Moment::FAR)
    }

    pub fn is_open(&self, what: impl Fn(&Asked) -> bool) -> bool {
        self.open.values().any(|sent| what(&sent.asked))
    }

    pub fn is_beating(&self) -> bool {
        self.is_open(|asked| matches!(asked, Asked::Beat { .. }))
    }

    /// Of an incarnation that is no more.
    pub fn forget(&mut self) {
        self.open.clear();
    }
}

pub(super) fn no_answer(within: Duration) -> Failure {
    Failure::retry("no-answer", format!("the hive's store has not answered within {within:?}"))
}

pub(super) fn another_store() -> Failure {
    Failure::retry("another-store", "the hive's store was replaced before it answered")
}

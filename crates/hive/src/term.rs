//! A term of a lease, and the fence that every effect under it shows.

use honeyflow_event::{Epoch, Name};

use crate::contract::NodeId;

/// (lease, epoch, holder): granted by a store's answer, dead for good once trust in it has run out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Term {
    lease: Name,
    epoch: Epoch,
    holder: NodeId,
}

impl Term {
    /// Only [`crate::Member`] makes terms, from what a store has answered.
    pub(crate) fn granted(lease: Name, epoch: Epoch, holder: NodeId) -> Term {
        Term { lease, epoch, holder }
    }

    pub fn lease(&self) -> &Name {
        &self.lease
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub fn holder(&self) -> NodeId {
        self.holder
    }

    pub fn fence(&self) -> Fence {
        Fence { lease: self.lease.clone(), epoch: self.epoch, holder: self.holder }
    }
}

/// What a fenced request shows. The store compares it with the lease row in the transaction that writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fence {
    lease: Name,
    epoch: Epoch,
    holder: NodeId,
}

impl Fence {
    pub fn lease(&self) -> &Name {
        &self.lease
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether the lease row still says the same: what [`crate::fence`] says in SQL, for stores that are not SQL.
    pub fn holds(&self, epoch: Epoch, holder: Option<NodeId>) -> bool {
        (self.epoch == epoch && holder == Some(self.holder)) || crate::planted::on("PB-1")
    }

    pub fn holder(&self) -> NodeId {
        self.holder
    }
}

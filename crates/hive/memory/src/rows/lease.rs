//! Leases: reads, and every transfer from one holder to another.

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Fence, NodeId, Reply,
    contract::{Claim, EventKind, HeldLease, LeaseRow, Mint, Refusal},
    planted,
};
use honeyflow_runtime::Failure;

use super::{Lease, Rows};

impl Rows {
    pub(super) fn read_leases(&mut self, now_ms: u64, names: &[Name]) -> Reply {
        for name in names {
            let missing = || Lease { epoch: Epoch(0), holder: None, heir: None, since_ms: now_ms, cause: "".into() };
            self.leases.entry(name.clone()).or_insert_with(missing);
        }
        let leases = names.iter().filter_map(|name| self.lease_row(now_ms, name)).collect();
        Reply::Leases { hive_ms: now_ms, leases }
    }

    pub(super) fn lease_row(&self, now_ms: u64, name: &Name) -> Option<LeaseRow> {
        let lease = self.leases.get(name)?;
        let is_warm = |heir| {
            let row = self.nodes.get(&heir);
            row.is_some_and(|row| row.eligible && row.is_alive(now_ms) && row.warm.contains(name))
        };
        Some(LeaseRow {
            name: name.clone(),
            epoch: lease.epoch,
            holder: lease.holder,
            successor: lease.heir,
            since_ms: lease.since_ms,
            cause: lease.cause.to_string(),
            free: self.is_free(lease),
            successor_is_warm: lease.heir.is_some_and(is_warm),
        })
    }

    fn is_free(&self, lease: &Lease) -> bool {
        lease.holder.is_none_or(|holder| !self.nodes.contains_key(&holder))
    }

    fn may_mint(&self, now_ms: u64, mint: &Mint) -> Result<(), Refusal> {
        let view = self.view.as_ref().ok_or(Refusal::Lineage)?;
        let same = *mint.lineage == *self.server && view.lineage.as_ref() == Some(&self.server);
        if !same && !planted::on("lineage not compared") {
            return Err(Refusal::Lineage);
        }
        if view.hold.is_some() {
            return Err(Refusal::Hold);
        }
        match self.head(now_ms).wait_ms() {
            wait_ms if wait_ms > 0 && !mint.watched => Err(Refusal::Early { wait_ms }),
            _ => Ok(()),
        }
    }

    fn may_lead(&self, now_ms: u64, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|row| row.eligible && row.is_alive(now_ms))
    }

    pub(super) fn take(
        &mut self,
        now_ms: u64,
        node: NodeId,
        claims: &[Claim],
        cause: &Name,
        mint: &Mint,
    ) -> Result<Reply, Failure> {
        if let Err(refusal) = self.may_mint(now_ms, mint) {
            return Ok(Reply::Refused(refusal));
        }
        if !self.may_lead(now_ms, node) {
            return Ok(Reply::Refused(Refusal::Unfit));
        }
        let unseen = planted::on("take without epoch compare");
        let allowed =
            |rows: &Rows, lease: &Lease, claim: &Claim| (lease.epoch == claim.epoch && rows.is_free(lease)) || unseen;
        self.mint(now_ms, node, claims, cause, EventKind::Taken, allowed)
    }

    pub(super) fn hand_over(
        &mut self,
        now_ms: u64,
        (node, heir): (NodeId, NodeId),
        claims: &[Claim],
        cause: &Name,
        mint: &Mint,
    ) -> Result<Reply, Failure> {
        if let Err(refusal) = self.may_mint(now_ms, mint) {
            return Ok(Reply::Refused(refusal));
        }
        let is_fit = match self.nodes.get(&heir) {
            Some(row) => row.is_alive(now_ms) && (row.eligible || heir == node),
            None => false,
        };
        if !is_fit {
            return Ok(Reply::Refused(Refusal::Unfit));
        }
        let allowed = |_: &Rows, lease: &Lease, claim: &Claim| lease.epoch == claim.epoch && lease.holder == Some(node);
        self.mint(now_ms, heir, claims, cause, EventKind::HandedOver, allowed)
    }

    fn mint(
        &mut self,
        now_ms: u64,
        holder: NodeId,
        claims: &[Claim],
        cause: &Name,
        kind: EventKind,
        allowed: impl Fn(&Rows, &Lease, &Claim) -> bool,
    ) -> Result<Reply, Failure> {
        let mut minted: Vec<HeldLease> = Vec::new();
        for claim in claims {
            let lease = self.leases.get(&claim.lease).filter(|lease| allowed(self, lease, claim));
            if let Some(lease) = lease.filter(|_| minted.iter().all(|held| held.lease != claim.lease)) {
                let next = if planted::on("plain epoch") { 0 } else { now_ms };
                let epoch = Epoch((lease.epoch.0 + 1).max(next).max(claim.floor.0.saturating_add(1)));
                if epoch > Epoch::MAX {
                    let said = format!("lease {}: epoch {} is beyond 2^40", claim.lease, epoch.0);
                    return Err(Failure::fatal(honeyflow_hive::codes::EPOCH_TOO_LARGE, said));
                }
                minted.push(HeldLease { lease: claim.lease.clone(), epoch });
            }
        }
        if minted.is_empty() {
            return Ok(Reply::Refused(Refusal::Raced));
        }
        for HeldLease { lease, epoch } in &minted {
            let row = Lease { epoch: *epoch, holder: Some(holder), heir: None, since_ms: now_ms, cause: cause.clone() };
            self.leases.insert(lease.clone(), row);
            self.event(now_ms, kind, Some(holder), Some((lease, *epoch)), cause);
        }
        Ok(Reply::Taken(minted))
    }

    pub(super) fn release(&mut self, now_ms: u64, node: NodeId, held: &[HeldLease], cause: &Name) -> Reply {
        let mut released = Vec::new();
        for HeldLease { lease, epoch } in held {
            let row = self.leases.get_mut(lease);
            if let Some(row) = row.filter(|row| row.epoch == *epoch && row.holder == Some(node)) {
                *row = Lease { epoch: *epoch, holder: None, heir: None, since_ms: now_ms, cause: cause.clone() };
                self.event(now_ms, EventKind::Released, Some(node), Some((lease, *epoch)), cause);
                released.push(lease.clone());
            }
        }
        if planted::on("lease row deleted on release") {
            self.leases.retain(|name, _| !released.contains(name));
        }
        Reply::Released(released)
    }

    pub(super) fn set_successor(&mut self, now_ms: u64, fence: &Fence, heir: Option<NodeId>) -> Reply {
        if !self.holds(fence) {
            return stale(fence);
        }
        if heir.is_some_and(|heir| !self.may_lead(now_ms, heir)) {
            return Reply::Refused(Refusal::Unfit);
        }
        if let Some(lease) = self.leases.get_mut(fence.lease()) {
            lease.heir = heir;
        }
        Reply::Done
    }
}

pub(super) fn stale(fence: &Fence) -> Reply {
    Reply::Stale(vec![fence.lease().clone()])
}

//! Leases: reads, and every transfer from one holder to another as one compare-and-set statement.

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Fence, NodeId, Reply,
    contract::{Claim, EventKind, HeldLease, LeaseRow, Mint, Refusal},
};
use honeyflow_runtime::Failure;
use rusqlite::{OptionalExtension, ToSql, params};

use crate::{
    answer::Hive,
    codes,
    row::{self, LEASE, LEASE_FROM, signed},
    session::{Answer, Session, stale},
};

const TAKE: &str =
    "update hive_lease set holder = ?3, epoch = max(epoch + 1, ?5, ?6 + 1), heir = null, since_ms = ?5, cause = ?7
    where hive = ?1 and name = ?2 and epoch = ?4
      and (holder is null or not exists (select 1 from hive_node n where n.hive = ?1 and n.id = hive_lease.holder))
    returning epoch";
const HAND_OVER: &str =
    "update hive_lease set holder = ?3, epoch = max(epoch + 1, ?5, ?6 + 1), heir = null, since_ms = ?5, cause = ?7
    where hive = ?1 and name = ?2 and epoch = ?4 and holder = ?8
    returning epoch";

impl Hive {
    pub fn read_leases(&mut self, names: &[Name]) -> Answer<Reply> {
        let found = self.read(|s| {
            let leases = if s.has_tables()? { s.existing_leases(names)? } else { Vec::new() };
            Ok((s.now_ms, leases))
        })?;
        let (hive_ms, leases) = match found {
            (hive_ms, leases) if leases.len() == names.len() => (hive_ms, leases),
            _ => self.write(|s| {
                for name in names {
                    s.cached(
                        "insert into hive_lease(hive, name, epoch, since_ms, cause) values (?1, ?2, 0, ?3, '')
                         on conflict(hive, name) do nothing",
                    )?
                    .execute(params![s.hive, name, s.now()])?;
                }
                Ok((s.now_ms, s.existing_leases(names)?))
            })?,
        };
        Ok(Reply::Leases { hive_ms, leases })
    }
}

impl Session<'_> {
    fn existing_leases(&self, names: &[Name]) -> Answer<Vec<LeaseRow>> {
        let mut leases = Vec::new();
        for name in names {
            leases.extend(self.lease(name)?);
        }
        Ok(leases)
    }

    pub fn lease(&self, name: &str) -> Answer<Option<LeaseRow>> {
        let found = self
            .cached(&format!("select {LEASE} from {LEASE_FROM} where l.hive = ?1 and l.name = ?3"))?
            .query_row(params![self.hive, self.now(), name], row::lease)
            .optional()?;
        Ok(found)
    }

    pub fn leases(&self) -> Answer<Vec<LeaseRow>> {
        let leases = self
            .cached(&format!("select {LEASE} from {LEASE_FROM} where l.hive = ?1 order by l.name"))?
            .query_map(params![self.hive, self.now()], row::lease)?
            .collect::<Result<_, _>>()?;
        Ok(leases)
    }

    fn refusal(&self, mint: &Mint) -> Answer<Option<Refusal>> {
        let head = self.head()?;
        let wait_ms = head.wait_ms();
        Ok(if *mint.lineage != *self.server || head.lineage.as_deref() != Some(self.server) {
            Some(Refusal::Lineage)
        } else if head.hold.is_some() {
            Some(Refusal::Hold)
        } else if wait_ms > 0 && !mint.watched {
            Some(Refusal::Early { wait_ms })
        } else {
            None
        })
    }

    fn may_lead(&self, node: NodeId, anyway: bool) -> rusqlite::Result<bool> {
        self.cached("select 1 from hive_node where hive = ?1 and id = ?2 and expires_ms > ?3 and (eligible or ?4)")?
            .exists(params![self.hive, node.to_string(), self.now(), anyway])
    }

    pub fn take(&self, node: NodeId, claims: &[Claim], cause: &str, mint: &Mint) -> Answer<Reply> {
        if let Some(refusal) = self.refusal(mint)? {
            return Ok(Reply::Refused(refusal));
        }
        if !self.may_lead(node, false)? {
            return Ok(Reply::Refused(Refusal::Unfit));
        }
        self.mint(TAKE, EventKind::Taken, node, claims, cause, None)
    }

    pub fn hand_over(&self, node: NodeId, heir: NodeId, claims: &[Claim], cause: &str, mint: &Mint) -> Answer<Reply> {
        if let Some(refusal) = self.refusal(mint)? {
            return Ok(Reply::Refused(refusal));
        }
        if !self.may_lead(heir, heir == node)? {
            return Ok(Reply::Refused(Refusal::Unfit));
        }
        self.mint(HAND_OVER, EventKind::HandedOver, heir, claims, cause, Some(node))
    }

    /// Gives each claimed lease to `holder` under a new epoch. An epoch beyond the maximum fails the whole transaction.
    fn mint(
        &self,
        text: &str,
        kind: EventKind,
        holder: NodeId,
        claims: &[Claim],
        cause: &str,
        from: Option<NodeId>,
    ) -> Answer<Reply> {
        let (id, from, now) = (holder.to_string(), from.map(|node| node.to_string()), self.now());
        let mut minted = Vec::new();
        for Claim { lease, epoch, floor } in claims {
            let (seen, floor) = (signed(epoch.0), signed(floor.0));
            let mut parameters: Vec<&dyn ToSql> = vec![&self.hive, lease, &id, &seen, &now, &floor, &cause];
            parameters.extend(from.as_ref().map(|from| from as &dyn ToSql));
            let won: Option<Epoch> = self.cached(text)?.query_row(&*parameters, |row| row::epoch(row, 0)).optional()?;
            let Some(epoch) = won else { continue };
            if epoch > Epoch::MAX {
                let said = format!("lease {lease}: epoch {} is beyond 2^40", epoch.0);
                return Err(Failure::fatal(codes::EPOCH_TOO_LARGE, said).into());
            }
            self.event(kind, Some(holder), Some((lease, epoch)), cause)?;
            minted.push(HeldLease { lease: lease.clone(), epoch });
        }
        Ok(if minted.is_empty() { Reply::Refused(Refusal::Raced) } else { Reply::Taken(minted) })
    }

    pub fn release(&self, node: NodeId, held: &[HeldLease], cause: &str) -> Answer<Reply> {
        let mut released = Vec::new();
        for HeldLease { lease, epoch } in held {
            let changed = self
                .cached(
                    "update hive_lease set holder = null, heir = null, since_ms = ?5, cause = ?6
                     where hive = ?1 and name = ?2 and holder = ?3 and epoch = ?4",
                )?
                .execute(params![self.hive, lease, node.to_string(), signed(epoch.0), self.now(), cause])?;
            if changed == 1 {
                self.event(EventKind::Released, Some(node), Some((lease, *epoch)), cause)?;
                released.push(lease.clone());
            }
        }
        Ok(Reply::Released(released))
    }

    pub fn set_successor(&self, fence: &Fence, heir: Option<NodeId>) -> Answer<Reply> {
        if !self.holds(fence)? {
            return Ok(stale(fence));
        }
        if let Some(heir) = heir
            && !self.may_lead(heir, false)?
        {
            return Ok(Reply::Refused(Refusal::Unfit));
        }
        let heir = heir.map(|heir| heir.to_string());
        self.cached("update hive_lease set heir = ?3 where hive = ?1 and name = ?2")?.execute(params![
            self.hive,
            fence.lease(),
            heir
        ])?;
        Ok(Reply::Done)
    }
}

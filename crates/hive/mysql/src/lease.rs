//! Reads leases and changes their holder or successor. Each change is one compare-and-set under the locks of the rows.

use std::collections::{BTreeMap, BTreeSet};

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Fence, NodeId, Reply,
    contract::{Claim, EventKind, HeldLease, LeaseRow, Mint, Refusal},
};
use honeyflow_runtime::Failure;

use crate::{
    codes,
    literal::{self, signed},
    message::{Message, StatementIndex},
    outcome::Answer,
    row,
    schema::HIVE_MS,
    session::{LEASE_LOCK_SECONDS, Response, Session, cut_to_column, stale},
};

/// A lease whose row is locked.
struct LockedLease {
    epoch: Epoch,
    holder: Option<NodeId>,
}

/// A transfer of leases: from which node to which, and why.
struct Transfer<'a> {
    kind: EventKind,
    /// The node that must hold the leases. With `None` they must be free: without a holder, or with one that is no member.
    from: Option<NodeId>,
    to: NodeId,
    claims: &'a [Claim],
    cause: &'a str,
    mint: &'a Mint,
}

impl Session {
    pub async fn read_leases(&mut self, names: &[Name]) -> Answer<Reply> {
        if names.is_empty() {
            let hive_ms = self.read_time_and_server().await?.now_ms;
            return Ok(Reply::Leases { hive_ms, leases: Vec::new() });
        }
        loop {
            let (hive_ms, found) = self.existing_leases(names).await?;
            let missing: BTreeSet<&str> =
                names.iter().filter(|name| !found.contains_key(*name)).map(|name| &**name).collect();
            if missing.is_empty() {
                let leases = names.iter().filter_map(|name| found.get(name).cloned()).collect();
                return Ok(Reply::Leases { hive_ms, leases });
            }
            let hive = &self.hive;
            let rows = missing.into_iter().map(|name| format!("({hive}, {}, 0, {HIVE_MS}, '')", literal::text(name)));
            let rows = rows.collect::<Vec<_>>().join(", ");
            let mut message = self.begin(LEASE_LOCK_SECONDS);
            message.add(format!("insert ignore into hive_lease(hive, name, epoch, since_ms, cause) values {rows}"));
            self.commit(message).await?;
        }
    }

    async fn existing_leases(&mut self, names: &[Name]) -> Answer<(u64, BTreeMap<Name, LeaseRow>)> {
        let names = literal::texts(names.iter().map(|name| &**name));
        let mut message = self.snapshot();
        let leases = message.add(row::leases(&self.hive, &format!(" and l.name in ({names})")));
        let heard = self.read(message).await?;
        let mut found = BTreeMap::new();
        for row in heard.rows(leases) {
            let lease = row::lease(row)?;
            found.insert(lease.name.clone(), lease);
        }
        Ok((heard.now_ms, found))
    }

    /// Locks the leases in the order of their names, like every transaction that locks several. It finds them by primary
    /// key only, so that no other row is locked.
    fn lock_leases<'n>(&self, message: &mut Message, names: impl IntoIterator<Item = &'n Name>) -> StatementIndex {
        let names: BTreeSet<&str> = names.into_iter().map(|name| &**name).collect();
        message.add(format!(
            "select name, epoch, holder from hive_lease force index (primary)
             where hive = {} and name in ({}) order by name for update",
            self.hive,
            literal::texts(names)
        ))
    }

    pub async fn take(&mut self, node: NodeId, claims: &[Claim], cause: &str, mint: &Mint) -> Answer<Reply> {
        self.transfer(Transfer { kind: EventKind::Taken, from: None, to: node, claims, cause, mint }).await
    }

    pub async fn hand_over(
        &mut self,
        (node, heir): (NodeId, NodeId),
        claims: &[Claim],
        cause: &str,
        mint: &Mint,
    ) -> Answer<Reply> {
        self.transfer(Transfer { kind: EventKind::HandedOver, from: Some(node), to: heir, claims, cause, mint }).await
    }

    /// Locks no row of `hive_node`, because a take may wait for transactions of the holder, and heartbeats must not wait
    /// for the take. That is safe: a node id without a row never gets one again, and if the new holder is removed right
    /// after this, its leases are free again. Claims that do not match are skipped.
    async fn transfer(&mut self, handing: Transfer<'_>) -> Answer<Reply> {
        let Transfer { kind, from, to, claims, cause, mint } = handing;
        if claims.is_empty() {
            return Ok(Reply::Refused(Refusal::Raced));
        }
        let hive = self.hive.clone();
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        let leases = self.lock_leases(&mut message, claims.iter().map(|claim| &claim.lease));
        let view = self.lock_view(&mut message);
        let names = literal::texts(claims.iter().map(|claim| &*claim.lease));
        // A separate statement after the locks: its snapshot contains what earlier holders of the locks committed.
        let living = message.add(format!(
            "select n.id from hive_lease l join hive_node n on n.hive = l.hive and n.id = l.holder
             where l.hive = {hive} and l.name in ({names})"
        ));
        let leader = self.add_leader(&mut message, to);
        let heard = self.ask(message).await?;
        if let Some(refusal) = refusal(&heard, view, mint)? {
            return Ok(Reply::Refused(refusal));
        }
        if !may_lead(&heard, leader, from == Some(to))? {
            return Ok(Reply::Refused(Refusal::Unfit));
        }
        let mut locked = locked(&heard, leases)?;
        let living: BTreeSet<NodeId> =
            heard.rows(living).iter().map(|row| row::node_id(row, 0)).collect::<Result<_, _>>()?;
        let (mut log, mut message, mut minted) = (self.log(&heard, view)?, Message::default(), Vec::new());
        for Claim { lease, epoch: seen, floor } in claims {
            let Some(LockedLease { epoch, holder }) = locked.remove(lease) else { continue };
            let may = match from {
                Some(from) => holder == Some(from),
                None => holder.is_none_or(|holder| !living.contains(&holder)),
            };
            if epoch != *seen || !may {
                continue;
            }
            // Above the last epoch, above what the caller has seen elsewhere (its floor), and never behind hive time, so
            // that it also grows after a restore.
            let epoch = Epoch((epoch.0 + 1).max(heard.now_ms).max(floor.0.saturating_add(1)));
            if epoch > Epoch::MAX {
                let said = format!("lease {lease}: epoch {} is beyond 2^40", epoch.0);
                return Err(Failure::fatal(codes::EPOCH_TOO_LARGE, said).into());
            }
            message.add(format!(
                "update hive_lease set holder = {}, epoch = {}, heir = null, since_ms = {}, cause = {}
                 where hive = {hive} and name = {} and epoch = {}",
                literal::id(to),
                epoch.0,
                heard.now_ms,
                literal::text(cut_to_column(cause)),
                literal::text(lease),
                signed(seen.0)
            ));
            log.event(kind, Some(to), Some((lease, epoch)), cause);
            minted.push(HeldLease { lease: lease.clone(), epoch });
        }
        if minted.is_empty() {
            return Ok(Reply::Refused(Refusal::Raced));
        }
        log.write(&mut message, "");
        self.commit(message).await?;
        Ok(Reply::Taken(minted))
    }

    fn add_leader(&self, message: &mut Message, node: NodeId) -> StatementIndex {
        let (hive, id) = (&self.hive, literal::id(node));
        message.add(format!("select eligible, expires_ms from hive_node where hive = {hive} and id = {id}"))
    }

    pub async fn release(&mut self, node: NodeId, held: &[HeldLease], cause: &str) -> Answer<Reply> {
        if held.is_empty() {
            return Ok(Reply::Released(Vec::new()));
        }
        let hive = self.hive.clone();
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        let leases = self.lock_leases(&mut message, held.iter().map(|held| &held.lease));
        let view = self.lock_view(&mut message);
        let heard = self.ask(message).await?;
        let mut locked = locked(&heard, leases)?;
        let own = |held: &&HeldLease| {
            locked.remove(&held.lease).is_some_and(|row| row.epoch == held.epoch && row.holder == Some(node))
        };
        let own: Vec<&HeldLease> = held.iter().filter(own).collect();
        if own.is_empty() {
            return Ok(Reply::Released(Vec::new()));
        }
        let (mut log, mut message) = (self.log(&heard, view)?, Message::default());
        for HeldLease { lease, epoch } in &own {
            message.add(format!(
                "update hive_lease set holder = null, heir = null, since_ms = {}, cause = {}
                 where hive = {hive} and name = {} and epoch = {}",
                heard.now_ms,
                literal::text(cut_to_column(cause)),
                literal::text(lease),
                signed(epoch.0)
            ));
            log.event(EventKind::Released, Some(node), Some((lease, *epoch)), cause);
        }
        log.write(&mut message, "");
        let released = own.iter().map(|held| held.lease.clone()).collect();
        self.commit(message).await?;
        Ok(Reply::Released(released))
    }

    pub async fn set_successor(&mut self, fence: &Fence, heir: Option<NodeId>) -> Answer<Reply> {
        let (hive, name) = (self.hive.clone(), literal::text(fence.lease()));
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        let lease = message
            .add(format!("select epoch, holder from hive_lease where hive = {hive} and name = {name} for update"));
        let leader = heir.map(|heir| self.add_leader(&mut message, heir));
        let heard = self.ask(message).await?;
        if !heard.holds(fence, lease)? {
            return Ok(stale(fence));
        }
        if let Some(leader) = leader
            && !may_lead(&heard, leader, false)?
        {
            return Ok(Reply::Refused(Refusal::Unfit));
        }
        let (mut message, heir) = (Message::default(), literal::id_or_null(heir));
        message.add(format!("update hive_lease set heir = {heir} where hive = {hive} and name = {name}"));
        self.commit(message).await?;
        Ok(Reply::Done)
    }
}

/// Why the node may not mint. The transaction that mints checks it, under the lock of the view, on the server that
/// executes it.
fn refusal(heard: &Response, view: StatementIndex, mint: &Mint) -> Answer<Option<Refusal>> {
    let head = heard.head(view)?;
    let wait_ms = head.wait_ms();
    Ok(if *mint.lineage != *heard.server || head.lineage.as_ref() != Some(&heard.server) {
        Some(Refusal::Lineage)
    } else if head.hold.is_some() {
        Some(Refusal::Hold)
    } else if wait_ms > 0 && !mint.watched {
        Some(Refusal::Early { wait_ms })
    } else {
        None
    })
}

fn may_lead(heard: &Response, at: StatementIndex, anyway: bool) -> Answer<bool> {
    let Some(row) = heard.first(at) else { return Ok(false) };
    Ok((row::flag(row, 0)? || anyway) && row::unsigned(row, 1)? > heard.now_ms)
}

fn locked(heard: &Response, at: StatementIndex) -> Answer<BTreeMap<Name, LockedLease>> {
    let mut locked = BTreeMap::new();
    for row in heard.rows(at) {
        let lease = LockedLease { epoch: row::epoch(row, 1)?, holder: row::node_id_or_null(row, 2)? };
        locked.insert(row::required(row, 0)?.into(), lease);
    }
    Ok(locked)
}

//! Membership: nodes join, renew their rows by heartbeats, leave and are removed. A kernel lock shows whether a node is
//! alive.

use std::time::Duration;

use honeyflow_event::Name;
use honeyflow_hive::{
    NodeId, Reply,
    contract::{
        Counts, ENGAGED_MS, EventKind, META_BYTES_MAX, NodeRow, QUEEN, Queen, Refusal, Removal, SOONEST_MAX, State,
        Status, WatchedNode,
    },
};
use honeyflow_runtime::Failure;
use rusqlite::{OptionalExtension, params};

use crate::{
    answer::Hive,
    codes,
    lock::{LockState, NodeLock},
    row::{self, NODE, WATCHED, signed},
    session::{Answer, Session},
};

impl Hive {
    /// Takes its own lock first and then tries the others' inside the transaction, so that of two nodes that join at
    /// once each sees whether the other is alive.
    pub fn join(&mut self, node: NodeId, name: &str, times: (u64, u64), meta: &str) -> Answer<Reply> {
        if meta.len() > META_BYTES_MAX {
            let said = format!("a node's meta data is {} bytes; {META_BYTES_MAX} are the limit", meta.len());
            return Err(Failure::reject(codes::META_TOO_LARGE, said).into());
        }
        let Some(lock) = self.locks.take(node)? else { return Ok(Reply::Refused(Refusal::Known)) };
        let alone = self.is_alone();
        self.patience.on_join(Duration::from_millis(times.1));
        self.release_silent(Duration::from_millis(times.1));
        let ours: Vec<NodeId> = self.held.keys().copied().collect();
        let joined = self.write(|s| s.insert(node, name, times, meta, alone.then_some(&*ours)));
        match joined {
            Ok(Some(status)) => {
                self.held.insert(node, lock);
                Ok(Reply::Joined(Box::new(status)))
            }
            Ok(None) => {
                lock.release();
                Ok(Reply::Refused(Refusal::Known))
            }
            Err(stop) => {
                lock.release();
                Err(stop)
            }
        }
    }

    /// An application may hold the write lock for longer than trust lasts. That must not end the terms of a node that
    /// no other node could have replaced: if the row cannot be written but exists, and the node holds its kernel lock,
    /// the heartbeat counts.
    pub fn beat(&mut self, node: NodeId, read_only: bool, state: &State) -> Answer<Reply> {
        if let Some(held) = self.held.get_mut(&node) {
            held.touch();
        }
        if !read_only {
            match self.write(|s| s.renew(node, state)) {
                Ok(status) => return Ok(Reply::Beat(Box::new(status))),
                Err(stop) if stop.is_busy() => {}
                Err(stop) => return Err(stop),
            }
        }
        let held = self.held.get(&node).is_some_and(NodeLock::is_in_place);
        let mut status = self.read(|s| s.status(node))?;
        status.member &= held;
        Ok(Reply::Beat(Box::new(status)))
    }

    pub fn leave(&mut self, node: NodeId) -> Answer<Reply> {
        let made = self.read(|s| s.has_tables());
        let removed =
            made.and_then(|made| if made { self.write(|s| s.remove(node, EventKind::Left, "")) } else { Ok(()) });
        // Release the lock only after the row: if the lock were free while the row exists, another node could remove us
        // before we have left. But release it also when the delete failed: the node sends no more heartbeats, and with
        // its lock free the next node that joins removes its row.
        if let Some(lock) = self.held.remove(&node) {
            lock.release();
        }
        removed.map(|()| Reply::Done)
    }

    /// Releases the locks of nodes of this process that have been silent for `time_to_live`: their join was answered
    /// too late, or their leave failed.
    fn release_silent(&mut self, time_to_live: Duration) {
        for (_, lock) in self.held.extract_if(.., |_, lock| lock.is_silent(time_to_live)) {
            lock.release();
        }
    }
}

impl Session<'_> {
    fn insert(
        &self,
        node: NodeId,
        name: &str,
        (heartbeat_ms, ttl_ms): (u64, u64),
        meta: &str,
        alone_but_for: Option<&[NodeId]>,
    ) -> Answer<Option<Status>> {
        for other in self.nodes()? {
            if other.id == node {
                return Ok(None);
            }
            match self.locks.try_lock(other.id)? {
                LockState::Free => {
                    tracing::info!(node = %other.id, name = other.name, "removed a dead node: its lock is free");
                    self.remove(other.id, EventKind::Buried, "its lock is free")?;
                }
                LockState::Held => match alone_but_for {
                    // It is an earlier node of this process, which is about to leave.
                    Some(ours) if ours.contains(&other.id) => return Err(not_left_yet(other.id).into()),
                    Some(_) => return Err(another_node(&other).into()),
                    None => {}
                },
            }
        }
        self.cached(
            "insert into hive_node(hive, id, name, beat, beat_ms, ttl_ms, expires_ms, ready, eligible, meta)
             values (?1, ?2, ?3, 0, ?4, ?5, ?6, 0, 0, ?7)",
        )?
        .execute(params![
            self.hive,
            node.to_string(),
            name,
            signed(heartbeat_ms),
            signed(ttl_ms),
            signed(self.now_ms.saturating_add(ttl_ms)),
            meta
        ])?;
        self.make_view()?;
        self.cached("update hive_view set max_ttl_ms = max(max_ttl_ms, ?2) where hive = ?1")?
            .execute(params![self.hive, signed(ttl_ms)])?;
        self.event(EventKind::Joined, Some(node), None, name)?;
        Ok(Some(Status { renewed: true, ..self.status(node)? }))
    }

    fn renew(&self, node: NodeId, state: &State) -> Answer<Status> {
        let id = node.to_string();
        let was: Option<(bool, bool)> = self
            .cached("select ready, eligible from hive_node where hive = ?1 and id = ?2")?
            .query_row(params![self.hive, id], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        if let Some(was) = was {
            let engaged_ms = state.engaged_age_ms.map_or(0, |age| (self.now_ms + ENGAGED_MS).saturating_sub(age));
            let warm: Vec<&str> = state.warm.iter().map(|lease| &**lease).collect();
            let warm = serde_json::to_string(&warm).unwrap_or_default();
            self.cached(
                "update hive_node set beat = beat + 1, expires_ms = ?3 + ttl_ms, engaged_ms = ?4, ready = ?5,
                   eligible = ?6, warm = ?7 where hive = ?1 and id = ?2",
            )?
            .execute(params![
                self.hive,
                id,
                self.now(),
                signed(engaged_ms),
                state.ready,
                state.eligible,
                warm
            ])?;
            for kind in EventKind::of_beat(was, (state.ready, state.eligible)) {
                self.event(kind, Some(node), None, "")?;
            }
        }
        let mut status = self.status(node)?;
        status.renewed = status.member;
        // The locks are tried only here, in a write transaction, so that no other process tries at the same time.
        for watched in &mut status.soonest {
            watched.dead = self.locks.is_free(watched.id);
        }
        Ok(status)
    }

    fn status(&self, node: NodeId) -> Answer<Status> {
        if !self.has_tables()? {
            return Ok(Status { head: self.no_head(), ..Status::default() });
        }
        let (id, head) = (node.to_string(), self.head()?);
        let member =
            self.cached("select 1 from hive_node where hive = ?1 and id = ?2")?.exists(params![self.hive, id])?;
        let soonest = self
            .cached(&format!(
                "select {WATCHED} from hive_node where hive = ?1 and id <> ?2 order by expires_ms, id limit {SOONEST_MAX}"
            ))?
            .query_map(params![self.hive, id], row::watched)?
            .collect::<Result<_, _>>()?;
        let heir_of = self
            .cached(&format!(
                "select name from hive_lease where hive = ?1 and heir = ?2 order by name limit {SOONEST_MAX}"
            ))?
            .query_map(params![self.hive, id], |row| row.get::<_, String>(0).map(Name::from))?
            .collect::<Result<_, _>>()?;
        let furthest_ms: Option<i64> = self
            .cached("select max(expires_ms) from hive_node where hive = ?1")?
            .query_row([self.hive], |row| row.get(0))?;
        let ahead = furthest_ms.is_some_and(|furthest| furthest > signed(self.now_ms + head.max_ttl_ms))
            || head.lineage_ms > self.now_ms
            || head.counts.counted_ms > self.now_ms;
        Ok(Status { head, member, renewed: false, queen: self.queen()?, successor_of: heir_of, soonest, ahead })
    }

    fn queen(&self) -> Answer<Option<Queen>> {
        let queen = self
            .cached("select epoch, holder, heir, since_ms from hive_lease where hive = ?1 and name = ?2")?
            .query_row([self.hive, QUEEN], |row| {
                Ok(Queen {
                    epoch: row::epoch(row, 0)?,
                    holder: row::node_id_or_null(row, 1)?,
                    successor: row::node_id_or_null(row, 2)?,
                    since_ms: row::unsigned(row, 3)?,
                    node: None,
                })
            })
            .optional()?;
        let Some(mut queen) = queen else { return Ok(None) };
        if let Some(holder) = queen.holder {
            queen.node = self.watched(holder)?;
        }
        Ok(Some(queen))
    }

    fn watched(&self, node: NodeId) -> Answer<Option<WatchedNode>> {
        let found = self
            .cached(&format!("select {WATCHED} from hive_node where hive = ?1 and id = ?2"))?
            .query_row(params![self.hive, node.to_string()], row::watched)
            .optional()?;
        Ok(found)
    }

    pub fn nodes(&self) -> Answer<Vec<NodeRow>> {
        let nodes = self
            .cached(&format!("select {NODE} from hive_node where hive = ?1 order by id"))?
            .query_map([self.hive], row::node)?
            .collect::<Result<_, _>>()?;
        Ok(nodes)
    }

    fn remove(&self, node: NodeId, kind: EventKind, cause: &str) -> Answer<()> {
        let removed = self
            .cached("delete from hive_node where hive = ?1 and id = ?2")?
            .execute(params![self.hive, node.to_string()])?;
        if removed > 0 {
            self.give_back(node)?;
            self.event(kind, Some(node), None, cause)?;
        }
        Ok(())
    }

    /// Removes the nodes whose lock is free, independent of the clock. A node that holds its lock is removed only after
    /// long silence.
    pub fn remove_expired(&self, burials: &[Removal]) -> Answer<Vec<NodeId>> {
        let mut buried = Vec::new();
        for Removal { node, beat, silent, cause } in burials {
            let Some(row) = self.watched(*node)? else { continue };
            let is_dead = match self.locks.try_lock(*node)? {
                LockState::Free => true,
                LockState::Held => *silent && row.beat == *beat,
            };
            if is_dead {
                self.remove(*node, EventKind::Buried, cause)?;
                buried.push(*node);
            }
        }
        Ok(buried)
    }

    pub fn mend(&self) -> Answer<u64> {
        let nodes = self
            .cached(
                "update hive_node set expires_ms = min(expires_ms, ?2 + ttl_ms), engaged_ms = min(engaged_ms, ?2 + ?3)
                 where hive = ?1 and (expires_ms > ?2 + ttl_ms or engaged_ms > ?2 + ?3)",
            )?
            .execute(params![self.hive, self.now(), signed(ENGAGED_MS)])?;
        let view = self
            .cached(
                "update hive_view set lineage_ms = min(lineage_ms, ?2), counted_ms = min(counted_ms, ?2)
                 where hive = ?1 and (lineage_ms > ?2 or counted_ms > ?2)",
            )?
            .execute(params![self.hive, self.now()])?;
        let buckets = self
            .cached("update hive_limit set pool_ms = ?2 where hive = ?1 and pool_ms > ?2")?
            .execute(params![self.hive, self.now()])?;
        Ok((nodes + view + buckets) as u64)
    }

    /// Counts the nodes. Epoch and time stay those of the published count.
    pub fn tally(&self) -> Answer<Counts> {
        let counts = self.head()?.counts;
        let counted = self
            .cached(
                "select count(*), coalesce(sum(ready), 0), coalesce(sum(ready and engaged_ms > ?2), 0)
                 from hive_node where hive = ?1 and expires_ms > ?2",
            )?
            .query_row(params![self.hive, self.now()], |row| {
                let (alive, ready, engaged) = (row::unsigned(row, 0)?, row::unsigned(row, 1)?, row::unsigned(row, 2)?);
                Ok(Counts { alive, ready, engaged, ..counts })
            })?;
        Ok(counted)
    }

    pub fn tally_reply(&self) -> Answer<Reply> {
        let counts = if self.has_tables()? { self.tally()? } else { Counts::default() };
        Ok(Reply::Counted { hive_ms: self.now_ms, counts, published: false, removed: Vec::new() })
    }
}

fn not_left_yet(before: NodeId) -> Failure {
    Failure::retry(codes::NOT_LEFT_YET, format!("node {before} of this process has not left the hive yet; try again"))
}

fn another_node(holder: &NodeRow) -> Failure {
    let meta: serde_json::Value = serde_json::from_str(&holder.meta).unwrap_or_default();
    let process = meta.get("pid").map_or_else(String::new, |pid| format!(", process {pid}"));
    let NodeRow { id, name, .. } = holder;
    Failure::fatal(
        codes::ANOTHER_NODE,
        format!("another node works on this database: {name} ({id}{process}); stop it first, or use another database"),
    )
}

//! Membership: join, beat, burial. A kernel lock says who is alive.

use std::time::Duration;

use honeyflow_event::Name;
use honeyflow_hive::{
    NodeId, Reply,
    contract::{
        Burial, Counts, ENGAGED_MS, EventKind, META_BYTES_MAX, NodeRow, QUEEN, Queen, Refusal, SOONEST_MAX, State,
        Status, Watched,
    },
};
use honeyflow_runtime::Failure;
use rusqlite::{OptionalExtension, params};

use crate::{
    answer::Hive,
    lock::{Held, Tried},
    row::{self, NODE, WATCHED, signed},
    session::{Answer, Session},
};

impl Hive {
    /// Our lock first, then the others': two that join at once judge one another inside their transactions.
    pub fn join(&mut self, node: NodeId, name: &str, times: (u64, u64), meta: &str) -> Answer<Reply> {
        if meta.len() > META_BYTES_MAX {
            let said = format!("a node's meta data is {} bytes; {META_BYTES_MAX} are the limit", meta.len());
            return Err(Failure::reject("meta-too-large", said).into());
        }
        let Some(lock) = self.locks.take(node)? else { return Ok(Reply::Refused(Refusal::Known)) };
        let alone = self.is_alone();
        self.patience.joined(Duration::from_millis(times.1));
        self.give_up_silent(Duration::from_millis(times.1));
        let ours: Vec<NodeId> = self.held.keys().copied().collect();
        let joined = self.write(|s| s.insert(node, name, times, meta, alone.then_some(&*ours)));
        match joined {
            Ok(Some(status)) => {
                self.held.insert(node, lock);
                Ok(Reply::Joined(Box::new(status)))
            }
            Ok(None) => {
                lock.give_up();
                Ok(Reply::Refused(Refusal::Known))
            }
            Err(stop) => {
                lock.give_up();
                Err(stop)
            }
        }
    }

    /// An application may hold the write lock for longer than trust lasts. That must not dethrone a node that nobody
    /// could have replaced: where the row cannot be written but stands, and the kernel lock is held, the beat is good.
    pub fn beat(&mut self, node: NodeId, read_only: bool, state: &State) -> Answer<Reply> {
        if let Some(held) = self.held.get_mut(&node) {
            held.heard();
        }
        if !read_only {
            match self.write(|s| s.renew(node, state)) {
                Ok(status) => return Ok(Reply::Beat(Box::new(status))),
                Err(stop) if stop.is_busy() => {}
                Err(stop) => return Err(stop),
            }
        }
        let held = self.held.get(&node).is_some_and(Held::stands);
        let mut status = self.read(|s| s.status(node))?;
        status.member &= held;
        Ok(Reply::Beat(Box::new(status)))
    }

    pub fn leave(&mut self, node: NodeId) -> Answer<Reply> {
        let made = self.read(|s| s.is_made());
        let removed =
            made.and_then(|made| if made { self.write(|s| s.remove(node, EventKind::Left, "")) } else { Ok(()) });
        // Only now: a lock that is free while its row stands would let another bury us in the middle. But then always:
        // nobody beats for it any more, and with its lock free the next to come buries it.
        if let Some(lock) = self.held.remove(&node) {
            lock.give_up();
        }
        removed.map(|()| Reply::Done)
    }

    /// Nodes of this process that have gone without a word: their join was answered too late, or they could not leave.
    fn give_up_silent(&mut self, time_to_live: Duration) {
        for (_, lock) in self.held.extract_if(.., |_, lock| lock.is_silent(time_to_live)) {
            lock.give_up();
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
            match self.locks.attempt(other.id)? {
                Tried::Free => {
                    tracing::info!(node = %other.id, name = other.name, "a dead node is buried");
                    self.remove(other.id, EventKind::Buried, "its lock is free")?;
                }
                Tried::Held => match alone_but_for {
                    // One of this process, which is about to leave.
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
        // Only here, where nobody else can try at the same time.
        for watched in &mut status.soonest {
            watched.dead = self.locks.is_free(watched.id);
        }
        Ok(status)
    }

    fn status(&self, node: NodeId) -> Answer<Status> {
        if !self.is_made()? {
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
        Ok(Status { head, member, renewed: false, queen: self.queen()?, heir_of, soonest, ahead })
    }

    fn queen(&self) -> Answer<Option<Queen>> {
        let queen = self
            .cached("select epoch, holder, heir, since_ms from hive_lease where hive = ?1 and name = ?2")?
            .query_row([self.hive, QUEEN], |row| {
                Ok(Queen {
                    epoch: row::epoch(row, 0)?,
                    holder: row::node_id_or_null(row, 1)?,
                    heir: row::node_id_or_null(row, 2)?,
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

    fn watched(&self, node: NodeId) -> Answer<Option<Watched>> {
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

    /// A free lock says more than any clock; while it is held, only long silence counts.
    pub fn bury(&self, burials: &[Burial]) -> Answer<Vec<NodeId>> {
        let mut buried = Vec::new();
        for Burial { node, beat, silent, cause } in burials {
            let Some(row) = self.watched(*node)? else { continue };
            let is_dead = match self.locks.attempt(*node)? {
                Tried::Free => true,
                Tried::Held => *silent && row.beat == *beat,
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

    /// Under epoch and time of what is published.
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

    pub fn tallied(&self) -> Answer<Reply> {
        let counts = if self.is_made()? { self.tally()? } else { Counts::default() };
        Ok(Reply::Counted { hive_ms: self.now_ms, counts, published: false, buried: Vec::new() })
    }
}

fn not_left_yet(before: NodeId) -> Failure {
    Failure::retry("not-left-yet", format!("node {before} of this process has not left the hive yet; try again"))
}

fn another_node(holder: &NodeRow) -> Failure {
    let meta: serde_json::Value = serde_json::from_str(&holder.meta).unwrap_or_default();
    let process = meta.get("pid").map_or_else(String::new, |pid| format!(", process {pid}"));
    let NodeRow { id, name, .. } = holder;
    Failure::fatal(
        "another-node",
        format!("another node works on this database: {name} ({id}{process}); stop it first, or use another database"),
    )
}

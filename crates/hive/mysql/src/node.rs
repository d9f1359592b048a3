//! Membership: nodes join, renew their rows by heartbeats, leave, and are removed when they have expired.

use honeyflow_event::Name;
use honeyflow_hive::{
    NodeId, Reply,
    contract::{ENGAGED_MS, EventKind, META_BYTES_MAX, QUEEN, Queen, Refusal, Removal, SOONEST_MAX, State, Status},
};
use honeyflow_runtime::Failure;

use crate::{
    codes,
    literal::{self, signed},
    message::{Message, StatementIndex},
    outcome::{self, Answer, Stop},
    row::{self, WATCHED},
    schema::HIVE_MS,
    session::{LEASE_LOCK_SECONDS, Log, Response, Session},
};

/// The statements that read a heartbeat's status.
struct StatusAt {
    view: StatementIndex,
    member: StatementIndex,
    soonest: StatementIndex,
    furthest: StatementIndex,
    heir_of: StatementIndex,
    queen: StatementIndex,
}

impl Session {
    pub async fn join(&mut self, node: NodeId, name: &str, times: (u64, u64), meta: &str) -> Answer<Reply> {
        if meta.len() > META_BYTES_MAX {
            let said = format!("a node's meta data is {} bytes; {META_BYTES_MAX} are the limit", meta.len());
            return Err(Failure::reject(codes::META_TOO_LARGE, said).into());
        }
        let (hive, id) = (&self.hive, literal::id(node));
        let (beat_ms, ttl_ms) = (signed(times.0), signed(times.1));
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        message.add(format!(
            "insert into hive_node(hive, id, name, beat, beat_ms, ttl_ms, expires_ms, warm, meta)
             values ({hive}, {id}, {}, 0, {beat_ms}, {ttl_ms}, {HIVE_MS} + {ttl_ms}, '[]', {})",
            literal::text(name),
            literal::text(meta)
        ));
        let view = self.lock_view(&mut message);
        let heard = match self.ask(message).await {
            Err(Stop::Sql(error)) if outcome::is_duplicate(&error) => return Ok(Reply::Refused(Refusal::Known)),
            heard => heard?,
        };
        let mut log = self.log(&heard, view)?;
        log.event(EventKind::Joined, Some(node), None, name);
        let mut message = Message::default();
        log.write(&mut message, &format!(", max_ttl_ms = greatest(max_ttl_ms, {ttl_ms})"));
        self.add_commit(&mut message);
        let at = self.add_status(&mut message, node, 0);
        let heard = self.finish(message).await?;
        Ok(Reply::Joined(Box::new(Status { renewed: true, ..status(&heard, &at)? })))
    }

    /// Sends one message if the node's state has not changed since its row was written. A change needs an event and a
    /// second message, but is rare. Other nodes are searched from expiry time `others_ms` on.
    pub async fn beat(&mut self, node: NodeId, read_only: bool, state: &State, others_ms: u64) -> Answer<Reply> {
        if read_only {
            let mut message = self.snapshot();
            let at = self.add_status(&mut message, node, others_ms);
            let heard = self.read(message).await?;
            return Ok(Reply::Beat(Box::new(status(&heard, &at)?)));
        }
        let (hive, id) = (&self.hive, literal::id(node));
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        let same = format!("ready = {} and eligible = {}", u8::from(state.ready), u8::from(state.eligible));
        let renewed = message
            .add(format!("update hive_node set {} where hive = {hive} and id = {id} and {same}", renewal(state)));
        self.add_commit(&mut message);
        let at = self.add_status(&mut message, node, others_ms);
        let heard = self.finish(message).await?;
        let status = Status { renewed: heard.changed(renewed) > 0, ..status(&heard, &at)? };
        if status.renewed || !status.member {
            return Ok(Reply::Beat(Box::new(status)));
        }
        self.beat_with_events(node, state, others_ms).await
    }

    async fn beat_with_events(&mut self, node: NodeId, state: &State, others_ms: u64) -> Answer<Reply> {
        let (hive, id) = (self.hive.clone(), literal::id(node));
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        let row =
            message.add(format!("select ready, eligible from hive_node where hive = {hive} and id = {id} for update"));
        let view = self.lock_view(&mut message);
        let heard = self.ask(message).await?;
        let was = heard.first(row).map(|row| Ok::<_, Stop>((row::flag(row, 0)?, row::flag(row, 1)?))).transpose()?;
        let mut message = Message::default();
        if let Some(was) = was {
            let mut log = self.log(&heard, view)?;
            for kind in EventKind::of_beat(was, (state.ready, state.eligible)) {
                log.event(kind, Some(node), None, "");
            }
            message.add(format!(
                "update hive_node set {}, ready = {}, eligible = {} where hive = {hive} and id = {id}",
                renewal(state),
                u8::from(state.ready),
                u8::from(state.eligible)
            ));
            log.write(&mut message, "");
        }
        self.add_commit(&mut message);
        let at = self.add_status(&mut message, node, others_ms);
        let heard = self.finish(message).await?;
        Ok(Reply::Beat(Box::new(Status { renewed: was.is_some(), ..status(&heard, &at)? })))
    }

    /// Each statement uses an index and reads only a few rows, so the cost does not depend on the number of nodes.
    fn add_status(&self, message: &mut Message, node: NodeId, others_ms: u64) -> StatusAt {
        let (hive, id, queen) = (&self.hive, literal::id(node), literal::text(QUEEN));
        StatusAt {
            view: self.add_view(message),
            member: message.add(format!("select 1 from hive_node where hive = {hive} and id = {id}")),
            soonest: message.add(format!(
                "select {WATCHED} from hive_node force index (hive_node_expires)
                 where hive = {hive} and expires_ms >= {others_ms} and id <> {id} order by expires_ms, id limit {SOONEST_MAX}"
            )),
            furthest: message.add(format!("select max(expires_ms) from hive_node where hive = {hive}")),
            heir_of: message.add(format!(
                "select name from hive_lease where hive = {hive} and heir = {id} order by name limit {SOONEST_MAX}"
            )),
            queen: message.add(format!(
                "select l.epoch, l.holder, l.heir, l.since_ms, n.id, n.beat, n.beat_ms, n.ttl_ms, n.expires_ms
                 from hive_lease l left join hive_node n on n.hive = l.hive and n.id = l.holder
                 where l.hive = {hive} and l.name = {queen}"
            )),
        }
    }

    pub async fn leave(&mut self, node: NodeId) -> Answer<Reply> {
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        let nodes = self.lock_nodes(&mut message, &[node]);
        let view = self.lock_view(&mut message);
        let shares = self.add_shares(&mut message, &[node]);
        let heard = self.ask(message).await?;
        if heard.first(nodes).is_some() {
            let mut log = self.log(&heard, view)?;
            let mut message = Message::default();
            log.event(EventKind::Left, Some(node), None, "");
            self.remove(&mut message, &heard, shares, &[node])?;
            log.write(&mut message, "");
            self.commit(message).await?;
        }
        Ok(Reply::Done)
    }

    pub async fn remove_expired(&mut self, burials: &[Removal]) -> Answer<Reply> {
        let ids: Vec<NodeId> = burials.iter().map(|burial| burial.node).collect();
        if ids.is_empty() {
            return Ok(Reply::Removed(Vec::new()));
        }
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        let nodes = self.lock_nodes(&mut message, &ids);
        let view = self.lock_view(&mut message);
        let shares = self.add_shares(&mut message, &ids);
        let heard = self.ask(message).await?;
        let dead = dead_nodes(&heard, nodes, burials)?;
        if !dead.is_empty() {
            let mut log = self.log(&heard, view)?;
            let mut message = Message::default();
            self.add_removals(&mut message, &mut log, &heard, shares, &dead)?;
            log.write(&mut message, "");
            self.commit(message).await?;
        }
        Ok(Reply::Removed(dead.iter().map(|dead| dead.burial.node).collect()))
    }

    pub fn add_removals(
        &self,
        message: &mut Message,
        log: &mut Log,
        heard: &Response,
        shares: StatementIndex,
        dead: &[DeadNode<'_>],
    ) -> Answer<()> {
        for DeadNode { burial, .. } in dead {
            log.event(EventKind::Buried, Some(burial.node), None, &burial.cause);
        }
        let ids: Vec<NodeId> = dead.iter().map(|dead| dead.burial.node).collect();
        if ids.is_empty() { Ok(()) } else { self.remove(message, heard, shares, &ids) }
    }

    /// Locks the nodes in the order of their ids, as every transaction does that locks several.
    pub fn lock_nodes(&self, message: &mut Message, nodes: &[NodeId]) -> StatementIndex {
        message.add(format!(
            "select id, beat, expires_ms, engaged_ms, ready from hive_node force index (primary)
             where hive = {} and id in ({}) order by id for update",
            self.hive,
            literal::ids(nodes.iter().copied())
        ))
    }

    /// Reads the slots of the nodes. The rows of the nodes are locked, so no other transaction changes their slots.
    pub fn add_shares(&self, message: &mut Message, nodes: &[NodeId]) -> StatementIndex {
        message.add(format!(
            "select node, name, limit_key, has_u from hive_share where hive = {} and node in ({})
             order by name, limit_key, node",
            self.hive,
            literal::ids(nodes.iter().copied())
        ))
    }

    /// Deletes the rows of the nodes and gives back their slots.
    fn remove(&self, message: &mut Message, heard: &Response, shares: StatementIndex, nodes: &[NodeId]) -> Answer<()> {
        let (hive, ids) = (&self.hive, literal::ids(nodes.iter().copied()));
        message.add(format!("delete from hive_node where hive = {hive} and id in ({ids})"));
        let mut has_any = false;
        for row in heard.rows(shares) {
            if !nodes.contains(&row::node_id(row, 0)?) {
                continue;
            }
            has_any = true;
            message.add(format!(
                "update hive_limit set issued_u = greatest(0, issued_u - {})
                 where hive = {hive} and name = {} and limit_key = {}",
                row::unsigned(row, 3)?,
                literal::text(row::required(row, 1)?),
                literal::text(row::required(row, 2)?)
            ));
        }
        if has_any {
            message.add(format!("delete from hive_share where hive = {hive} and node in ({ids})"));
        }
        Ok(())
    }

    /// Repairs stored times in one message: each statement compares the rows that it writes.
    pub async fn mend(&mut self) -> Answer<Reply> {
        let hive = &self.hive;
        let engaged = format!("{HIVE_MS} + {ENGAGED_MS}");
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        let mended = [
            message.add(format!(
                "update hive_node force index (primary)
                 set expires_ms = least(expires_ms, {HIVE_MS} + ttl_ms), engaged_ms = least(engaged_ms, {engaged})
                 where hive = {hive} and (expires_ms > {HIVE_MS} + ttl_ms or engaged_ms > {engaged})"
            )),
            message.add(format!(
                "update hive_view set lineage_ms = least(lineage_ms, {HIVE_MS}), counted_ms = least(counted_ms, {HIVE_MS})
                 where hive = {hive} and (lineage_ms > {HIVE_MS} or counted_ms > {HIVE_MS})"
            )),
            message.add(format!(
                "update hive_limit force index (primary) set pool_ms = {HIVE_MS}
                 where hive = {hive} and pool_ms > {HIVE_MS}"
            )),
        ];
        let answers = self.commit(message).await?;
        Ok(Reply::Mended(mended.iter().map(|at| answers.changed(*at)).sum()))
    }
}

fn renewal(state: &State) -> String {
    let engaged = match state.engaged_age_ms {
        Some(age_ms) => format!("greatest(0, {HIVE_MS} + {ENGAGED_MS} - {})", signed(age_ms)),
        None => "0".to_owned(),
    };
    let warm: Vec<&str> = state.warm.iter().map(|lease| &**lease).collect();
    let warm = literal::text(&serde_json::to_string(&warm).unwrap_or_else(|_| "[]".to_owned()));
    format!("beat = beat + 1, expires_ms = {HIVE_MS} + ttl_ms, engaged_ms = {engaged}, warm = {warm}")
}

fn status(heard: &Response, at: &StatusAt) -> Answer<Status> {
    let (head, now_ms) = (heard.head(at.view)?, heard.now_ms);
    let furthest_ms = match heard.first(at.furthest) {
        Some(row) if row::text(row, 0)?.is_some() => row::unsigned(row, 0)?,
        _ => 0,
    };
    let ahead = furthest_ms > now_ms + head.max_ttl_ms || head.lineage_ms > now_ms || head.counts.counted_ms > now_ms;
    let queen = heard.first(at.queen).map(|row| {
        let has_row = row::text(row, 4)?.is_some();
        Ok::<_, Stop>(Queen {
            epoch: row::epoch(row, 0)?,
            holder: row::node_id_or_null(row, 1)?,
            successor: row::node_id_or_null(row, 2)?,
            since_ms: row::unsigned(row, 3)?,
            node: if has_row { Some(row::watched(row, 4)?) } else { None },
        })
    });
    let heirs = heard.rows(at.heir_of).iter().map(|row| Ok::<_, Stop>(Name::from(row::required(row, 0)?)));
    let soonest = heard.rows(at.soonest).iter().map(|row| Ok::<_, Stop>(row::watched(row, 0)?));
    Ok(Status {
        member: heard.first(at.member).is_some(),
        renewed: false,
        queen: queen.transpose()?,
        successor_of: heirs.collect::<Result<_, _>>()?,
        soonest: soonest.collect::<Result<_, _>>()?,
        ahead,
        head,
    })
}

/// A removal whose conditions hold, and how its node would be counted.
pub(crate) struct DeadNode<'a> {
    pub burial: &'a Removal,
    pub expires_ms: u64,
    pub engaged_ms: u64,
    pub ready: bool,
}

/// Returns the nodes to remove: their row shows the watched beat, and has expired or was silent for long.
pub(crate) fn dead_nodes<'a>(
    heard: &Response,
    nodes: StatementIndex,
    burials: &'a [Removal],
) -> Answer<Vec<DeadNode<'a>>> {
    let mut dead: Vec<DeadNode<'a>> = Vec::new();
    for row in heard.rows(nodes) {
        let (id, beat, expires_ms) = (row::node_id(row, 0)?, row::unsigned(row, 1)?, row::unsigned(row, 2)?);
        let is_dead = |burial: &&Removal| {
            burial.node == id && burial.beat == beat && (burial.silent || expires_ms <= heard.now_ms)
        };
        if let Some(burial) = burials.iter().find(is_dead) {
            dead.push(DeadNode { burial, expires_ms, engaged_ms: row::unsigned(row, 3)?, ready: row::flag(row, 4)? });
        }
    }
    Ok(dead)
}

//! The requests as statements. Every change is one compare-and-set under `BEGIN IMMEDIATE`.

use std::{collections::BTreeMap, path::Path};

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    NodeId, Reply, Request,
    contract::{LeaseRow, NodeRow},
};
use honeyflow_runtime::Failure;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params, types::Type};

use crate::{
    lock::{Held, Locks, Tried},
    outcome,
    schema::{self, HIVE_MS},
};

/// Several hives could share a database; ours has this name.
const HIVE: &str = "honeyflow";

pub(crate) struct Hive {
    connection: Connection,
    locks: Locks,
    /// Nodes of this process that have joined.
    held: BTreeMap<NodeId, Held>,
    texts: Texts,
}

/// Statements that compute hive time, in full.
struct Texts {
    now: String,
    join: String,
    beat: String,
    look: String,
    take: String,
    hand_over: String,
    release: String,
    leave: String,
}

impl Hive {
    pub fn new(connection: Connection, database: &Path) -> Result<Hive, Failure> {
        // One file may be reached by several paths; its lock folder must be the same for all of them.
        let database = database
            .canonicalize()
            .map_err(|error| Failure::retry("cannot-open", format!("open {}: {error}", database.display())))?;
        let minted = format!("max(epoch + 1, {HIVE_MS}, ?6 + 1)");
        let texts = Texts {
            now: format!("select {HIVE_MS}"),
            join: format!(
                "insert into hive_node(hive, id, name, beat, beat_ms, ttl_ms, expires_ms, ready, eligible, meta)
                 values (?1, ?2, ?3, 0, ?4 / 3, ?4, {HIVE_MS} + ?4, 1, 1, ?5)"
            ),
            beat: format!(
                "update hive_node set beat = beat + 1, expires_ms = {HIVE_MS} + ttl_ms where hive = ?1 and id = ?2"
            ),
            look: format!(
                "insert into hive_lease(hive, name, epoch, since_ms, cause) values (?1, ?2, 0, {HIVE_MS}, '')
                 on conflict(hive, name) do nothing"
            ),
            take: format!(
                "update hive_lease set holder = ?3, epoch = {minted}, heir = null, since_ms = {HIVE_MS}, cause = ?5
                 where hive = ?1 and name = ?2 and epoch = ?4
                   and (holder is null or holder not in (select id from hive_node where hive = ?1))
                   and exists (select 1 from hive_node where hive = ?1 and id = ?3)
                 returning epoch"
            ),
            hand_over: format!(
                "update hive_lease set holder = ?7, epoch = {minted}, heir = null, since_ms = {HIVE_MS}, cause = ?5
                 where hive = ?1 and name = ?2 and holder = ?3 and epoch = ?4
                   and exists (select 1 from hive_node where hive = ?1 and id = ?7)
                 returning epoch"
            ),
            release: format!(
                "update hive_lease set holder = null, since_ms = {HIVE_MS}, cause = 'released'
                 where hive = ?1 and name = ?2 and holder = ?3 and epoch = ?4"
            ),
            leave: format!(
                "update hive_lease set holder = null, since_ms = {HIVE_MS}, cause = 'left' where hive = ?1 and holder = ?2"
            ),
        };
        Ok(Hive { connection, locks: Locks::beside(&database), held: BTreeMap::new(), texts })
    }

    pub fn answer(&mut self, request: Request) -> Result<Reply, Failure> {
        match request {
            Request::Join { node, name, ttl_ms, meta } => self.join(node, &name, ttl_ms, &meta),
            Request::Beat { node, read_only } => {
                self.beat(node, read_only).map_err(|error| outcome::failure(&error, "beat"))
            }
            Request::Look { lease } => self.look(&lease).map_err(|error| outcome::failure(&error, "look at a lease")),
            Request::Take { lease, node, seen, floor, cause } => {
                let node = node.to_string();
                let parameters = params![HIVE, lease, node, signed(seen), cause, signed(floor)];
                mint(&mut self.connection, &self.texts.take, &lease, parameters)
            }
            Request::HandOver { lease, node, epoch, heir, floor, cause } => {
                let (node, heir) = (node.to_string(), heir.to_string());
                let parameters = params![HIVE, lease, node, signed(epoch), cause, signed(floor), heir];
                mint(&mut self.connection, &self.texts.hand_over, &lease, parameters)
            }
            Request::Release { lease, node, epoch } => {
                let released = self
                    .connection
                    .prepare_cached(&self.texts.release)
                    .and_then(|mut release| release.execute(params![HIVE, lease, node.to_string(), signed(epoch)]))
                    .map_err(|error| outcome::failure(&error, "release a lease"))?;
                Ok(if released == 1 { Reply::Done } else { Reply::Refused })
            }
            Request::Leave { node } => self.leave(node),
            Request::Nodes => self.nodes().map(Reply::Nodes).map_err(|error| outcome::failure(&error, "list nodes")),
            Request::Leases => {
                self.leases().map(Reply::Leases).map_err(|error| outcome::failure(&error, "list leases"))
            }
        }
    }

    /// Our lock first, then the others': two that join at once judge one another inside their transactions.
    fn join(&mut self, node: NodeId, name: &Name, ttl_ms: u64, meta: &str) -> Result<Reply, Failure> {
        if self.held.contains_key(&node) {
            return Ok(Reply::Joined);
        }
        let lock = self.locks.take(node)?;
        match self.insert(node, name, ttl_ms, meta) {
            Ok(()) => {
                self.held.insert(node, lock);
                Ok(Reply::Joined)
            }
            Err(failure) => {
                lock.give_up();
                Err(failure)
            }
        }
    }

    fn insert(&mut self, node: NodeId, name: &Name, ttl_ms: u64, meta: &str) -> Result<(), Failure> {
        let failed = |error: rusqlite::Error| outcome::failure(&error, "join the hive");
        let transaction = immediate(&mut self.connection).map_err(failed)?;
        schema::migrate(&transaction).map_err(failed)?;
        for other in list_nodes(&transaction, 0).map_err(failed)? {
            match self.locks.attempt(other.id)? {
                Tried::Free => {
                    tracing::info!(node = %other.id, name = other.name, "a dead node is buried");
                    transaction
                        .execute(
                            "delete from hive_node where hive = ?1 and id = ?2",
                            params![HIVE, other.id.to_string()],
                        )
                        .map_err(failed)?;
                }
                Tried::Held => return Err(another_node(&other)),
            }
        }
        transaction
            .execute(&self.texts.join, params![HIVE, node.to_string(), name, ttl_ms.cast_signed(), meta])
            .map_err(failed)?;
        transaction.commit().map_err(failed)
    }

    /// An application may hold the write lock for longer than trust lasts. That must not dethrone a node that nobody
    /// could have replaced: where the row cannot be written but stands, and the kernel lock is held, the beat is good.
    fn beat(&mut self, node: NodeId, read_only: bool) -> rusqlite::Result<Reply> {
        if !schema::exists(&self.connection)? {
            return self.beat_reply(false);
        }
        if !read_only {
            let renewed = self
                .connection
                .prepare_cached(&self.texts.beat)
                .and_then(|mut beat| beat.execute(params![HIVE, node.to_string()]));
            match renewed {
                Ok(rows) => return self.beat_reply(rows == 1),
                Err(error) if outcome::is_busy(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let there = self
            .connection
            .prepare_cached("select 1 from hive_node where hive = ?1 and id = ?2")?
            .exists(params![HIVE, node.to_string()])?;
        let held = self.held.get(&node).is_some_and(Held::stands);
        self.beat_reply(there && held)
    }

    fn beat_reply(&self, member: bool) -> rusqlite::Result<Reply> {
        let hive_ms: i64 = self.connection.prepare_cached(&self.texts.now)?.query_row([], |row| row.get(0))?;
        Ok(Reply::Beat { hive_ms: hive_ms.max(0).cast_unsigned(), member })
    }

    fn look(&mut self, lease: &str) -> rusqlite::Result<Reply> {
        if schema::exists(&self.connection)?
            && let Some(reply) = look_at(&self.connection, lease)?
        {
            return Ok(reply);
        }
        let transaction = immediate(&mut self.connection)?;
        schema::migrate(&transaction)?;
        transaction.execute(&self.texts.look, params![HIVE, lease])?;
        let reply = look_at(&transaction, lease)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        transaction.commit()?;
        Ok(reply)
    }

    fn leave(&mut self, node: NodeId) -> Result<Reply, Failure> {
        let failed = |error: rusqlite::Error| outcome::failure(&error, "leave the hive");
        if schema::exists(&self.connection).map_err(failed)? {
            let id = node.to_string();
            let transaction = immediate(&mut self.connection).map_err(failed)?;
            transaction.execute(&self.texts.leave, params![HIVE, id]).map_err(failed)?;
            transaction
                .execute("delete from hive_node where hive = ?1 and id = ?2", params![HIVE, id])
                .map_err(failed)?;
            transaction.commit().map_err(failed)?;
        }
        // Only now: a lock that is free while its row stands would let another bury us in the middle.
        if let Some(lock) = self.held.remove(&node) {
            lock.give_up();
        }
        Ok(Reply::Done)
    }

    fn nodes(&self) -> rusqlite::Result<Vec<NodeRow>> {
        if !schema::exists(&self.connection)? {
            return Ok(Vec::new());
        }
        let hive_ms = self.connection.prepare_cached(&self.texts.now)?.query_row([], |row| row.get(0))?;
        list_nodes(&self.connection, hive_ms)
    }

    fn leases(&self) -> rusqlite::Result<Vec<LeaseRow>> {
        if !schema::exists(&self.connection)? {
            return Ok(Vec::new());
        }
        self.connection
            .prepare_cached(
                "select name, epoch, holder, since_ms, cause from hive_lease where hive = ?1 order by name",
            )?
            .query_map([HIVE], |row| {
                Ok(LeaseRow {
                    name: row.get(0)?,
                    epoch: epoch(row, 1)?,
                    holder: holder(row, 2)?,
                    since_ms: row.get::<_, i64>(3)?.max(0).cast_unsigned(),
                    cause: row.get(4)?,
                })
            })?
            .collect()
    }
}

fn immediate(connection: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

/// One statement compares and sets; the epoch it gives is checked before it counts.
fn mint(
    connection: &mut Connection,
    text: &str,
    lease: &str,
    parameters: &[&dyn rusqlite::ToSql],
) -> Result<Reply, Failure> {
    let failed = |error: rusqlite::Error| outcome::failure(&error, format_args!("take lease {lease}"));
    if !schema::exists(connection).map_err(failed)? {
        return Ok(Reply::Refused);
    }
    let transaction = immediate(connection).map_err(failed)?;
    let minted: Option<Epoch> = transaction
        .prepare_cached(text)
        .and_then(|mut take| take.query_row(parameters, |row| epoch(row, 0)).optional())
        .map_err(failed)?;
    let Some(epoch) = minted else { return Ok(Reply::Refused) };
    if epoch > Epoch::MAX {
        return Err(Failure::fatal("epoch-too-large", format!("lease {lease}: epoch {} is beyond 2^40", epoch.0)));
    }
    transaction.commit().map_err(failed)?;
    Ok(Reply::Taken { epoch })
}

fn look_at(connection: &Connection, lease: &str) -> rusqlite::Result<Option<Reply>> {
    connection
        .prepare_cached(
            "select l.epoch, l.holder, l.holder is null or n.id is null from hive_lease l
             left join hive_node n on n.hive = l.hive and n.id = l.holder where l.hive = ?1 and l.name = ?2",
        )?
        .query_row(params![HIVE, lease], |row| {
            Ok(Reply::Lease { epoch: epoch(row, 0)?, holder: holder(row, 1)?, free: row.get(2)? })
        })
        .optional()
}

fn list_nodes(connection: &Connection, hive_ms: i64) -> rusqlite::Result<Vec<NodeRow>> {
    connection
        .prepare_cached("select id, name, beat, expires_ms, meta from hive_node where hive = ?1 order by name, id")?
        .query_map([HIVE], |row| {
            Ok(NodeRow {
                id: node_id(row, 0)?,
                name: row.get(1)?,
                beat: row.get::<_, i64>(2)?.max(0).cast_unsigned(),
                expires_in_ms: row.get::<_, i64>(3)? - hive_ms,
                meta: row.get(4)?,
            })
        })?
        .collect()
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

fn signed(epoch: Epoch) -> i64 {
    i64::try_from(epoch.0).unwrap_or(i64::MAX - 1)
}

fn epoch(row: &Row<'_>, column: usize) -> rusqlite::Result<Epoch> {
    Ok(Epoch(row.get::<_, i64>(column)?.max(0).cast_unsigned()))
}

fn node_id(row: &Row<'_>, column: usize) -> rusqlite::Result<NodeId> {
    let text: String = row.get(column)?;
    text.parse()
        .map(NodeId)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}

fn holder(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<NodeId>> {
    if row.get_ref(column)? == rusqlite::types::ValueRef::Null {
        return Ok(None);
    }
    node_id(row, column).map(Some)
}

//! One transaction: its connection, the hive it works on, and the time at which it began.

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Fence, NodeId, Reply,
    contract::{Counts, EventKind, Head},
};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use crate::{
    lock::Locks,
    outcome::Stop,
    row::{self, signed},
};

pub(crate) type Answer<T> = Result<T, Stop>;

pub(crate) struct Session<'a> {
    pub db: &'a Connection,
    pub hive: &'a str,
    /// The lineage: it identifies this start of the machine.
    pub server: &'a str,
    pub locks: &'a Locks,
    pub now_ms: u64,
}

impl Session<'_> {
    pub fn cached(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.db.prepare_cached(sql)
    }

    pub fn now(&self) -> i64 {
        signed(self.now_ms)
    }

    /// The head of a hive that has no view yet: only time and server are set.
    pub fn no_head(&self) -> Head {
        Head { hive_ms: self.now_ms, server: self.server.to_owned(), ..Head::default() }
    }

    pub fn head(&self) -> rusqlite::Result<Head> {
        let found = self
            .cached(
                "select origin, lineage, lineage_ms, max_ttl_ms, hold, version, limits,
                        alive, ready, engaged, epoch, counted_ms from hive_view where hive = ?1",
            )?
            .query_row([self.hive], |row| {
                Ok(Head {
                    origin: Some(row::node_id(row, 0)?.0),
                    lineage: row.get(1)?,
                    lineage_ms: row::unsigned(row, 2)?,
                    max_ttl_ms: row::unsigned(row, 3)?,
                    hold: row.get(4)?,
                    version: row::unsigned(row, 5)?,
                    limits: row::unsigned(row, 6)?,
                    counts: Counts {
                        alive: row::unsigned(row, 7)?,
                        ready: row::unsigned(row, 8)?,
                        engaged: row::unsigned(row, 9)?,
                        epoch: row::epoch(row, 10)?,
                        counted_ms: row::unsigned(row, 11)?,
                    },
                    ..self.no_head()
                })
            })
            .optional()?;
        Ok(found.unwrap_or_else(|| self.no_head()))
    }

    /// Makes the view if it is missing. It has nothing to wait for (`lineage_ms` is 0): it is the same file, and each
    /// lease held on this machine either ended with its process or is still protected by the kernel lock of its holder.
    pub fn make_view(&self) -> rusqlite::Result<()> {
        self.cached("insert into hive_view(hive, origin, lineage) values (?1, ?2, ?3) on conflict(hive) do nothing")?
            .execute(params![self.hive, uuid::Uuid::new_v4().to_string(), self.server])
            .map(drop)
    }

    /// Raises the version by one and writes the event that explains it.
    pub fn event(
        &self,
        kind: EventKind,
        node: Option<NodeId>,
        lease: Option<(&Name, Epoch)>,
        cause: &str,
    ) -> rusqlite::Result<()> {
        self.make_view()?;
        let version: i64 = self
            .cached("update hive_view set version = version + 1 where hive = ?1 returning version")?
            .query_row([self.hive], |row| row.get(0))?;
        let node = node.map(|node| node.to_string());
        let (lease, epoch) = lease.map(|(name, epoch)| (&**name, signed(epoch.0))).unzip();
        self.cached(
            "insert into hive_event(hive, version, at_ms, kind, node, lease, epoch, cause)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![self.hive, version, self.now(), kind.as_str(), node, lease, epoch, cause])
        .map(drop)
    }

    pub fn holds(&self, fence: &Fence) -> rusqlite::Result<bool> {
        let found = self
            .cached("select epoch, holder from hive_lease where hive = ?1 and name = ?2")?
            .query_row(params![self.hive, fence.lease()], |row| {
                Ok((row::epoch(row, 0)?, row::node_id_or_null(row, 1)?))
            })
            .optional()?;
        Ok(found.is_some_and(|(epoch, holder)| fence.holds(epoch, holder)))
    }
}

pub(crate) fn stale(fence: &Fence) -> Reply {
    Reply::Stale(vec![fence.lease().clone()])
}

//! The requests on one connection. Every change is one `BEGIN IMMEDIATE`; what is read together is one snapshot.

use std::collections::BTreeMap;

use honeyflow_hive::{NodeId, Reply, Request, contract::limit};
use honeyflow_runtime::Failure;
use rusqlite::{Connection, TransactionBehavior};

use crate::{
    Options,
    lock::{Held, Locks},
    outcome::Stop,
    patience::Patience,
    schema::{self, HIVE_MS},
    session::{Answer, Session},
};

pub(crate) struct Hive {
    connection: Connection,
    hive: String,
    alone: bool,
    server: String,
    pub locks: Locks,
    /// Nodes of this process that have joined.
    pub held: BTreeMap<NodeId, Held>,
    now: String,
    pub patience: Patience,
}

impl Hive {
    pub fn new(connection: Connection, options: &Options) -> Result<Hive, Failure> {
        // One file may be reached by several paths; its lock folder must be the same for all of them.
        let database = options
            .path
            .canonicalize()
            .map_err(|error| Failure::retry("cannot-open", format!("open {}: {error}", options.path.display())))?;
        Ok(Hive {
            connection,
            hive: options.hive.clone(),
            alone: options.alone,
            server: boot_id(),
            locks: Locks::beside(&database),
            held: BTreeMap::new(),
            now: format!("select {HIVE_MS}"),
            patience: Patience::new(options.busy_timeout),
        })
    }

    pub fn answer(&mut self, request: Request) -> Result<Reply, Failure> {
        match request {
            Request::Join { node, name, heartbeat_ms, ttl_ms, meta } => {
                self.join(node, &name, (heartbeat_ms, ttl_ms), &meta).map_err(|stop| stop.failure("join the hive"))
            }
            Request::Beat { node, read_only, state } => {
                self.beat(node, read_only, &state).map_err(|stop| stop.failure("beat"))
            }
            Request::Leave { node } => self.leave(node).map_err(|stop| stop.failure("leave the hive")),
            Request::Look { leases } => self.look(&leases).map_err(|stop| stop.failure("look at leases")),
            Request::Limit(request) => self.limit(request).map(Reply::Limit),
            request => self.change(request),
        }
    }

    /// What needs no more than the tables.
    fn change(&mut self, request: Request) -> Result<Reply, Failure> {
        let (doing, reply) = match request {
            Request::Bury { nodes } => ("bury a node", self.write(|s| Ok(Reply::Buried(s.bury(&nodes)?)))),
            Request::Mend => ("mend the hive", self.write(|s| Ok(Reply::Mended(s.mend()?)))),
            Request::Take { node, claims, cause, mint } => {
                ("take a lease", self.write(|s| s.take(node, &claims, &cause, &mint)))
            }
            Request::HandOver { node, heir, claims, cause, mint } => {
                ("hand over a lease", self.write(|s| s.hand_over(node, heir, &claims, &cause, &mint)))
            }
            Request::Release { node, held, cause } => {
                ("release a lease", self.write(|s| s.release(node, &held, &cause)))
            }
            Request::SetHeir { fence, heir } => ("name an heir", self.write(|s| s.set_heir(&fence, heir))),
            Request::Count { fence, every_ms, bury } => {
                ("count the hive", self.write(|s| s.count(&fence, every_ms, &bury)))
            }
            Request::Missed { fence, cause } => ("note a missed chore", self.write(|s| s.missed(&fence, &cause))),
            Request::Sweep { fence, event_ms, events_max, idle_ms, rows_max } => {
                ("sweep the hive", self.write(|s| s.sweep(&fence, (event_ms, events_max), idle_ms, rows_max)))
            }
            Request::NewLineage { was, found } => {
                ("record the lineage", self.write(|s| s.new_lineage(was.as_deref(), &found)))
            }
            Request::Behind { lineage, version, leases } => {
                ("hold the hive", self.write(|s| s.behind(&lineage, version, &leases)))
            }
            Request::AcceptRestore { cause } => ("accept a restore", self.write(|s| s.accept_restore(&cause))),
            Request::Tally => ("count the hive", self.read(|s| s.tallied())),
            Request::View => ("read the hive", self.read(|s| s.whole())),
            Request::Events { after, max } => ("read events", self.read(|s| s.events(after, u64::from(max)))),
            Request::History { lease, until_ms, max } => {
                ("read events", self.read(|s| s.history(lease.as_deref(), until_ms, max)))
            }
            Request::Join { .. }
            | Request::Beat { .. }
            | Request::Leave { .. }
            | Request::Look { .. }
            | Request::Limit(_) => unreachable!("answered by themselves"),
        };
        reply.map_err(|stop| stop.failure(doing))
    }

    fn limit(&mut self, request: limit::Request) -> Result<limit::Reply, Failure> {
        use limit::{Reply, Request};
        let reply = match request {
            Request::Draw(draws) => self.write_soon(|s| s.draw(&draws)),
            Request::Exact { takes, peek } => self.write(|s| s.exact(&takes, peek)),
            Request::Refund(takes) => self.write(|s| s.refund(&takes)),
            Request::Slots { node, asks } => self.write(|s| s.slots(node, asks)),
            Request::Set { limit, was, rule, after_ms } => self.write(|s| s.set_limit(&limit, was, rule, after_ms)),
            Request::Limits => self.read(|s| s.limits()),
            Request::Ledger { limit, max } => {
                self.read(|s| if s.is_made()? { s.ledger(&limit, max) } else { Ok(Reply::Ledger(Vec::new())) })
            }
        };
        reply.map_err(|stop| stop.failure("ask the limits"))
    }

    pub fn is_alone(&self) -> bool {
        self.alone
    }

    /// In one transaction that nobody else writes in. The tables are made if need be.
    pub fn write<T>(&mut self, change: impl FnOnce(&Session<'_>) -> Answer<T>) -> Answer<T> {
        let written = self.within(TransactionBehavior::Immediate, |session| {
            if !session.is_made()? {
                schema::migrate(session.db)?;
            }
            change(session)
        });
        self.patience.learn(written.as_ref().is_err_and(Stop::is_busy));
        written
    }

    /// The same, for what may be lost with the machine: nothing waits for the disk. Batches that were drawn die with it.
    fn write_soon<T>(&mut self, change: impl FnOnce(&Session<'_>) -> Answer<T>) -> Answer<T> {
        self.connection.pragma_update(None, "synchronous", "NORMAL")?;
        let written = self.write(change);
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        written
    }

    /// In one snapshot. Makes nothing.
    pub fn read<T>(&mut self, look: impl FnOnce(&Session<'_>) -> Answer<T>) -> Answer<T> {
        self.within(TransactionBehavior::Deferred, look)
    }

    fn within<T>(&mut self, behavior: TransactionBehavior, work: impl FnOnce(&Session<'_>) -> Answer<T>) -> Answer<T> {
        self.patience.apply(&self.connection)?;
        let transaction = self.connection.transaction_with_behavior(behavior)?;
        // Once for the whole of it, and only now: waiting for the lock takes time.
        let now_ms: i64 = transaction.prepare_cached(&self.now)?.query_row([], |row| row.get(0))?;
        let session = Session {
            db: &transaction,
            hive: &self.hive,
            server: &self.server,
            locks: &self.locks,
            now_ms: now_ms.max(0).cast_unsigned(),
        };
        let answer = work(&session)?;
        transaction.commit()?;
        Ok(answer)
    }
}

impl Session<'_> {
    pub fn is_made(&self) -> Answer<bool> {
        schema::exists(self.db)
    }
}

/// The machine's start: no process of an earlier one is left.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| "unknown".to_owned(), |id| id.trim().to_owned())
}

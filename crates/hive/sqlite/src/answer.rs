//! Answers the requests on one connection. Every change is one `BEGIN IMMEDIATE` transaction; every read is one
//! snapshot.

use std::collections::BTreeMap;

use honeyflow_hive::{NodeId, Reply, Request, contract::limit};
use honeyflow_runtime::Failure;
use rusqlite::{Connection, TransactionBehavior};

use crate::{
    Options, codes,
    lock::{Locks, NodeLock},
    outcome::Stop,
    patience::Patience,
    schema::{self, HIVE_MS},
    session::{Answer, Session},
};

pub(crate) struct Hive {
    connection: Connection,
    /// The name of the hive.
    hive: String,
    /// Refuses a join while another node is alive.
    alone: bool,
    /// The boot id of this machine: after a reboot no node of before can be alive.
    server: String,
    pub locks: Locks,
    /// The file locks of the members that run in this process.
    pub held: BTreeMap<NodeId, NodeLock>,
    /// The SQL expression that reads hive time.
    now: String,
    pub patience: Patience,
}

impl Hive {
    pub fn new(connection: Connection, options: &Options) -> Result<Hive, Failure> {
        // Several paths may lead to one file; its lock folder must be the same for all of them.
        let database = options
            .path
            .canonicalize()
            .map_err(|error| Failure::retry(codes::CANNOT_OPEN, format!("open {}: {error}", options.path.display())))?;
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
            Request::Look { leases } => self.read_leases(&leases).map_err(|stop| stop.failure("read leases")),
            Request::Limit(request) => self.limit(request).map(Reply::Limit),
            request => self.change(request),
        }
    }

    /// Answers the requests that need only the tables, no kernel lock.
    fn change(&mut self, request: Request) -> Result<Reply, Failure> {
        let (doing, reply) = match request {
            Request::Remove { nodes } => {
                ("remove expired nodes", self.write(|s| Ok(Reply::Removed(s.remove_expired(&nodes)?))))
            }
            Request::Mend => ("repair stored times", self.write(|s| Ok(Reply::Mended(s.mend()?)))),
            Request::Take { node, claims, cause, mint } => {
                ("take a lease", self.write(|s| s.take(node, &claims, &cause, &mint)))
            }
            Request::HandOver { node, successor, claims, cause, mint } => {
                ("hand over a lease", self.write(|s| s.hand_over(node, successor, &claims, &cause, &mint)))
            }
            Request::Release { node, held, cause } => {
                ("release a lease", self.write(|s| s.release(node, &held, &cause)))
            }
            Request::SetSuccessor { fence, successor } => {
                ("name a successor", self.write(|s| s.set_successor(&fence, successor)))
            }
            Request::Count { fence, every_ms, remove } => {
                ("count the nodes", self.write(|s| s.count(&fence, every_ms, &remove)))
            }
            Request::Missed { fence, cause } => {
                ("record a missed chore", self.write(|s| s.record_missed(&fence, &cause)))
            }
            Request::Sweep { fence, event_ms, events_max, idle_ms, rows_max } => {
                ("sweep the hive", self.write(|s| s.sweep(&fence, (event_ms, events_max), idle_ms, rows_max)))
            }
            Request::NewLineage { was, found } => {
                ("record the lineage", self.write(|s| s.new_lineage(was.as_deref(), &found)))
            }
            Request::Behind { lineage, version, leases } => {
                ("put the hive on hold", self.write(|s| s.report_behind(&lineage, version, &leases)))
            }
            Request::AcceptRestore { cause } => ("accept a restore", self.write(|s| s.accept_restore(&cause))),
            Request::Tally => ("count the nodes", self.read(|s| s.tally_reply())),
            Request::View => ("read the view", self.read(|s| s.read_view())),
            Request::Events { after, max } => ("read events", self.read(|s| s.events(after, u64::from(max)))),
            Request::History { lease, until_ms, max } => {
                ("read events", self.read(|s| s.history(lease.as_deref(), until_ms, max)))
            }
            Request::Join { .. }
            | Request::Beat { .. }
            | Request::Leave { .. }
            | Request::Look { .. }
            | Request::Limit(_) => unreachable!("handled in `answer`"),
        };
        reply.map_err(|stop| stop.failure(doing))
    }

    fn limit(&mut self, request: limit::Request) -> Result<limit::Reply, Failure> {
        use limit::{Reply, Request};
        let reply = match request {
            Request::Draw(draws) => self.write_without_sync(|s| s.draw(&draws)),
            Request::Exact { takes, peek } => self.write(|s| s.exact(&takes, peek)),
            Request::Refund(takes) => self.write(|s| s.refund(&takes)),
            Request::Slots { node, asks } => self.write(|s| s.slots(node, asks)),
            Request::Set { limit, was, rule, after_ms } => self.write(|s| s.set_limit(&limit, was, rule, after_ms)),
            Request::Limits => self.read(|s| s.limits()),
            Request::Ledger { limit, max } => {
                self.read(|s| if s.has_tables()? { s.ledger(&limit, max) } else { Ok(Reply::Ledger(Vec::new())) })
            }
        };
        reply.map_err(|stop| stop.failure("ask the limits"))
    }

    pub fn is_alone(&self) -> bool {
        self.alone
    }

    /// Runs `change` in one transaction that holds the write lock. Creates the tables if they are missing.
    pub fn write<T>(&mut self, change: impl FnOnce(&Session<'_>) -> Answer<T>) -> Answer<T> {
        let written = self.in_transaction(TransactionBehavior::Immediate, |session| {
            if !session.has_tables()? {
                schema::migrate(session.db)?;
            }
            change(session)
        });
        self.patience.on_write(written.as_ref().is_err_and(Stop::is_busy));
        written
    }

    /// Writes without waiting for the disk, so a crash of the machine may lose the write. That is safe for draws: the batches
    /// of permits are lost in the same crash.
    fn write_without_sync<T>(&mut self, change: impl FnOnce(&Session<'_>) -> Answer<T>) -> Answer<T> {
        self.connection.pragma_update(None, "synchronous", "NORMAL")?;
        let written = self.write(change);
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        written
    }

    /// Runs `look` in one snapshot. Creates nothing.
    pub fn read<T>(&mut self, look: impl FnOnce(&Session<'_>) -> Answer<T>) -> Answer<T> {
        self.in_transaction(TransactionBehavior::Deferred, look)
    }

    fn in_transaction<T>(
        &mut self,
        behavior: TransactionBehavior,
        work: impl FnOnce(&Session<'_>) -> Answer<T>,
    ) -> Answer<T> {
        self.patience.apply(&self.connection)?;
        let transaction = self.connection.transaction_with_behavior(behavior)?;
        // The time is read once per transaction, and only after the wait for the lock.
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
    pub fn has_tables(&self) -> Answer<bool> {
        schema::exists(self.db)
    }
}

/// The kernel's boot id. It changes at each reboot, after which no process of before can be alive.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| "unknown".to_owned(), |id| id.trim().to_owned())
}

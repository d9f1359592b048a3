//! The parts that all statements of one hive share: its name, its time, the server's lineage, and the SQL that writes
//! events.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use honeyflow_hive::{Fence, NodeId, Reply, Request, fence, horizon::Horizon};

use crate::{literal, script::Script};

/// Hive time at the moment of evaluation, not at the start of the transaction: the transaction may have waited for a
/// lock.
pub(crate) const NOW: &str = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint - 1577836800000";

/// The lineage of the server: its identity and the timeline of its write-ahead log. The control file would show the old
/// timeline until the first checkpoint after a promotion. On a standby the expression fails, and so the hive refuses
/// it.
pub(crate) const SERVER: &str = "(select system_identifier::text from pg_control_system())
    || '-' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)";

/// The time to live that is assumed until a node joins with its own.
const TTL_MS: u64 = 6_000;

pub(crate) struct Hive {
    /// The hive's name as an SQL literal.
    name: String,
    label: String,
    ttl_ms: AtomicU64,
    horizon: Mutex<Horizon>,
}

impl Hive {
    pub fn new(name: &str) -> Hive {
        Hive {
            name: literal::text(name),
            label: name.to_owned(),
            ttl_ms: AtomicU64::new(TTL_MS),
            horizon: Mutex::default(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the time to live of the node that uses this hive.
    pub fn set_ttl(&self, ttl_ms: u64) {
        self.ttl_ms.store(ttl_ms, Ordering::Relaxed);
    }

    /// The hive time before which no other node's row expires.
    pub fn horizon_ms(&self, node: NodeId) -> u64 {
        self.horizon.lock().unwrap_or_else(PoisonError::into_inner).scan_from_ms(node)
    }

    pub fn on_reply(&self, request: &Request, reply: &Reply) {
        if let (Request::Beat { node, .. }, Reply::Beat(status)) = (request, reply) {
            self.horizon.lock().unwrap_or_else(PoisonError::into_inner).on_heartbeat_reply(
                *node,
                status,
                Instant::now(),
            );
        }
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms.load(Ordering::Relaxed))
    }

    /// How long to wait for a connection before starting a further attempt. This is longer than a heartbeat waits for
    /// its answer, and shorter than the time to live.
    pub fn reconnect_every(&self) -> Duration {
        (self.ttl() / 2).max(Duration::from_secs(1))
    }

    /// How long a transfer of a lease waits for transactions under that lease. After this time the caller no longer
    /// waits for the answer.
    pub fn lease_lock_wait(&self) -> Duration {
        self.ttl() / 2
    }

    pub fn patient_change(&self) -> Script {
        Script::change(self.lease_lock_wait())
    }

    pub fn change(&self) -> Script {
        Script::change(self.ttl() / 3)
    }

    /// A statement that returns the lease if its term still holds, and locks it until the end of the transaction.
    pub fn fence(&self, fence: &Fence) -> String {
        fence::postgres(&self.label, [fence], "name")
    }

    /// The same comparison as an SQL condition.
    pub fn holds(&self, fence: &Fence) -> String {
        let (hive, lease, holder) = (&self.name, literal::text(fence.lease()), literal::node(fence.holder()));
        let epoch = literal::number(fence.epoch().0);
        format!(
            "exists (select 1 from hive_lease where hive = {hive} and name = {lease} and epoch = {epoch} and holder = {holder})"
        )
    }

    /// Parts of a `with` that has `t(now)` and `changes(place, kind, node, lease, epoch, cause)`: they raise the
    /// version by one for each change and write its event. No other transaction gets a version until this one has
    /// ended.
    pub fn write_events(&self) -> String {
        let hive = &self.name;
        format!(
            "bump as (update hive_view set version = version + (select count(*) from changes)
               where hive = {hive} and exists (select 1 from changes) returning version),
             noted as (insert into hive_event(hive, version, at_ms, kind, node, lease, epoch, cause)
               select {hive}, bump.version - count(*) over () + row_number() over (order by c.place), t.now,
                 c.kind, c.node, c.lease, c.epoch, c.cause from changes c, bump, t returning version)"
        )
    }

    /// Makes the view if it is missing. Where leases exist without a view, the history is unknown: the lineage begins
    /// now.
    pub fn make_view(&self) -> String {
        let hive = &self.name;
        format!(
            "insert into hive_view(hive, origin, lineage, lineage_ms) select {hive}, gen_random_uuid(), {SERVER},
               case when exists (select 1 from hive_lease where hive = {hive}) then {NOW} else 0 end
             where not exists (select 1 from hive_view where hive = {hive}) on conflict (hive) do nothing"
        )
    }

    pub fn lock_view(&self) -> String {
        format!("select 1 from hive_view where hive = {} for no key update", self.name)
    }
}

/// `t(now)`: one instant for the whole statement.
pub(crate) fn clock() -> String {
    format!("t as materialized (select {NOW} as now)")
}

/// `t(now, server)`: one instant and the lineage of the server, for the whole statement.
pub(crate) fn clock_and_server() -> String {
    format!("t as materialized (select {NOW} as now, {SERVER} as server)")
}

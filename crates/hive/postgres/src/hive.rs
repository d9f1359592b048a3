//! What all statements of one hive have in common: its name, its time, the server it runs on, and how a change is noted.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use honeyflow_hive::{Fence, NodeId, Reply, Request, fence, horizon::Horizon};

use crate::{literal, script::Script};

/// Hive time, read when it is needed and not when the transaction began: waiting for a lock takes time.
pub(crate) const NOW: &str = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint - 1577836800000";

/// Which history this server writes: its identity, and the timeline of its log. The control file would show the old
/// timeline until the first checkpoint after a promotion. A standby cannot say, and is refused by that.
pub(crate) const SERVER: &str = "(select system_identifier::text from pg_control_system())
    || '-' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)";

/// Until a node has joined and said otherwise.
const TTL_MS: u64 = 6_000;

pub(crate) struct Hive {
    /// As a constant.
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

    /// The node that uses this hive lives by this.
    pub fn lives_by(&self, ttl_ms: u64) {
        self.ttl_ms.store(ttl_ms, Ordering::Relaxed);
    }

    /// No other node's row ends before.
    pub fn horizon_ms(&self, node: NodeId) -> u64 {
        self.horizon.lock().unwrap_or_else(PoisonError::into_inner).begins_ms(node)
    }

    pub fn heard(&self, request: &Request, reply: &Reply) {
        if let (Request::Beat { node, .. }, Reply::Beat(status)) = (request, reply) {
            self.horizon.lock().unwrap_or_else(PoisonError::into_inner).told(*node, status, Instant::now());
        }
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms.load(Ordering::Relaxed))
    }

    /// Longer than a beat waits for its answer, and shorter than it is a member without one.
    pub fn knocks_every(&self) -> Duration {
        (self.ttl() / 2).max(Duration::from_secs(1))
    }

    /// Whoever takes a lease waits for those who act under it, for so long: nobody waits for the answer any more then.
    pub fn patience(&self) -> Duration {
        self.ttl() / 2
    }

    pub fn patient(&self) -> Script {
        Script::change(self.patience())
    }

    pub fn change(&self) -> Script {
        Script::change(self.ttl() / 3)
    }

    /// Which of the leases' terms are not over, locked until the end of the transaction.
    pub fn fence(&self, fence: &Fence) -> String {
        fence::postgres(&self.label, [fence], "name")
    }

    /// The same as a condition.
    pub fn holds(&self, fence: &Fence) -> String {
        let (hive, lease, holder) = (&self.name, literal::text(fence.lease()), literal::node(fence.holder()));
        let epoch = literal::number(fence.epoch().0);
        format!(
            "exists (select 1 from hive_lease where hive = {hive} and name = {lease} and epoch = {epoch} and holder = {holder})"
        )
    }

    /// For a `with` that has `t(now)` and `changes(place, kind, node, lease, epoch, cause)`: the version goes up by one for
    /// each of them, and this is why. Nobody else gets a version until this transaction has ended.
    pub fn noted(&self) -> String {
        let hive = &self.name;
        format!(
            "bump as (update hive_view set version = version + (select count(*) from changes)
               where hive = {hive} and exists (select 1 from changes) returning version),
             noted as (insert into hive_event(hive, version, at_ms, kind, node, lease, epoch, cause)
               select {hive}, bump.version - count(*) over () + row_number() over (order by c.place), t.now,
                 c.kind, c.node, c.lease, c.epoch, c.cause from changes c, bump, t returning version)"
        )
    }

    /// The view, if there is none. Where leases stand without one, nobody knows what has happened.
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

/// `t(now)`: one instant for a whole statement.
pub(crate) fn clock() -> String {
    format!("t as materialized (select {NOW} as now)")
}

/// `t(now, server)`.
pub(crate) fn clock_and_server() -> String {
    format!("t as materialized (select {NOW} as now, {SERVER} as server)")
}

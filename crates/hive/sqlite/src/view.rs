//! The view with its version and events, and the lineage it belongs to.

use std::collections::BTreeSet;

use honeyflow_hive::{
    Fence, Reply,
    contract::{Counts, Event, EventKind, Events, HeldLease, QUEEN, Refusal, Removal, View},
};
use rusqlite::{OptionalExtension, params};

use crate::{
    row::{self, EVENT, NODE, signed},
    session::{Answer, Session, stale},
};

impl Session<'_> {
    pub fn read_view(&self) -> Answer<Reply> {
        let view = if self.has_tables()? {
            View { head: self.head()?, nodes: self.nodes()?, leases: self.leases()? }
        } else {
            View { head: self.no_head(), ..View::default() }
        };
        Ok(Reply::View(Box::new(view)))
    }

    pub fn events(&self, after: u64, max: u64) -> Answer<Reply> {
        if !self.has_tables()? {
            return self.read_view();
        }
        let head = self.head()?;
        // Versions are unique and rise by one: if the number of events is right, none is missing.
        let Some(due) = head.version.checked_sub(after).filter(|due| *due <= max) else { return self.read_view() };
        let events: Vec<Event> = self
            .cached(&format!("select {EVENT} from hive_event where hive = ?1 and version > ?2 order by version"))?
            .query_map(params![self.hive, signed(after)], row::event)?
            .collect::<Result<_, _>>()?;
        if events.len() as u64 != due {
            return self.read_view();
        }
        let (mut nodes, mut leases) = (Vec::new(), Vec::new());
        for id in events.iter().filter_map(|event| event.node).collect::<BTreeSet<_>>() {
            let found = self
                .cached(&format!("select {NODE} from hive_node where hive = ?1 and id = ?2"))?
                .query_row(params![self.hive, id.to_string()], row::node)
                .optional()?;
            nodes.extend(found);
        }
        for name in events.iter().filter_map(|event| event.lease.as_ref()).collect::<BTreeSet<_>>() {
            leases.extend(self.lease(name)?);
        }
        Ok(Reply::Events(Box::new(Events { head, events, nodes, leases })))
    }

    pub fn history(&self, lease: Option<&str>, until_ms: Option<u64>, max: u32) -> Answer<Reply> {
        if !self.has_tables()? {
            return Ok(Reply::History(Vec::new()));
        }
        let events = self
            .cached(&format!(
                "select {EVENT} from hive_event where hive = ?1 and (?2 is null or lease = ?2) and (?3 is null or at_ms <= ?3)
                 order by version desc limit ?4"
            ))?
            .query_map(params![self.hive, lease, until_ms.map(signed), max], row::event)?
            .collect::<Result<_, _>>()?;
        Ok(Reply::History(events))
    }

    fn holds_queen(&self, fence: &Fence) -> rusqlite::Result<bool> {
        Ok(&**fence.lease() == QUEEN && self.holds(fence)?)
    }

    pub fn count(&self, fence: &Fence, every_ms: u64, bury: &[Removal]) -> Answer<Reply> {
        if !self.holds_queen(fence)? {
            return Ok(stale(fence));
        }
        let buried = self.remove_expired(bury)?;
        self.make_view()?;
        let last = self.head()?.counts;
        let mut counts = self.tally()?;
        let published = !counts.same_numbers(&last)
            || last.epoch != fence.epoch()
            || last.counted_ms > self.now_ms
            || last.counted_ms.saturating_add(every_ms) <= self.now_ms;
        if published {
            counts = Counts { epoch: fence.epoch(), counted_ms: self.now_ms, ..counts };
            self.cached(
                "update hive_view set alive = ?2, ready = ?3, engaged = ?4, epoch = ?5, counted_ms = ?6 where hive = ?1",
            )?
            .execute(params![
                self.hive,
                signed(counts.alive),
                signed(counts.ready),
                signed(counts.engaged),
                signed(counts.epoch.0),
                self.now()
            ])?;
        }
        Ok(Reply::Counted { hive_ms: self.now_ms, counts, published, removed: buried })
    }

    pub fn record_missed(&self, fence: &Fence, cause: &str) -> Answer<Reply> {
        if !self.holds(fence)? {
            return Ok(stale(fence));
        }
        self.event(EventKind::Missed, Some(fence.holder()), Some((fence.lease(), fence.epoch())), cause)?;
        Ok(Reply::Done)
    }

    pub fn sweep(
        &self,
        fence: &Fence,
        (event_ms, events_max): (u64, u64),
        idle_ms: u64,
        rows_max: u32,
    ) -> Answer<Reply> {
        if !self.holds_queen(fence)? {
            return Ok(stale(fence));
        }
        let events = self
            .cached(
                "delete from hive_event where hive = ?1 and version in (
                   select version from hive_event where hive = ?1 and (at_ms + ?2 <= ?3 or version <= (
                     select version from hive_event where hive = ?1 order by version desc limit 1 offset ?4))
                   order by version limit ?5)",
            )?
            .execute(params![self.hive, signed(event_ms), self.now(), signed(events_max), rows_max])?;
        let buckets = self.sweep_buckets(idle_ms, rows_max)? + self.sweep_shares(idle_ms, rows_max)?;
        Ok(Reply::Swept { events: events as u64, buckets })
    }

    pub fn new_lineage(&self, was: Option<&str>, found: &str) -> Answer<Reply> {
        if self.head()?.lineage.as_deref() != was || found != self.server {
            return Ok(Reply::Refused(Refusal::Raced));
        }
        self.make_view()?;
        self.cached("update hive_view set lineage = ?2, lineage_ms = 0 where hive = ?1")?
            .execute([self.hive, self.server])?;
        self.jump_version(EventKind::Lineage, found)?;
        Ok(Reply::Done)
    }

    pub fn report_behind(&self, lineage: &str, version: u64, leases: &[HeldLease]) -> Answer<Reply> {
        let head = self.head()?;
        let mut is_behind = head.version < version;
        for held in leases {
            is_behind |= self.lease(&held.lease)?.is_none_or(|lease| lease.epoch < held.epoch);
        }
        if !is_behind || head.lineage.as_deref() != Some(lineage) {
            return Ok(Reply::Refused(Refusal::Raced));
        }
        self.cached("update hive_view set hold = 'restore' where hive = ?1")?.execute([self.hive])?;
        Ok(Reply::Done)
    }

    pub fn accept_restore(&self, cause: &str) -> Answer<Reply> {
        let accepted = self
            .cached("update hive_view set hold = null, lineage_ms = ?2 where hive = ?1 and hold is not null")?
            .execute(params![self.hive, self.now()])?;
        if accepted == 0 {
            return Ok(Reply::Refused(Refusal::Raced));
        }
        self.jump_version(EventKind::Restored, cause)?;
        Ok(Reply::Done)
    }

    /// Raises the version above every version that a node can have seen.
    fn jump_version(&self, kind: EventKind, cause: &str) -> Answer<()> {
        self.cached("update hive_view set version = max(version, ?2 - 1) where hive = ?1")?
            .execute(params![self.hive, self.now()])?;
        self.event(kind, None, None, cause)?;
        Ok(())
    }
}

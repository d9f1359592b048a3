//! The view with its version and events, and the lineage it belongs to.

use std::{collections::BTreeSet, ops::Bound};

use honeyflow_event::Name;
use honeyflow_hive::{
    Fence, Reply,
    contract::{Counts, Event, EventKind, Events, HeldLease, QUEEN, Refusal, Removal, View},
    planted,
};

use super::{Rows, lease::stale};

impl Rows {
    pub(super) fn read_view(&self, now_ms: u64) -> Reply {
        Reply::View(Box::new(View {
            head: self.head(now_ms),
            nodes: self.nodes.values().cloned().collect(),
            leases: self.leases.keys().filter_map(|name| self.lease_row(now_ms, name)).collect(),
        }))
    }

    pub(super) fn events(&self, now_ms: u64, after: u64, max: u64) -> Reply {
        let head = self.head(now_ms);
        let events: Vec<Event> =
            self.events.range((Bound::Excluded(after), Bound::Unbounded)).map(|(_, event)| event.clone()).collect();
        // Versions are unique and rise by one: if the number of events is right, none is missing.
        if head.version.checked_sub(after) != Some(events.len() as u64) || events.len() as u64 > max {
            return self.read_view(now_ms);
        }
        let nodes: BTreeSet<_> = events.iter().filter_map(|event| event.node).collect();
        let leases: BTreeSet<Name> = events.iter().filter_map(|event| event.lease.clone()).collect();
        Reply::Events(Box::new(Events {
            head,
            nodes: nodes.iter().filter_map(|id| self.nodes.get(id)).cloned().collect(),
            leases: leases.iter().filter_map(|name| self.lease_row(now_ms, name)).collect(),
            events,
        }))
    }

    pub(super) fn history(&self, lease: Option<&str>, until_ms: Option<u64>, max: usize) -> Reply {
        let wanted = |event: &&Event| {
            lease.is_none_or(|lease| event.lease.as_deref() == Some(lease))
                && until_ms.is_none_or(|until_ms| event.at_ms <= until_ms)
        };
        Reply::History(self.events.values().rev().filter(wanted).take(max).cloned().collect())
    }

    pub(super) fn count(&mut self, now_ms: u64, fence: &Fence, every_ms: u64, bury: &[Removal]) -> Reply {
        if !self.holds_queen(fence) && !planted::on("count unfenced") {
            return stale(fence);
        }
        let buried = self.remove_expired(now_ms, bury);
        let mut counts = self.tally(now_ms);
        let published = self.view_or_new(now_ms);
        let last = published.counts;
        let due = !counts.same_numbers(&last)
            || last.epoch != fence.epoch()
            || last.counted_ms > now_ms
            || last.counted_ms.saturating_add(every_ms) <= now_ms;
        if due {
            counts = Counts { epoch: fence.epoch(), counted_ms: now_ms, ..counts };
            published.counts = counts;
        }
        Reply::Counted { hive_ms: now_ms, counts, published: due, removed: buried }
    }

    pub(super) fn record_missed(&mut self, now_ms: u64, fence: &Fence, cause: &Name) -> Reply {
        if !self.holds(fence) {
            return stale(fence);
        }
        let lease = Some((fence.lease(), fence.epoch()));
        self.event(now_ms, EventKind::Missed, Some(fence.holder()), lease, cause);
        Reply::Done
    }

    pub(super) fn sweep(
        &mut self,
        now_ms: u64,
        fence: &Fence,
        (event_ms, events_max): (u64, u64),
        idle_ms: u64,
        rows_max: usize,
    ) -> Reply {
        if !self.holds_queen(fence) {
            return stale(fence);
        }
        let newest: Vec<u64> = self.events.keys().rev().copied().collect();
        let old = |version: &&u64| self.events[*version].at_ms.saturating_add(event_ms) <= now_ms;
        let beyond = newest.iter().skip(usize::try_from(events_max).unwrap_or(usize::MAX));
        let mut gone: BTreeSet<u64> = newest.iter().filter(old).chain(beyond).copied().collect();
        while gone.len() > rows_max {
            gone.pop_last();
        }
        self.events.retain(|version, _| !gone.contains(version));
        Reply::Swept { events: gone.len() as u64, buckets: self.limits.sweep(now_ms, idle_ms, rows_max) }
    }

    fn holds_queen(&self, fence: &Fence) -> bool {
        &**fence.lease() == QUEEN && self.holds(fence)
    }

    pub(super) fn new_lineage(&mut self, now_ms: u64, was: Option<&str>, found: &str) -> Reply {
        let recorded = self.view.as_ref().and_then(|view| view.lineage.as_deref());
        if recorded != was || *found != *self.server {
            return Reply::Refused(Refusal::Raced);
        }
        let server = self.server.clone();
        let view = self.view_or_new(now_ms);
        (view.lineage, view.lineage_ms) = (Some(server), now_ms);
        self.jump_version(now_ms, EventKind::Lineage, &found.into());
        Reply::Done
    }

    pub(super) fn report_behind(&mut self, lineage: &str, version: u64, leases: &[HeldLease]) -> Reply {
        let lower = |held: &HeldLease| self.leases.get(&held.lease).is_none_or(|lease| lease.epoch < held.epoch);
        let is_behind = leases.iter().any(lower);
        match &mut self.view {
            // The history of another server is unknown anyway: the node records it as a new lineage and waits.
            Some(view)
                if view.lineage.as_deref() == Some(lineage)
                    && *lineage == *self.server
                    && (view.version < version || is_behind) =>
            {
                view.hold = Some("restore".to_owned());
                Reply::Done
            }
            _ => Reply::Refused(Refusal::Raced),
        }
    }

    pub(super) fn accept_restore(&mut self, now_ms: u64, cause: &Name) -> Reply {
        match &mut self.view {
            Some(view) if view.hold.is_some() => {
                (view.hold, view.lineage_ms) = (None, now_ms);
                self.jump_version(now_ms, EventKind::Restored, cause);
                Reply::Done
            }
            _ => Reply::Refused(Refusal::Raced),
        }
    }

    /// Raises the version above every version that a node can have seen.
    fn jump_version(&mut self, now_ms: u64, kind: EventKind, cause: &Name) {
        let view = self.view_or_new(now_ms);
        view.version = view.version.max(now_ms.saturating_sub(1));
        self.event(now_ms, kind, None, None, cause);
    }
}

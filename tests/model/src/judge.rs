//! Checks the invariants after every event.

use std::sync::Arc;

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Fence, Reply, Request,
    contract::{Event, EventKind},
};
use honeyflow_invariant::{
    Breach,
    fence::AcceptedWrite,
    hive::{
        MintedLease, TermInterval, accepted_epochs_never_fall, epochs_grow, leases_are_held, no_live_member_is_removed,
        terms_do_not_overlap, trust_ends_before_expiry,
    },
};
use honeyflow_runtime::Moment;

use crate::hive::{Hive, TTL};

impl Hive {
    pub fn keeps(&self, rule: &str) -> bool {
        self.breaches.iter().all(|breach| breach.id != rule)
    }

    pub fn breach(&self, rule: &str) -> String {
        self.breaches.iter().find(|breach| breach.id == rule).map_or_else(String::new, ToString::to_string)
    }

    fn record_breaches(&mut self, breaches: impl IntoIterator<Item = Breach>) {
        if self.judged {
            self.breaches.extend(breaches);
        }
    }

    /// Lets every holder of a term write under it at every moment, and checks that no two nodes hold the same lease.
    pub(crate) fn judge(&mut self) {
        let mut reigns: Vec<TermInterval> = Vec::new();
        let mut writes: Vec<Fence> = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            for fence in node.fences(self.now) {
                let (lease, epoch) = (fence.lease().to_string(), fence.epoch());
                reigns.push(TermInterval {
                    lease,
                    epoch,
                    holder: number.to_string(),
                    from: self.now,
                    until: self.now + 1,
                });
                if node.is_up(self.now) {
                    writes.push(fence);
                }
            }
        }
        // After a restore a lease may be held twice until it is noticed. That is why the operator has to accept a
        // restore.
        if !self.is_restored() {
            self.record_breaches(terms_do_not_overlap(&reigns));
        }
        writes.iter().for_each(|fence| self.write_under(fence));
    }

    pub(crate) fn write_under(&mut self, fence: &Fence) {
        if !self.store.rows.holds(fence) {
            self.seen.refused |= self.judged;
            return;
        }
        let (lease, epoch) = (fence.lease().clone(), fence.epoch());
        if self.store.accepted.get(&lease) == Some(&epoch) {
            return;
        }
        let before = Arc::make_mut(&mut self.store).accepted.insert(lease.clone(), epoch).unwrap_or(Epoch(0));
        let history = [before, epoch].map(|epoch| AcceptedWrite { lease: lease.clone(), epoch });
        self.record_breaches(accepted_epochs_never_fall(&history));
    }

    /// Reads the events that the store has written since the last call.
    pub(crate) fn read_events(&mut self) {
        let hive_ms = self.hive_ms();
        let read = Request::Events { after: self.events_read, max: u32::MAX };
        let events = match Arc::make_mut(&mut self.store).rows.apply(hive_ms, read) {
            Ok(Reply::Events(news)) => {
                self.events_read = news.head.version;
                news.events
            }
            // After a jump of the version the gap is expected: only the newest event is new.
            Ok(Reply::View(view)) if view.head.version != self.events_read => {
                self.events_read = view.head.version;
                let newest = Request::History { lease: None, until_ms: None, max: 1 };
                match Arc::make_mut(&mut self.store).rows.apply(hive_ms, newest) {
                    Ok(Reply::History(events)) => events,
                    _ => Vec::new(),
                }
            }
            _ => Vec::new(),
        };
        events.into_iter().for_each(|event| self.on_event(event));
    }

    fn on_event(&mut self, event: Event) {
        match (event.kind, event.lease, event.epoch, event.node) {
            (kind @ (EventKind::Taken | EventKind::HandedOver), Some(lease), Some(epoch), Some(node)) => {
                self.seen.taken |= kind == EventKind::Taken;
                self.seen.handed_over |= kind == EventKind::HandedOver;
                self.note_mint(&lease, epoch, &node.to_string());
            }
            (EventKind::Buried, _, _, Some(node)) => {
                self.seen.buried = true;
                if let Some(beaten_at) = self.beaten.remove(&node) {
                    // The store counts whole milliseconds.
                    let silent_ms = (self.now - beaten_at).div_ceil(1000);
                    self.record_breaches(no_live_member_is_removed(&node.to_string(), silent_ms, TTL / 1000));
                }
            }
            (EventKind::Lineage, ..) => self.seen.lineage = true,
            _ => {}
        }
    }

    fn note_mint(&mut self, lease: &Name, epoch: Epoch, holder: &str) {
        let last = self.minted.insert(lease.clone(), epoch);
        let minted = |epoch, holder: &str| MintedLease { lease: lease.to_string(), epoch, holder: holder.to_owned() };
        // The previous holder does not matter here: an epoch that is minted twice is a breach in any case.
        let history: Vec<MintedLease> =
            last.map(|last| minted(last, "before")).into_iter().chain([minted(epoch, holder)]).collect();
        self.record_breaches(epochs_grow(&history));
    }

    pub(crate) fn judge_trust(&mut self, who: usize, until: Moment) {
        if self.has_stepped() || self.is_another() {
            return;
        }
        let (until, Some(id)) = (self.nodes[who].world(until), self.nodes[who].id()) else { return };
        let hive_ms = self.hive_ms();
        let Ok(Reply::View(view)) = Arc::make_mut(&mut self.store).rows.apply(hive_ms, Request::View) else { return };
        let Some(row) = view.nodes.iter().find(|row| row.id == id) else { return };
        let expires = self.now.saturating_add_signed((row.expires_ms.cast_signed() - hive_ms.cast_signed()) * 1000);
        self.record_breaches(trust_ends_before_expiry(&who.to_string(), until, expires));
    }

    pub(crate) fn judge_vacancy(&mut self, since: u64, limit: u64) {
        let vacant = self.vacant();
        let vacant: Vec<&str> = vacant.iter().map(|lease| &**lease).collect();
        let after_ms = (self.now - since) / 1000;
        self.record_breaches(leases_are_held(&vacant, after_ms, limit / 1000));
    }
}

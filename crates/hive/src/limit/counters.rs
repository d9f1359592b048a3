//! What a limit tells about itself: one set of numbers per limit, whatever the number of its keys.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use honeyflow_event::Name;

use super::key::{Footing, Reason, Setting};

#[derive(Default)]
pub struct Counters {
    pub admitted: AtomicU64,
    denied: [AtomicU64; REASONS.len()],
    pub store_operations: AtomicU64,
    waits: AtomicU64,
    waited_ns: AtomicU64,
    /// Whole permits in the pool when the store last said.
    pub pool: AtomicU64,
    /// Of some key, a part of each second is booked until then.
    pub booked_until_ns: AtomicU64,
}

pub const REASONS: [Reason; 6] =
    [Reason::Exhausted, Reason::Deadline, Reason::StoreSilent, Reason::Outage, Reason::CostTooHigh, Reason::QueueFull];

impl Reason {
    /// As the label says it.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Exhausted => "exhausted",
            Reason::Deadline => "deadline",
            Reason::StoreSilent => "store-silent",
            Reason::Outage => "outage",
            Reason::CostTooHigh => "cost-too-high",
            Reason::QueueFull => "queue-full",
        }
    }
}

impl Counters {
    pub fn denied(&self, reason: Reason) {
        self.denied[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn waited(&self, ns: u64) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waited_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub fn snapshot(&self, limit: &Name, setting: &Setting, now_ns: u64, keys: usize, overflowed: u64) -> Snapshot {
        let books = self.booked_until_ns.load(Ordering::Relaxed) > now_ns;
        Snapshot {
            limit: limit.clone(),
            version: setting.terms.version,
            mode: match setting.footing {
                Footing::Store if books => "lease",
                Footing::Store => setting.terms.decider.name(),
                Footing::Alone(_) => "safe",
                Footing::Closed => "closed",
                Footing::Open => "open",
            },
            admitted: self.admitted.load(Ordering::Relaxed),
            denied: REASONS.map(|reason| (reason.name(), self.denied[reason as usize].load(Ordering::Relaxed))),
            store_operations: self.store_operations.load(Ordering::Relaxed),
            waits: self.waits.load(Ordering::Relaxed),
            waited: Duration::from_nanos(self.waited_ns.load(Ordering::Relaxed)),
            pool: self.pool.load(Ordering::Relaxed),
            slots: None,
            keys,
            overflowed,
        }
    }
}

/// The numbers at one moment. Permits that the short way gave out are counted when their batch is looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    pub limit: Name,
    pub version: u64,
    pub mode: &'static str,
    pub admitted: u64,
    pub denied: [(&'static str, u64); REASONS.len()],
    pub store_operations: u64,
    pub waits: u64,
    pub waited: Duration,
    pub pool: u64,
    /// Of a limit on how many at once: in use on this node, by all keys, and how many each key has on all nodes.
    pub slots: Option<(u64, u64)>,
    pub keys: usize,
    pub overflowed: u64,
}

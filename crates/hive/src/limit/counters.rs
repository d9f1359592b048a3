//! The metrics of a limit: one set of numbers per limit, independent of the number of its keys.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use honeyflow_event::Name;

use super::key::{Mode, Reason, Setting};

#[derive(Default)]
pub struct Counters {
    pub admitted: AtomicU64,
    denied: [AtomicU64; REASONS.len()],
    pub store_operations: AtomicU64,
    waits: AtomicU64,
    waited_ns: AtomicU64,
    /// The whole permits in the pool, by the last answer of the store.
    pub pool: AtomicU64,
    /// Until then this node reserves a part of each second for some key.
    pub reserving_until_ns: AtomicU64,
}

pub const REASONS: [Reason; 6] =
    [Reason::Exhausted, Reason::Deadline, Reason::StoreSilent, Reason::Outage, Reason::CostTooHigh, Reason::QueueFull];

impl Reason {
    /// The value of the metric's label.
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
    pub fn count_denied(&self, reason: Reason) {
        self.denied[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_wait(&self, ns: u64) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waited_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub fn snapshot(&self, limit: &Name, setting: &Setting, now_ns: u64, keys: usize, overflowed: u64) -> Snapshot {
        let is_reserving = self.reserving_until_ns.load(Ordering::Relaxed) > now_ns;
        Snapshot {
            limit: limit.clone(),
            version: setting.terms.version,
            mode: match setting.mode {
                Mode::Store if is_reserving => "lease",
                Mode::Store => setting.terms.decider.name(),
                Mode::Alone(_) => "safe",
                Mode::Closed => "closed",
                Mode::Open => "open",
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

/// The numbers at one moment. Permits that the fast path gave out are counted at the next step of their key.
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
    /// For a concurrency limit: the slots in use on this node for all keys, and the slots of each key on all nodes.
    pub slots: Option<(u64, u64)>,
    pub keys: usize,
    pub overflowed: u64,
}

//! Whether this node has traffic: a mark that requests set and the heartbeat reads.
//!
//! A request that finds the mark set does nothing; one that finds it unset sets it and rings the bell. The reader
//! clears it, and so knows for each interval between two readings whether there was traffic. It does not know when in
//! the interval, and reports the interval's beginning: no node counts as engaged for longer than its last request
//! allows.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use honeyflow_runtime::Moment;

/// Marks traffic. There is one per node, shared by all code that gets requests; cheap to clone.
#[derive(Clone, Default)]
pub struct Traffic(Arc<Mark>);

#[derive(Default)]
struct Mark {
    is_set: AtomicBool,
    /// Wakes the heartbeat after a pause.
    bell: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Traffic {
    /// The first request after a pause calls `ring` on its own thread: `ring` must not block.
    pub fn new(ring: impl Fn() + Send + Sync + 'static) -> Traffic {
        Traffic(Arc::new(Mark { is_set: AtomicBool::new(false), bell: Some(Box::new(ring)) }))
    }

    /// Records a request, or work that was found. It takes no lock, allocates nothing and does no I/O.
    #[inline]
    pub fn mark(&self) {
        if !self.0.is_set.load(Ordering::Relaxed) {
            self.first();
        }
    }

    #[cold]
    fn first(&self) {
        // Many requests may get here at once; only one rings.
        if !self.0.is_set.swap(true, Ordering::Relaxed)
            && let Some(ring) = &self.0.bell
        {
            ring();
        }
    }

    /// Whether there was traffic since the last call. Clears the mark.
    pub fn take(&self) -> bool {
        self.0.is_set.swap(false, Ordering::Relaxed)
    }
}

/// The reader's side: computes how old the last traffic is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LastTraffic {
    at: Option<Moment>,
    read_at: Option<Moment>,
}

impl LastTraffic {
    /// The age to send with a heartbeat; `None` without any traffic so far. `rung`: the mark was just set after a
    /// pause.
    pub fn read(&mut self, traffic: &Traffic, rung: bool, now: Moment) -> Option<Duration> {
        if traffic.take() {
            let earliest = if rung { now } else { self.read_at.unwrap_or(now) };
            self.at = Some(self.at.map_or(earliest, |at| at.max(earliest)));
        }
        self.read_at = Some(now);
        self.at.map(|at| now.since(at))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// HV-26: ten thousand requests are one mark, and one ring.
    #[test]
    fn write_per_request() {
        let rings = Arc::new(AtomicU32::new(0));
        let counted = rings.clone();
        let traffic = Traffic::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        for _ in 0..10_000 {
            traffic.mark();
        }
        assert_eq!(rings.load(Ordering::Relaxed), 1);
        assert!(traffic.take() && !traffic.take());
        traffic.mark();
        assert_eq!(rings.load(Ordering::Relaxed), 2, "the first after a pause rings again");
    }

    /// HV-27: the reported age is never less than the true one.
    #[test]
    fn hv_27_the_age_of_the_last_traffic_counts_from_the_earliest_it_can_be() {
        let traffic = Traffic::default();
        let mut last = LastTraffic::default();
        let at = Moment::from_millis;
        assert_eq!(last.read(&traffic, false, at(1_000)), None);
        traffic.mark();
        assert_eq!(last.read(&traffic, true, at(1_500)), Some(Duration::ZERO), "the bell rang just now");
        traffic.mark();
        assert_eq!(last.read(&traffic, false, at(3_500)), Some(Duration::from_secs(2)), "since the last reading");
        assert_eq!(last.read(&traffic, false, at(33_500)), Some(Duration::from_secs(32)), "and it grows from there");
    }
}

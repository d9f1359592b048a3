//! Whether this node has traffic: a mark that requests set and the heartbeat reads.
//!
//! A request that finds the mark set does nothing; one that finds it unset sets it and rings. The reader clears it, and
//! so knows of each stretch between two readings whether there was any. Of when exactly it knows only the stretch, and
//! says its beginning: nobody counts as engaged for longer than its last request allows.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use honeyflow_runtime::Moment;

/// Cheap to clone; one per node, shared by all that have traffic.
#[derive(Clone, Default)]
pub struct Traffic(Arc<Mark>);

#[derive(Default)]
struct Mark {
    seen: AtomicBool,
    /// Wakes the heartbeat after a pause.
    bell: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Traffic {
    /// `ring` is called by the first request after a pause, on its thread: it must not block.
    pub fn new(ring: impl Fn() + Send + Sync + 'static) -> Traffic {
        Traffic(Arc::new(Mark { seen: AtomicBool::new(false), bell: Some(Box::new(ring)) }))
    }

    /// There is a request, or work was found. No lock, no allocation, no I/O.
    #[inline]
    pub fn mark(&self) {
        if !self.0.seen.load(Ordering::Relaxed) {
            self.first();
        }
    }

    #[cold]
    fn first(&self) {
        // Many may come at once; one rings.
        if !self.0.seen.swap(true, Ordering::Relaxed)
            && let Some(ring) = &self.0.bell
        {
            ring();
        }
    }

    /// Whether there was any since the last time this was asked.
    pub fn take(&self) -> bool {
        self.0.seen.swap(false, Ordering::Relaxed)
    }
}

/// The reader's side: how old the last traffic is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LastTraffic {
    at: Option<Moment>,
    read_at: Option<Moment>,
}

impl LastTraffic {
    /// The age to send with a beat; none if there never was any. `rung` says that the mark was just set after a pause.
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

    /// HV-27: the age is never less than the true one.
    #[test]
    fn hv_27_the_age_of_the_last_traffic_counts_from_the_earliest_it_can_be() {
        let traffic = Traffic::default();
        let mut last = LastTraffic::default();
        let at = Moment::from_millis;
        assert_eq!(last.read(&traffic, false, at(1_000)), None);
        traffic.mark();
        assert_eq!(last.read(&traffic, true, at(1_500)), Some(Duration::ZERO), "it rang just now");
        traffic.mark();
        assert_eq!(last.read(&traffic, false, at(3_500)), Some(Duration::from_secs(2)), "since the last reading");
        assert_eq!(last.read(&traffic, false, at(33_500)), Some(Duration::from_secs(32)), "and ages from there");
    }
}

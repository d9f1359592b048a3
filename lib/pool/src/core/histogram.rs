//! A histogram of times in fixed memory, with an error of at most 1.6 %: 64 buckets per doubling.

use std::time::Duration;

const STEPS_BITS: u32 = 6;
const STEPS: usize = 1 << STEPS_BITS;
/// Covers times up to 2^27 µs, about two minutes; a longer time counts as that.
const DOUBLINGS: usize = 22;
const BUCKETS: usize = STEPS * DOUBLINGS;

/// Counts of times. An empty histogram allocates nothing until the first time is recorded.
#[derive(Clone, Default)]
pub struct Histogram {
    counts: Option<Box<[u32; BUCKETS]>>,
    count: u64,
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} times, median {:?}, p99 {:?}", self.count, self.quantile(0.5), self.quantile(0.99))
    }
}

impl Histogram {
    /// An empty histogram that is already allocated, so that recording never allocates.
    pub fn with_room() -> Histogram {
        Histogram { counts: Some(Box::new([0; BUCKETS])), count: 0 }
    }

    pub fn record(&mut self, time: Duration) {
        self.record_micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    #[inline]
    pub fn record_micros(&mut self, micros: u64) {
        let counts = self.counts.get_or_insert_with(|| Box::new([0; BUCKETS]));
        let count = &mut counts[bucket_of(micros)];
        *count = count.saturating_add(1);
        self.count += 1;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest time that this share of all times does not exceed; zero if the histogram is empty.
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().flat_map(|counts| counts.iter()).enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return Duration::from_micros(middle_of(bucket));
            }
        }
        Duration::ZERO
    }

    /// Returns the times since the last call and empties the histogram.
    pub fn take(&mut self) -> Histogram {
        std::mem::take(self)
    }

    /// Copies another histogram, without an allocation if this one is allocated.
    pub fn copy(&mut self, other: &Histogram) {
        match (&mut self.counts, &other.counts) {
            (Some(counts), Some(others)) => counts.copy_from_slice(&others[..]),
            (counts, others) => counts.clone_from(others),
        }
        self.count = other.count;
    }
}

#[inline]
fn bucket_of(micros: u64) -> usize {
    if micros < STEPS as u64 {
        return micros as usize;
    }
    let doubling = micros.ilog2() - STEPS_BITS;
    let step = (micros >> doubling) as usize - STEPS;
    (STEPS * (doubling as usize + 1) + step).min(BUCKETS - 1)
}

fn middle_of(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let doubling = bucket / STEPS - 1;
    let low = ((bucket % STEPS + STEPS) as u64) << doubling;
    low + (1_u64 << doubling) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PL-72
    #[test]
    fn pl_72_recorded_times_are_within_two_percent_in_fixed_memory() {
        for micros in (0..27).flat_map(|bits| [1_u64 << bits, (1 << bits) + (1 << bits) / 3]) {
            let mut histogram = Histogram::default();
            histogram.record(Duration::from_micros(micros));
            let shown = histogram.quantile(0.5).as_micros() as f64;
            assert!((shown - micros as f64).abs() <= micros as f64 * 0.02, "{micros} µs shown as {shown}");
        }
        let mut histogram = Histogram::default();
        histogram.record(Duration::from_secs(86_400));
        assert_eq!(histogram.count(), 1);
        assert_eq!(histogram.take().count(), 1);
        assert_eq!((histogram.count(), histogram.quantile(0.99)), (0, Duration::ZERO));
    }

    #[test]
    fn quantiles_follow_the_shares() {
        let mut histogram = Histogram::default();
        for millis in 1..=100 {
            histogram.record(Duration::from_millis(millis));
        }
        let near = |share: f64, millis: f64| {
            let shown = histogram.quantile(share).as_secs_f64() * 1000.0;
            assert!((shown - millis).abs() < millis * 0.02, "{share}: {shown}");
        };
        near(0.5, 50.0);
        near(0.99, 99.0);
        near(1.0, 100.0);
    }
}

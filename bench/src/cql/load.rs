//! A fixed number of requests at a time, for a fixed time: the throughput, the 99th percentile, and the processor time
//! of this process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

use super::side::Side;
use crate::Result;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Put,
    Get,
}

pub struct LoadResult {
    pub per_second: f64,
    pub p99_us: f64,
    /// Processor time of this process, in microseconds per request.
    pub cpu_us: f64,
}

const KEYS: i64 = 10_000;

pub async fn run<S: Side>(side: &Arc<S>, operation: Operation, at_a_time: u32, time: Duration) -> Result<LoadResult> {
    let next = Arc::new(AtomicI64::new(0));
    let (begun, spent) = (Instant::now(), processor_time());
    let until = begun + time;
    let workers: Vec<_> = (0..at_a_time)
        .map(|_| {
            let (side, next) = (side.clone(), next.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                loop {
                    let now = Instant::now();
                    if now >= until {
                        return Ok::<_, crate::Error>(times);
                    }
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let id = (n % KEYS) as i32;
                    match operation {
                        Operation::Put => side.put(id, n).await?,
                        Operation::Get => side.get(id).await?,
                    }
                    times.push(now.elapsed().as_nanos() as u64);
                }
            })
        })
        .collect();
    let mut times = Vec::new();
    for worker in workers {
        times.extend(worker.await??);
    }
    let (took, spent) = (begun.elapsed().as_secs_f64(), processor_time() - spent);
    times.sort_unstable();
    let count = times.len().max(1);
    let p99 = times.get((count * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default();
    Ok(LoadResult { per_second: count as f64 / took, p99_us: p99 as f64 / 1000.0, cpu_us: spent * 1e6 / count as f64 })
}

/// The processor time of all threads of this process, in seconds.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

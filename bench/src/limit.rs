//! The local check of a limit against governor: `check-1` and `check-2` (on one and two threads), `check-keyed`, and
//! `engaged-layer` against one check of governor. `clock` is the cost of our cached time, `clock-exact` the cost of
//! reading the clock.
//!
//! Each side has enough permits, as for nearly every request of a healthy service.

use std::{
    hint::black_box,
    num::NonZeroU32,
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use governor::{Quota, RateLimiter};
use honeyflow_hive::{
    NodeId, Traffic,
    limit::{Config, Definition, Limit, Limits, Service, clock::LocalClock},
};
use honeyflow_hive_layer::EngagedLayer;
use honeyflow_hive_memory::MemoryHive;
use http::Request;
use uuid::Uuid;

use crate::{
    Result,
    figure::{Better, Measurement, Reporter, median},
};

#[derive(clap::Args)]
pub struct Options {
    /// Number of checks in each run, for each thread
    #[arg(long, default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(10_000..100_000_000))]
    checks: u64,
    /// Number of keys of `check-keyed`
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..1_000_000))]
    keys: u32,
}

/// The sides take turns after this number of checks, so that both see the same conditions; threads that must run at the
/// same time need longer slices.
const SLICE: u64 = 20_000;
const SLICE_OF_THREADS: u64 = 200_000;
/// Batches of this quota live for half an hour and hold as many permits as a batch can.
const QUOTA: &str = "1000000000/h burst 1000000000";
const STOCK: u64 = 8_000_000;
const STOCK_OF_A_KEY: u64 = 4_000;
const PEER: &str = "governor";

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    let runtime = crate::runtime()?;
    let limits = runtime.block_on(async { start() });
    let governor = RateLimiter::direct(Quota::per_second(NonZeroU32::MAX));
    let theirs = |_: u64| black_box(governor.check().is_ok());
    let comparison = Comparison { runs: reporter.runs, checks: options.checks, threads: 1 };
    let clock = LocalClock::default();
    let readings: [(_, Side<'_>); 2] =
        [("clock", &|_| black_box(clock.soon_ns()) > 0), ("clock-exact", &|_| black_box(clock.now_ns()) > 0)];
    for (figure, reading) in readings {
        if reporter.wants(figure) {
            let [ours] = comparison.run(|| Ok(()), [reading])?;
            reporter.report(&Measurement { figure, unit: "ns", better: Better::Lower, ours, peer: None });
        }
    }
    let direct = limits.define(&Definition::parse("direct", QUOTA)?)?;
    for (figure, threads) in [("check-1", 1), ("check-2", 2)] {
        if reporter.wants(figure) {
            let fill = || runtime.block_on(stock(&direct, "", STOCK));
            let ours = |_: u64| black_box(direct.whole().take_local(1).is_some());
            report(reporter, figure, Comparison { threads, ..comparison }.run(fill, [&ours, &theirs])?);
        }
    }
    if reporter.wants("check-keyed") {
        let keys: Vec<String> = (0..options.keys).map(|n| format!("client-{n:06}")).collect();
        let keyed = limits.define(&Definition::parse("keyed", QUOTA)?.keys_max(keys.len() + 1))?;
        let peer = RateLimiter::keyed(Quota::per_second(NonZeroU32::MAX));
        runtime.block_on(stock(&keyed, "", 1))?;
        runtime.block_on(stream::iter(&keys).for_each_concurrent(500, |key| async {
            // A key that was not filled shows when a permit is taken from it.
            let _ = stock(&keyed, key, STOCK_OF_A_KEY).await;
        }));
        keys.iter().for_each(|key| drop(peer.check_key(key)));
        // The order is arbitrary, as long as neighbours are far apart; it is computed before the clock runs.
        let order: Vec<u32> = (0..1_u64 << 20).map(|n| (scattered(n) % u64::from(options.keys)) as u32).collect();
        let key = |n: u64| &keys[order[(n % (1 << 20)) as usize] as usize];
        let ours = |n: u64| black_box(keyed.key(key(n)).take_local(1).is_some());
        let theirs = |n: u64| black_box(peer.check_key(key(n)).is_ok());
        report(reporter, "check-keyed", comparison.run(|| Ok(()), [&ours, &theirs])?);
    }
    if reporter.wants("engaged-layer") {
        let layer = EngagedLayer::new(Traffic::default());
        let request = Request::builder().method("POST").uri("/orders/17").body(())?;
        let ours = |_: u64| {
            let request = black_box(&request);
            layer.mark_request(request.method(), request.uri().path());
            true
        };
        report(reporter, "engaged-layer", comparison.run(|| Ok(()), [&ours, &theirs])?);
    }
    Ok(())
}

fn report(reporter: &mut Reporter, figure: &'static str, [ours, theirs]: [Vec<f64>; 2]) {
    reporter.report(&Measurement { figure, unit: "ns", better: Better::Lower, ours, peer: Some((PEER, theirs)) });
}

fn start() -> Limits {
    let begun = Instant::now();
    let hive = MemoryHive::new(move || 200_000_000_000 + u64::try_from(begun.elapsed().as_millis()).unwrap_or(0));
    let (service, limits) = Service::new(Config::new(Arc::new(hive), NodeId(Uuid::new_v4())));
    tokio::spawn(service.run(std::future::pending()));
    limits.set_node_counts(1, 1);
    limits
}

/// Makes sure that at least `permits / 2` permits are in the local batch: takes them and refunds them unused.
async fn stock(limit: &Limit, key: &str, permits: u64) -> Result<()> {
    let key = limit.key(key);
    if key.peek().left >= permits / 2 && key.take_local(1).is_some() {
        return Ok(());
    }
    key.take(permits, Duration::from_secs(60)).await?.refund(permits);
    Ok(())
}

/// splitmix64
fn scattered(n: u64) -> u64 {
    let mixed = (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (n << 7)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ (mixed >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 17
}

#[derive(Clone, Copy)]
struct Comparison {
    runs: u32,
    checks: u64,
    threads: u64,
}

type Side<'a> = &'a (dyn Fn(u64) -> bool + Sync);

impl Comparison {
    /// Nanoseconds per check of each side, one value per run.
    fn run<const N: usize>(self, prepare: impl Fn() -> Result<()>, sides: [Side<'_>; N]) -> Result<[Vec<f64>; N]> {
        let length = if self.threads == 1 { SLICE } else { SLICE_OF_THREADS };
        let mut values = [const { Vec::new() }; N];
        for _ in 0..self.runs {
            let mut slices = [const { Vec::new() }; N];
            for slice in 0..self.checks.div_ceil(length) {
                prepare()?;
                for (at, side) in sides.iter().enumerate() {
                    slices[at].push(self.slice(slice * length, length, *side)?.as_nanos() as f64 / length as f64);
                }
            }
            // Other programs on this machine disturb some slices; the median is one without.
            for (values, slices) in values.iter_mut().zip(slices) {
                values.push(median(&slices));
            }
        }
        Ok(values)
    }

    /// Returns the time of the slowest thread.
    fn slice(self, from: u64, length: u64, side: Side<'_>) -> Result<Duration> {
        let start = Barrier::new(usize::try_from(self.threads)?);
        let run_thread = |thread: u64| {
            start.wait();
            let begun = Instant::now();
            let mut taken = 0;
            for n in from..from + length {
                taken += u64::from(side(n * self.threads + thread));
            }
            (begun.elapsed(), taken)
        };
        let results: Vec<(Duration, u64)> = if self.threads == 1 {
            vec![run_thread(0)]
        } else {
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..self.threads).map(|thread| scope.spawn(move || run_thread(thread))).collect();
                threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
            })
        };
        if results.iter().any(|(_, taken)| *taken < length) {
            return Err("a check was refused: refusals cost something else".into());
        }
        Ok(results.into_iter().map(|(spent, _)| spent).max().unwrap_or_default())
    }
}

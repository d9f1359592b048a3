//! The checkout and return of a connection, on 16 connections that do nothing, in nanoseconds: `one-task-…` by one
//! task, `tasks-…` by the number of tasks in the name, `held-…` with the loan kept across a yield, `changing` by one
//! task while the settings change ten times a second. `fairness-…`: how long 1,024 tasks wait for their turn.
//!
//! The floor is the least work that any such pool does: a semaphore, a queue behind a lock, and two readings of the
//! clock.

use std::{
    collections::VecDeque,
    convert::Infallible,
    hint::black_box,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use honeyflow_pool::{
    Connection, Connector, Limits, Pool, Provider, RequestOptions, Server, Settings, SettingsError, Verdict,
    clock::CounterClock,
};
use honeyflow_runtime::Clock as _;
use tokio::sync::Semaphore;

use crate::{
    Result,
    figure::{Better, Measurement, Reporter, median},
};

#[derive(clap::Args)]
pub struct Options {
    /// Number of checkouts in each run, for each side
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(10_000..100_000_000))]
    uses: u64,
}

const CONNECTIONS: u32 = 16;
/// The sides take turns after this number of checkouts, so that both see the same conditions.
const SLICE: u64 = 100_000;
const WITHIN: Duration = Duration::from_secs(60);

/// A pool as this bench sees it.
trait Side: Send + Sync + 'static {
    /// Takes a connection, yields if `held`, and gives it back. Returns how long the checkout took, if `timed`.
    fn use_once(&self, held: bool, timed: bool) -> impl Future<Output = Duration> + Send;
}

struct NoopConnection;

impl Connection for NoopConnection {
    fn broken(&self) -> bool {
        false
    }

    async fn closed(&self) {
        std::future::pending::<()>().await;
    }

    async fn probe(&self, _: tokio::time::Instant) -> bool {
        true
    }

    async fn close(&self, _: tokio::time::Instant) {}
}

struct NoopConnector;

impl Connector for NoopConnector {
    type Connection = NoopConnection;
    type Error = Infallible;

    async fn connect(&self, _: &Server, _: Limits) -> std::result::Result<NoopConnection, Infallible> {
        Ok(NoopConnection)
    }

    async fn discover(&self, _: &NoopConnection) -> std::result::Result<Vec<Server>, Infallible> {
        Ok(Vec::new())
    }

    fn verdict(&self, error: &Infallible) -> Verdict {
        match *error {}
    }
}

impl bb8::ManageConnection for NoopConnector {
    type Connection = NoopConnection;
    type Error = Infallible;

    async fn connect(&self) -> std::result::Result<NoopConnection, Infallible> {
        Ok(NoopConnection)
    }

    async fn is_valid(&self, _: &mut NoopConnection) -> std::result::Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut NoopConnection) -> bool {
        false
    }
}

impl deadpool::managed::Manager for NoopConnector {
    type Type = NoopConnection;
    type Error = Infallible;

    async fn create(&self) -> std::result::Result<NoopConnection, Infallible> {
        Ok(NoopConnection)
    }

    async fn recycle(
        &self,
        _: &mut NoopConnection,
        _: &deadpool::managed::Metrics,
    ) -> deadpool::managed::RecycleResult<Infallible> {
        Ok(())
    }
}

/// A provider whose settings differ at every call.
struct ChangingSettings {
    settings: Settings,
    calls: AtomicU32,
}

impl Provider for ChangingSettings {
    fn settings(&self) -> std::result::Result<Settings, SettingsError> {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(Settings { tries: 1 + calls % 2, ..self.settings.clone() })
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(Duration::from_millis(100)))
    }
}

struct Floor {
    permits: Semaphore,
    idle: Mutex<VecDeque<Arc<NoopConnection>>>,
    clock: CounterClock,
}

impl Side for Floor {
    async fn use_once(&self, held: bool, timed: bool) -> Duration {
        let begun = timed.then(Instant::now);
        black_box(self.clock.now());
        let Ok(permit) = self.permits.acquire().await else { return Duration::ZERO };
        let taken = self.idle.lock().ok().and_then(|mut idle| idle.pop_front());
        let waited = begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        if held {
            tokio::task::yield_now().await;
        }
        black_box(self.clock.now());
        if let Ok(mut idle) = self.idle.lock() {
            idle.extend(taken);
        }
        drop(permit);
        waited
    }
}

/// Implements `Side` for a pool whose loan comes back when it is dropped. A macro, so that no side's future is wrapped
/// in another one.
macro_rules! side {
    ($pool:ty, $self:ident, $take:expr) => {
        impl Side for $pool {
            async fn use_once(&$self, held: bool, timed: bool) -> Duration {
                let begun = timed.then(Instant::now);
                let taken = $take.await;
                let waited = begun.map_or(Duration::ZERO, |begun| begun.elapsed());
                if held {
                    tokio::task::yield_now().await;
                }
                black_box(taken.is_ok());
                waited
            }
        }
    };
}

side!(Pool<NoopConnector>, self, self.get(RequestOptions::within(WITHIN)));
side!(bb8::Pool<NoopConnector>, self, self.get());
side!(deadpool::managed::Pool<NoopConnector>, self, self.get());

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    let runtime = crate::runtime()?;
    let guard = runtime.enter();
    let settings = Settings {
        servers: vec!["127.0.0.1:1".to_owned()],
        discovery: false,
        start_jitter: Duration::ZERO,
        slow_start: Duration::ZERO,
        connections_per_server: Some(CONNECTIONS),
        ..Settings::default()
    };
    let ours = Arc::new(Pool::start(NoopConnector, settings.clone())?);
    let changing = Arc::new(Pool::start(NoopConnector, ChangingSettings { settings, calls: AtomicU32::new(0) })?);
    for pool in [&ours, &changing] {
        let by = tokio::time::Instant::now() + WITHIN;
        if !runtime.block_on(pool.control().ready(CONNECTIONS, by)) {
            return Err("the pool did not fill".into());
        }
    }
    let bb8 = bb8::Pool::builder().max_size(CONNECTIONS).min_idle(CONNECTIONS).connection_timeout(WITHIN);
    let bb8 = Arc::new(runtime.block_on(bb8.build(NoopConnector))?);
    let deadpool = deadpool::managed::Pool::builder(NoopConnector).max_size(CONNECTIONS as usize);
    let deadpool = Arc::new(deadpool.build()?);
    let floor = Arc::new(Floor {
        permits: Semaphore::new(CONNECTIONS as usize),
        idle: Mutex::new((0..CONNECTIONS).map(|_| Arc::new(NoopConnection)).collect()),
        clock: CounterClock::default(),
    });
    drop(guard);
    let comparison = Comparison { runtime: &runtime, runs: reporter.runs, uses: options.uses, tasks: 1, held: false };
    if reporter.wants("one-task-bb8") {
        report(reporter, "one-task-bb8", "bb8", comparison.run(&ours, &bb8)?);
    }
    if reporter.wants("one-task-deadpool") {
        report(reporter, "one-task-deadpool", "deadpool", comparison.run(&ours, &deadpool)?);
    }
    if reporter.wants("changing") {
        report(reporter, "changing", "steady settings", comparison.run(&changing, &ours)?);
    }
    let floors = [
        ("one-task-floor", 1, false),
        ("tasks-64-floor", 64, false),
        ("tasks-1024-floor", 1024, false),
        ("held-64-floor", 64, true),
        ("held-1024-floor", 1024, true),
    ];
    for (figure, tasks, held) in floors {
        if reporter.wants(figure) {
            report(reporter, figure, "floor", Comparison { tasks, held, ..comparison }.run(&ours, &floor)?);
        }
    }
    if reporter.wants("fairness") {
        fairness(reporter, Comparison { tasks: 1024, held: true, ..comparison }, &ours, &deadpool)?;
    }
    Ok(())
}

fn report(reporter: &mut Reporter, figure: &'static str, peer: &'static str, [ours, theirs]: [Vec<f64>; 2]) {
    reporter.report(&Measurement { figure, unit: "ns", better: Better::Lower, ours, peer: Some((peer, theirs)) });
}

#[derive(Clone, Copy)]
struct Comparison<'a> {
    runtime: &'a tokio::runtime::Runtime,
    runs: u32,
    uses: u64,
    tasks: u64,
    held: bool,
}

impl Comparison<'_> {
    /// Returns the nanoseconds per checkout of each side, one value per run.
    fn run(self, ours: &Arc<impl Side>, theirs: &Arc<impl Side>) -> Result<[Vec<f64>; 2]> {
        let mut values = [Vec::new(), Vec::new()];
        for _ in 0..self.runs {
            let mut slices = [Vec::new(), Vec::new()];
            for _ in 0..self.uses.div_ceil(SLICE) {
                slices[0].push(self.slice(ours, false)?.0);
                slices[1].push(self.slice(theirs, false)?.0);
            }
            for (values, slices) in values.iter_mut().zip(slices) {
                values.push(median(&slices));
            }
        }
        Ok(values)
    }

    /// Returns the nanoseconds per checkout and, if `timed`, each task's waiting times.
    fn slice(self, side: &Arc<impl Side>, timed: bool) -> Result<(f64, Vec<Duration>)> {
        let (held, each) = (self.held, SLICE.div_ceil(self.tasks));
        let running = async {
            let begun = Instant::now();
            let tasks: Vec<_> = (0..self.tasks)
                .map(|_| {
                    let side = side.clone();
                    tokio::spawn(async move {
                        let mut waits = Vec::with_capacity(if timed { each as usize } else { 0 });
                        for _ in 0..each {
                            let waited = side.use_once(held, timed).await;
                            if timed {
                                waits.push(waited);
                            }
                        }
                        waits
                    })
                })
                .collect();
            let mut waits = Vec::new();
            for task in tasks {
                waits.append(&mut task.await?);
            }
            Result::Ok((begun.elapsed().as_nanos() as f64 / (each * self.tasks) as f64, waits))
        };
        self.runtime.block_on(running)
    }
}

/// Reports one 99th percentile and one maximum of the waiting times per run and side.
fn fairness(
    reporter: &mut Reporter,
    comparison: Comparison<'_>,
    ours: &Arc<impl Side>,
    theirs: &Arc<impl Side>,
) -> Result<()> {
    let mut p99 = [Vec::new(), Vec::new()];
    let mut max = [Vec::new(), Vec::new()];
    for _ in 0..comparison.runs {
        let mut slices = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
        for _ in 0..comparison.uses.div_ceil(SLICE) {
            let waits = [comparison.slice(ours, true)?.1, comparison.slice(theirs, true)?.1];
            for (side, mut waits) in waits.into_iter().enumerate() {
                waits.sort_unstable();
                let micros = |at: usize| waits.get(at).map_or(f64::NAN, |wait| wait.as_nanos() as f64 / 1000.0);
                slices[0][side].push(micros(waits.len() * 99 / 100));
                slices[1][side].push(micros(waits.len() - 1));
            }
        }
        for side in 0..2 {
            p99[side].push(median(&slices[0][side]));
            max[side].push(median(&slices[1][side]));
        }
    }
    for (figure, [ours, theirs]) in [("fairness-p99-deadpool", p99), ("fairness-max-deadpool", max)] {
        let peer = Some(("deadpool", theirs));
        reporter.report(&Measurement { figure, unit: "µs", better: Better::Lower, ours, peer });
    }
    Ok(())
}

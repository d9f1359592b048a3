//! Faults, and how soon the pool reacts: on a cluster in memory and a paused clock, counted at its servers.

use std::{
    future::Future,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use honeyflow_pool::{
    Connection, Connector, Drain, Limits, Loan, Pool, Provider, RequestOptions, Server, ServerState, Settings,
    SettingsError, Verdict,
    clock::TokioClock,
    settings::{SpeculateAfter, Start},
    testing::memory::{self, Memory},
};
use tokio::{
    sync::Notify,
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep},
};

use crate::eventually;

const SECOND: Duration = Duration::from_secs(1);

fn of(servers: u16) -> Settings {
    Settings {
        servers: (1..=servers).map(|port| format!("127.0.0.1:{port}")).collect(),
        discovery: false,
        slow_start: Duration::ZERO,
        connections_per_server: Some(2),
        decay_per_billion: Some(0),
        ..Settings::default()
    }
}

async fn full(cluster: &Memory, servers: u16) -> Pool<Memory> {
    let pool = cluster.pool(of(servers), 7).expect("good settings");
    assert!(pool.control().ready(u32::from(servers) * 2, Instant::now() + 10 * SECOND).await);
    pool
}

fn server(at: u16) -> Server {
    Server::at(([127, 0, 0, 1], 1 + at).into())
}

fn state(pool: &Pool<Memory>, at: u16) -> ServerState {
    let status = pool.status();
    status.servers.iter().find(|one| one.server == server(at)).map_or(ServerState::Leaving, |one| one.state)
}

/// A number of callers that each send one request after the other, and counters of their results.
struct Load {
    callers: Vec<JoinHandle<()>>,
    done: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    times: Arc<Mutex<Vec<Duration>>>,
}

impl Load {
    fn start<F, Fut>(callers: usize, ask: F) -> Load
    where
        F: Fn(usize) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = bool> + Send + 'static,
    {
        let mut load =
            Load { callers: Vec::new(), done: Arc::default(), failed: Arc::default(), times: Arc::default() };
        let (ask, turn) = (Arc::new(ask), Arc::new(AtomicUsize::new(0)));
        let caller = |_| {
            let (ask, turn) = (ask.clone(), turn.clone());
            let (done, failed, times) = (load.done.clone(), load.failed.clone(), load.times.clone());
            tokio::spawn(async move {
                loop {
                    let begun = Instant::now();
                    let good = ask(turn.fetch_add(1, Ordering::SeqCst)).await;
                    done.fetch_add(1, Ordering::SeqCst);
                    failed.fetch_add(usize::from(!good), Ordering::SeqCst);
                    times.lock().unwrap().push(begun.elapsed());
                }
            })
        };
        load.callers = (0..callers).map(caller).collect();
        load
    }

    fn on(pool: &Pool<Memory>, callers: usize, idempotent: bool) -> Load {
        let pool = pool.clone();
        Load::start(callers, move |_| {
            let want = if idempotent { RequestOptions::default().idempotent() } else { RequestOptions::default() };
            let pool = pool.clone();
            async move { pool.with(want, |loan| memory::ask(loan, "x")).await.is_ok() }
        })
    }

    fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    fn failed(&self) -> usize {
        self.failed.load(Ordering::SeqCst)
    }

    /// The 99th percentile of the request times since the last call.
    fn p99(&self) -> Duration {
        let mut times = std::mem::take(&mut *self.times.lock().unwrap());
        times.sort_unstable();
        times.get(times.len() * 99 / 100).copied().unwrap_or_default()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.callers.iter().for_each(JoinHandle::abort);
    }
}

/// The number of requests that reached each of three servers.
fn asked(cluster: &Memory) -> [usize; 3] {
    [0, 1, 2].map(|at| cluster.host(at).asked())
}

/// The first server's share of the requests since `before`.
fn share(cluster: &Memory, before: [usize; 3]) -> f64 {
    let now = asked(cluster);
    let since: Vec<f64> = (0..3).map(|at| (now[at] - before[at]) as f64).collect();
    since[0] / since.iter().sum::<f64>()
}

fn delayed(servers: usize, streams: u32, delay: Duration) -> Memory {
    let cluster = Memory::new(servers, streams);
    (0..servers).for_each(|at| cluster.host(at).delay(delay));
    cluster
}

/// PL-160: idempotent requests notice nothing.
#[tokio::test(start_paused = true)]
async fn pl_160_a_killed_server_is_down_within_a_second_and_full_soon_after_it_is_back() {
    let cluster = delayed(3, 100, Duration::from_millis(20));
    let pool = full(&cluster, 3).await;
    let load = Load::on(&pool, 16, true);
    sleep(SECOND).await;
    cluster.host(0).stop();
    sleep(SECOND).await;
    assert_eq!(state(&pool, 0), ServerState::Down);
    sleep(20 * SECOND).await;
    cluster.host(0).restart();
    sleep(10 * SECOND).await;
    assert_eq!((state(&pool, 0), cluster.host(0).open()), (ServerState::Up, 2));
    let before = asked(&cluster);
    sleep(SECOND).await;
    assert!(share(&cluster, before) > 0.25, "it has its share again");
    assert_eq!(load.failed(), 0, "of {}", load.done());
}

/// PL-161
#[tokio::test(start_paused = true)]
async fn pl_161_a_server_that_stands_still_is_left_closed_and_taken_back_in_time() {
    let cluster = delayed(3, 100, Duration::from_millis(20));
    let (pool, other) = (full(&cluster, 3).await, full(&cluster.again(), 3).await);
    let load = Load::on(&pool, 64, true);
    sleep(2 * SECOND).await;
    cluster.host(0).silent(true);
    let stopped = Instant::now();
    sleep(Duration::from_millis(1500)).await;
    let before = asked(&cluster);
    sleep(SECOND).await;
    let after = share(&cluster, before);
    assert!(after <= 0.01, "{:.2} % still went there", after * 100.0);
    drop(load);
    // A drain does not wait for it longer than its time limit.
    let hung = tokio::spawn({
        let other = other.clone();
        async move {
            other.with(RequestOptions::within(60 * SECOND).on(&server(0)), |loan| memory::ask(loan, "x")).await.is_ok()
        }
    });
    while other.status().lent == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    let begun = Instant::now();
    let (_, drained) = other.control().close(Drain::within(SECOND)).await;
    assert!(begun.elapsed() <= SECOND + Duration::from_millis(5), "{:?}", begun.elapsed());
    assert_eq!((drained.aborted, hung.await.unwrap()), (1, false));
    tokio::time::sleep_until(stopped + 15 * SECOND).await;
    assert_eq!(state(&pool, 0), ServerState::Down, "{:?}", pool.status());
    tokio::time::sleep_until(stopped + 60 * SECOND).await;
    cluster.host(0).silent(false);
    sleep(10 * SECOND).await;
    assert_eq!((state(&pool, 0), cluster.host(0).open()), (ServerState::Up, 2));
}

/// A cluster whose answers take 20 ms, and a pool that hedges after 80 ms.
async fn speculating(servers: u16) -> (Memory, Pool<Memory>) {
    let cluster = delayed(servers.into(), 100, Duration::from_millis(20));
    let speculate_after = SpeculateAfter::Time(Duration::from_millis(80));
    let pool = cluster.pool(Settings { speculate_after, ..of(servers) }, 7).expect("good settings");
    assert!(pool.control().ready(u32::from(servers) * 2, Instant::now() + 10 * SECOND).await);
    (cluster, pool)
}

/// PL-85 PL-161: hedges rescue all callers in time, and the server is suspect all the same, also over connections that
/// do not report their requests in flight.
#[tokio::test(start_paused = true)]
async fn pl_85_a_server_that_stands_still_is_suspect_although_others_answer_for_it() {
    for tells in [true, false] {
        let (cluster, pool) = speculating(3).await;
        let load = {
            let pool = pool.clone();
            Load::start(64, move |_| {
                let (pool, want) = (pool.clone(), RequestOptions::within(2 * SECOND).idempotent());
                let ask = move |loan: Loan<Memory>| async move {
                    if tells { memory::ask(loan, "x").await } else { loan.ask("x").await }
                };
                async move { pool.with(want, ask).await.is_ok() }
            })
        };
        sleep(2 * SECOND).await;
        cluster.host(0).silent(true);
        sleep(3 * SECOND).await;
        assert_eq!(state(&pool, 0), ServerState::Suspect, "{tells}: {:?}", pool.status());
        assert_eq!(load.failed(), 0, "of {}", load.done());
    }
}

/// PL-85 PL-161: hedges also rescue more stuck requests than the budget holds, while no new request earns a hedge.
#[tokio::test(start_paused = true)]
async fn pl_85_stuck_requests_are_rescued_although_the_hedge_budget_is_used_up() {
    let (cluster, pool) = speculating(3).await;
    cluster.host(0).silent(true);
    let asked: Vec<_> = (0..250)
        .map(|_| {
            let pool = pool.clone();
            let want = RequestOptions::within(2 * SECOND).idempotent();
            tokio::spawn(async move { pool.with(want, |loan| memory::ask(loan, "x")).await })
        })
        .collect();
    for answer in asked {
        assert_eq!(answer.await.unwrap().unwrap(), "x");
    }
    assert!(pool.counters().speculations > 60, "{:?}", pool.counters());
}

/// PL-85 PL-90: an error names both servers that got the request at the same time.
#[tokio::test(start_paused = true)]
async fn pl_90_an_error_names_all_servers_that_did_not_answer() {
    let (cluster, pool) = speculating(2).await;
    [0, 1].into_iter().for_each(|host| cluster.host(host).silent(true));
    let want = RequestOptions::within(2 * SECOND).idempotent();
    let error = pool.with(want, |loan| memory::ask(loan, "x")).await.unwrap_err();
    let named = [error.server.clone().unwrap(), error.silent[0].clone()];
    assert!(named == [server(0), server(1)] || named == [server(1), server(0)], "{error:?}");
    assert!(error.to_string().contains(&format!("; no answer from {}", named[1])), "{error}");
}

/// PL-87 PL-140: after a goodbye a server answers no heartbeat on the connection, but still answers its requests.
#[tokio::test(start_paused = true)]
async fn pl_87_a_goodbye_during_a_heartbeat_loses_no_answer() {
    let cluster = delayed(1, 10, 30 * SECOND);
    let pool = cluster.pool(Settings { connections_per_server: Some(1), ..of(1) }, 7).expect("good settings");
    assert!(pool.control().ready(1, Instant::now() + 10 * SECOND).await);
    let asking = tokio::spawn({
        let pool = pool.clone();
        async move { pool.with(RequestOptions::within(60 * SECOND), |loan| memory::ask(loan, "x")).await }
    });
    sleep(SECOND).await;
    cluster.host(0).silent(true);
    while cluster.host(0).probed() == 0 {
        sleep(Duration::from_millis(10)).await;
    }
    // The heartbeat was sent and is not answered.
    cluster.host(0).say_goodbye();
    sleep(Duration::from_millis(10)).await;
    cluster.host(0).silent(false);
    assert_eq!(asking.await.unwrap().unwrap(), "x");
    assert_eq!((cluster.host(0).accepted(), pool.counters().use_errors), (2, 0), "replaced all the same");
}

/// PL-14 PL-140: a server that says goodbye after every few answers, also refusals, is redialled without a pause.
#[tokio::test(start_paused = true)]
async fn pl_14_a_server_that_answers_may_say_goodbye_as_often_as_it_likes() {
    for (streams, word) in [(1, "x"), (10, "x"), (10, "refuse")] {
        let cluster = delayed(1, streams, Duration::ZERO);
        let pool = cluster.pool(Settings { connections_per_server: Some(1), ..of(1) }, 7).expect("good settings");
        for goodbyes in 1..=20 {
            assert!(pool.control().ready(1, Instant::now() + 10 * SECOND).await);
            let said = pool.with(RequestOptions::within(SECOND), |loan| memory::ask(loan, word)).await;
            assert_eq!(said.is_ok(), word == "x");
            cluster.host(0).say_goodbye();
            eventually("it is dialled again", || cluster.host(0).accepted() > goodbyes).await;
        }
        assert_eq!(pool.counters().dead_idle, 0, "no failure is counted: {word} on {streams}");
    }
}

/// PL-164: one server does not accept connections, another accepts and stays silent.
#[tokio::test(start_paused = true)]
async fn pl_164_silence_while_connecting_is_bounded_backed_off_and_affects_no_other_server() {
    let cluster = delayed(3, 1, Duration::from_millis(20));
    cluster.host(0).delay_connects(3600 * SECOND);
    cluster.host(1).silent(true);
    let pool = cluster.pool(of(3), 7).expect("good settings");
    assert!(pool.control().ready(2, Instant::now() + SECOND).await, "the third is there at once");
    let load = Load::on(&pool, 4, false);
    let mut told = [false; 2];
    for _ in 0..600 {
        sleep(SECOND / 10).await;
        let status = pool.status();
        for (at, told) in told.iter_mut().enumerate() {
            let one = status.servers.iter().find(|one| one.server == server(at as u16)).expect("in the ring");
            assert!(one.state == ServerState::Down && one.opening <= 2, "{one:?}");
            *told |= one.next_try.is_some() && one.last_error.is_some();
        }
    }
    assert_eq!(told, [true; 2], "the status shows the back-off and its reason");
    assert_eq!((load.failed(), cluster.host(2).open()), (0, 2), "of {}", load.done());
    assert!(load.p99() <= Duration::from_millis(50), "requests do not wait for the silent servers");
    let tries = cluster.host(1).accepted();
    assert!((16..=48).contains(&tries), "{tries} tries in a minute, two at a time, at most 2.5 s each");
    cluster.host(0).delay_connects(Duration::ZERO);
    cluster.host(1).silent(false);
    assert!(pool.control().ready(6, Instant::now() + 10 * SECOND).await);
}

/// PL-168
#[tokio::test(start_paused = true)]
async fn pl_168_an_overloaded_server_is_passed_by_within_the_retry_budget() {
    let cluster = delayed(3, 100, Duration::from_millis(20));
    let pool = full(&cluster, 3).await;
    let load = Load::on(&pool, 32, false);
    sleep(2 * SECOND).await;
    cluster.host(0).overloaded_every(2);
    sleep(10 * SECOND).await;
    let before = asked(&cluster);
    sleep(10 * SECOND).await;
    let after = share(&cluster, before);
    let (counters, done) = (pool.counters(), load.done());
    assert_eq!(load.failed(), 0, "of {done}");
    assert!(counters.retries > 0 && counters.retries as usize * 5 <= done, "{} of {done}", counters.retries);
    assert!(after < 0.33, "{:.1} % still goes there", after * 100.0);
}

/// PL-183: compared with round-robin, the choice without a memory of latencies. A bench compares with the peer itself.
#[tokio::test(start_paused = true)]
async fn pl_183_one_slow_server_of_three_costs_little() {
    for callers in [16, 256] {
        let run = async |by_turns: bool| {
            let cluster = delayed(3, 200, Duration::from_millis(20));
            let pool = full(&cluster, 3).await;
            let load = if by_turns {
                let pool = pool.clone();
                Load::start(callers, move |turn| {
                    let want = RequestOptions::default().on(&server((turn % 3) as u16));
                    let pool = pool.clone();
                    async move { pool.with(want, |loan| memory::ask(loan, "x")).await.is_ok() }
                })
            } else {
                Load::on(&pool, callers, true)
            };
            sleep(SECOND).await;
            cluster.host(0).delay(Duration::from_millis(220));
            let before = load.done();
            sleep(2 * SECOND).await;
            load.p99();
            sleep(3 * SECOND).await;
            (load.p99(), load.done() - before)
        };
        let ((ours, done), (theirs, by_turns)) = (run(false).await, run(true).await);
        assert!(ours.as_secs_f64() <= theirs.as_secs_f64() * 0.3, "p99 of {callers}: {ours:?}, by turns {theirs:?}");
        assert!(done * 2 >= by_turns * 3, "{done} of {callers}, by turns {by_turns}");
    }
}

/// PL-185: pooled exclusive connections reach nearly the throughput of bare ones.
#[tokio::test(start_paused = true)]
async fn pl_185_a_pool_of_exclusive_connections_does_what_bare_ones_do() {
    let cluster = delayed(1, 1, Duration::from_millis(5));
    let pool = full(&cluster, 1).await;
    let pooled = Load::on(&pool, 2, false);
    sleep(10 * SECOND).await;
    let done = pooled.done();
    drop(pooled);
    let limits = Limits { tcp: SECOND, ready: SECOND, write: SECOND, silence: SECOND };
    let mut links = Vec::new();
    for _ in 0..2 {
        links.push(cluster.connect(&server(0), limits).await.expect("it is there"));
    }
    let links = Arc::new(links);
    let bare = Load::start(2, move |turn| {
        let links = links.clone();
        async move { links[turn % 2].ask("x").await.is_ok() }
    });
    sleep(10 * SECOND).await;
    assert!(done * 100 >= bare.done() * 95, "{done} pooled, {} bare", bare.done());
}

/// A provider whose settings a test can change, and which reports the change.
struct LiveSettings {
    now: Mutex<Settings>,
    changed: Notify,
}

impl LiveSettings {
    fn set(&self, settings: Settings) {
        *self.now.lock().unwrap() = settings;
        self.changed.notify_one();
    }
}

impl Provider for LiveSettings {
    fn settings(&self) -> Result<Settings, SettingsError> {
        Ok(self.now.lock().unwrap().clone())
    }

    fn changed(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.changed.notified())
    }
}

/// PL-81 PL-71: both the expiry task and the caller may report it first.
#[tokio::test(start_paused = true)]
async fn pl_81_a_use_that_is_not_answered_counts_once() {
    for streams in [1, 64] {
        let cluster = Memory::new(3, streams);
        let pool = full(&cluster, 3).await;
        for number in 1..=5 {
            let want = RequestOptions::within(Duration::from_millis(100)).on(&server(0));
            pool.with(want, |loan| memory::ask(loan, "hang")).await.unwrap_err();
            assert!(pool.control().ready(6, Instant::now() + 10 * SECOND).await);
            assert_eq!(pool.counters().use_timeouts, number, "{streams} streams");
            let expected = if number < 5 { ServerState::Up } else { ServerState::Suspect };
            assert_eq!(state(&pool, 0), expected, "{streams} streams, {number} times");
        }
        // Only the expiry task reports a loan that its caller keeps past the deadline.
        if streams == 1 {
            let kept = pool.get(RequestOptions::within(Duration::from_millis(100)).on(&server(1))).await.unwrap();
            sleep(SECOND).await;
            drop(kept);
            assert_eq!(pool.counters().use_timeouts, 6);
        }
    }
}

/// PL-81: the holder of a loan from `get` reports its errors with `judge`.
#[tokio::test(start_paused = true)]
async fn pl_81_the_holder_of_a_loan_reports_its_errors() {
    let cluster = Memory::new(3, 64);
    let pool = full(&cluster, 3).await;
    for (word, at, suspected) in [("refuse", 0, false), ("overloaded", 1, true)] {
        for _ in 0..5 {
            assert_eq!(state(&pool, at), ServerState::Up);
            let mut loan = pool.get(RequestOptions::default().on(&server(at))).await.unwrap();
            let error = loan.ask(word).await.unwrap_err();
            loan.judge(&error);
            loan.judge(&error);
        }
        assert_eq!(state(&pool, at) == ServerState::Suspect, suspected, "{word}");
    }
    assert_eq!((pool.counters().use_errors, pool.counters().suspicions), (10, 1));
}

fn looking(servers: u16) -> Settings {
    // With long limits, a connect that hangs is not ended by them.
    let (tcp_timeout, handshake_timeout) = (60 * SECOND, 60 * SECOND);
    Settings { discovery: true, start_jitter: Duration::ZERO, tcp_timeout, handshake_timeout, ..of(servers) }
}

/// PL-14 PL-50
#[tokio::test(start_paused = true)]
async fn pl_50_a_server_that_answers_one_round_and_hangs_up_is_not_dialled_without_a_pause() {
    let cluster = Memory::new(1, 1);
    let host = cluster.host(0).clone();
    host.knows(&[server(0)]);
    let _pool = cluster.pool(Settings { start: Start::Inactive, ..looking(1) }, 7).unwrap();
    let hanging_up = tokio::spawn({
        let host = host.clone();
        async move {
            loop {
                sleep(Duration::from_millis(1)).await;
                host.restart();
            }
        }
    });
    sleep(20 * SECOND).await;
    assert!((8..=13).contains(&host.accepted()), "dialled {} times in 20 s", host.accepted());
    hanging_up.abort();
}

/// PL-5 PL-6: all sockets close, also those of connects in progress and of discovery.
#[tokio::test(start_paused = true)]
async fn pl_5_a_disabled_pool_has_no_socket() {
    for streams in [1, 64] {
        // Silent from the start: all connects hang.
        let cluster = Memory::new(1, streams);
        let host = cluster.host(0).clone();
        host.silent(true);
        let pool = cluster.pool(looking(1), 7).unwrap();
        sleep(SECOND).await;
        assert!(host.open() >= 2, "{}", host.open());
        pool.control().disable(Drain::within(Duration::ZERO)).await;
        assert_eq!((host.open(), pool.status().servers[0].opening), (0, 0));
        // During a round.
        let cluster = Memory::new(1, streams);
        let host = cluster.host(0).clone();
        host.knows(&[server(0)]);
        let pool = cluster.pool(looking(1), 7).unwrap();
        assert!(pool.control().ready(2, Instant::now() + 10 * SECOND).await);
        let asked = host.asked_who();
        sleep(SECOND).await;
        host.silent(true);
        pool.control().refresh();
        sleep(Duration::from_millis(10)).await;
        assert_eq!((host.asked_who(), host.open()), (asked.max(1) + 1, 3));
        pool.control().disable(Drain::within(Duration::ZERO)).await;
        assert_eq!(host.open(), 0);
        let accepted = host.accepted();
        host.silent(false);
        sleep(10 * SECOND).await;
        assert_eq!((host.open(), host.accepted()), (0, accepted), "and opens none");
    }
}

/// PL-50: a round that is asked for during a healthy round runs after it, and does not break it.
#[tokio::test(start_paused = true)]
async fn pl_50_asking_for_a_round_does_not_break_a_healthy_one() {
    let cluster = Memory::new(1, 1);
    let host = cluster.host(0).clone();
    host.knows(&[server(0)]);
    host.delay(Duration::from_millis(100));
    let pool = cluster.pool(Settings { start: Start::Inactive, ..looking(1) }, 7).unwrap();
    sleep(SECOND).await;
    assert_eq!((host.asked_who(), host.accepted()), (1, 1));
    for _ in 0..3 {
        pool.control().refresh();
        sleep(Duration::from_millis(50)).await;
    }
    sleep(SECOND).await;
    assert_eq!(host.accepted(), 1, "the same connection");
    assert_eq!((host.asked_who(), pool.counters().rounds_ok, pool.counters().rounds_failed), (3, 3, 0));
    // A round that hangs is given up.
    host.silent(true);
    pool.control().refresh();
    sleep(2 * SECOND).await;
    pool.control().refresh();
    sleep(Duration::from_millis(10)).await;
    assert_eq!(host.accepted(), 2, "another connection");
}

/// PL-169: ten thousand callers a second that leave at any time, and ten changes of settings a second, good and bad.
#[tokio::test(start_paused = true)]
async fn pl_169_callers_that_leave_and_settings_that_change_leave_nothing_behind() {
    for streams in [1, 8] {
        let cluster = delayed(1, streams, Duration::from_millis(3));
        cluster.host(0).delay_connects(Duration::from_millis(5));
        let sized = |size| Settings { connections_per_server: Some(size), max_orphans: 4, ..of(1) };
        let live = Arc::new(LiveSettings { now: Mutex::new(sized(3)), changed: Notify::new() });
        let pool = Pool::start_with(cluster.clone(), live.clone(), TokioClock::default(), 7).expect("good settings");
        assert!(pool.control().ready(3, Instant::now() + SECOND).await);
        let (mut random, mut callers, mut orphans) = (7_u64, JoinSet::new(), 0);
        for milli in 0..2000_u32 {
            for _ in 0..10 {
                let pool = pool.clone();
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let leaves_after = Duration::from_micros((random >> 40) % 8000);
                callers.spawn(async move {
                    let using = pool.with(RequestOptions::within(SECOND), |loan| memory::ask(loan, "x"));
                    let _ = tokio::time::timeout(leaves_after, using).await;
                });
            }
            if milli % 100 == 0 {
                let size = [3, 6, 1][milli as usize / 100 % 3];
                let bad = milli % 400 == 300;
                live.set(if bad { Settings { tries: 0, ..sized(50) } } else { sized(size) });
            }
            sleep(Duration::from_millis(1)).await;
            while callers.try_join_next().is_some() {}
            orphans = orphans.max(pool.status().servers[0].orphans);
        }
        while callers.join_next().await.is_some() {}
        // A connection with more than 4 orphans is replaced, and one at a time is being replaced.
        assert!(orphans <= 8 * streams, "{orphans} orphans at a time");
        for size in [6, 1, 3] {
            live.set(sized(size));
            sleep(SECOND + Duration::from_millis(50)).await;
            assert_eq!(cluster.host(0).open(), size as usize, "the size follows");
        }
        let (status, counters) = (pool.status(), pool.counters());
        let one = &status.servers[0];
        assert_eq!((status.lent, one.orphans, status.waiting, status.closing), (0, 0, [0; 3], 0), "{status:?}");
        assert_eq!((status.open, status.idle, counters.checkouts - counters.checkins), (3, 3, 0));
    }
}

/// A connector whose connects fail with "too many open files" until `over` is set.
#[derive(Clone, Default)]
struct ExhaustedConnector {
    over: Arc<AtomicBool>,
    tried: Arc<AtomicUsize>,
}

struct NullConnection;

impl Connection for NullConnection {
    fn broken(&self) -> bool {
        false
    }

    async fn closed(&self) {
        std::future::pending::<()>().await;
    }

    async fn probe(&self, _: Instant) -> bool {
        true
    }

    async fn close(&self, _: Instant) {}
}

impl Connector for ExhaustedConnector {
    type Connection = NullConnection;
    type Error = io::Error;

    async fn connect(&self, _: &Server, _: Limits) -> io::Result<NullConnection> {
        self.tried.fetch_add(1, Ordering::SeqCst);
        const TOO_MANY_OPEN_FILES: i32 = 24;
        if self.over.load(Ordering::SeqCst) {
            Ok(NullConnection)
        } else {
            Err(io::Error::from_raw_os_error(TOO_MANY_OPEN_FILES))
        }
    }

    async fn discover(&self, _: &NullConnection) -> io::Result<Vec<Server>> {
        Ok(vec![server(0).named("a"), server(1).named("b")])
    }

    fn verdict(&self, _: &io::Error) -> Verdict {
        Verdict::unreachable()
    }
}

/// PL-170: while no socket can be opened, the pool retries slowly and reports the reason.
#[tokio::test(start_paused = true)]
async fn pl_170_a_limit_of_open_files_is_waited_for_without_spinning() {
    for discovery in [false, true] {
        let exhausted = ExhaustedConnector::default();
        let settings = Settings { discovery, ..of(2) };
        let pool = Pool::start_with(exhausted.clone(), settings, TokioClock::default(), 7).expect("good settings");
        sleep(60 * SECOND).await;
        // Two connects at a time to each of two servers, with waits of at most 5 s and 2.5 s on average; a round every
        // 2 s.
        let tries = exhausted.tried.load(Ordering::SeqCst);
        assert!((20..=400).contains(&tries), "{tries} tries in a minute");
        let error = pool.get(RequestOptions::within(SECOND)).await.unwrap_err();
        assert!(error.to_string().contains("127.0.0.1:1: Too many open files"), "{error}");
        exhausted.over.store(true, Ordering::SeqCst);
        assert!(pool.control().ready(4, Instant::now() + 6 * SECOND).await, "{:?}", pool.status());
    }
}

/// PL-170: a step of the wall clock has no effect, since the pool never reads it.
#[test]
fn pl_170_the_wall_clock_is_never_read() {
    fn look(folder: &std::path::Path) -> usize {
        let entries = std::fs::read_dir(folder).expect("the crate's own sources");
        entries.fold(0, |seen, entry| {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                return seen + look(&path);
            }
            let text = std::fs::read_to_string(&path).expect("text");
            assert!(!text.contains("SystemTime") && !text.contains("UNIX_EPOCH"), "{}", path.display());
            seen + 1
        })
    }
    assert!(look(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) > 40);
}

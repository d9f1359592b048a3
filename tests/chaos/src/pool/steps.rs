//! One fault after the other on three Cassandra nodes behind proxies, each with its expected result. Shares and sizes
//! are counted at the proxies; the replicas are those that Cassandra's own tool names.

mod replicas;
mod stopped;

use std::time::{Duration, Instant};

use honeyflow_cassandra::{Consistency, Session};
use honeyflow_pool::{ServerState, settings::SpeculateAfter};
use serde::Serialize;

use super::{
    PATIENCE, REFILL_WITHIN, TestedSession,
    fault_target::proxy_address,
    load::{Load, Tally, WITHIN},
    nodes::Nodes,
    proxy::LinkMode,
};

/// What a step tests, and what it has seen.
#[derive(Serialize)]
pub struct Step {
    pub id: &'static str,
    pub what: &'static str,
    pub holds: bool,
    pub seen: String,
}

const CALLERS: i32 = 64;
const DELAY: Duration = Duration::from_millis(200);
/// How long a slow server may still get its full share of requests.
const ONSET: Duration = Duration::from_secs(2);
const WATCHED: Duration = Duration::from_secs(5);
/// The step is repeated up to this number of times: on a busy machine, a server that really was slower than the others
/// is rightly suspect.
const REPETITIONS_MAX: usize = 3;
const SHARE_MAX: f64 = 0.007;
const SEEN_WITHIN: Duration = Duration::from_secs(5);
const ALL_GONE: Duration = Duration::from_secs(10);

/// # Errors
/// Returns what kept the steps from running.
pub fn run() -> Result<Vec<Step>, String> {
    let mut nodes = Nodes::start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(play(&mut nodes))
}

async fn play(nodes: &mut Nodes) -> Result<Vec<Step>, String> {
    let session = open(nodes, SpeculateAfter::Time(Duration::from_millis(100)))?;
    nodes.create_table(&session).await?;
    let mut steps = vec![replicas::cq_11_compare(nodes, &session).await?];
    print_last(&steps);
    let load = Load::start(&session, CALLERS, Consistency::LocalQuorum).await?;
    let tested = TestedSession::new(session, 3);
    full(&tested, nodes, PATIENCE).await.ok_or("the pool was not full at the beginning")?;
    steps.push(pl_162_one_slow(nodes, &tested).await);
    print_last(&steps);
    steps.push(pl_162_all_slow(nodes, &tested).await);
    print_last(&steps);
    steps.push(pl_160_one_killed(nodes, &tested, &load.tally).await?);
    print_last(&steps);
    steps.push(pl_161_one_stopped(nodes, &tested, &load.tally).await?);
    print_last(&steps);
    steps.push(pl_167_come_and_go(nodes, &tested, &load.tally).await?);
    print_last(&steps);
    steps.push(pl_163_all_gone(nodes, &tested).await?);
    print_last(&steps);
    load.stop().await;
    drop(tested);
    steps.push(stopped::pl_184_measure(nodes).await?);
    print_last(&steps);
    Ok(steps)
}

fn print_last(steps: &[Step]) {
    if let Some(step) = steps.last() {
        let holds = if step.holds { "holds" } else { "DOES NOT HOLD" };
        eprintln!("{} {}: {holds}: {}", step.id, step.what, step.seen);
    }
}

fn open(nodes: &Nodes, speculate_after: SpeculateAfter) -> Result<Session, String> {
    let mut translate = nodes.translate();
    // Translates also the addresses of servers that join later.
    for number in 4..=5 {
        let address =
            nodes.cluster().addresses().first().map(|first| (std::net::Ipv4Addr::new(127, 0, 0, number), first.port()));
        translate.table.extend(address.map(|address| (address.into(), proxy_address(address.into()))));
    }
    let settings = honeyflow_pool::Settings {
        servers: nodes.seeds(),
        translate,
        speculate_after,
        ..honeyflow_pool::Settings::default()
    };
    Session::open(honeyflow_cassandra::connection::Settings::default(), settings).map_err(|error| error.to_string())
}

/// Returns how long it took until the pool was full again, counted at the proxies.
async fn full(tested: &TestedSession, nodes: &Nodes, within: Duration) -> Option<Duration> {
    until(within, || tested.is_full_at(nodes.open())).await
}

async fn until(within: Duration, there: impl Fn() -> bool) -> Option<Duration> {
    let begun = Instant::now();
    while !there() {
        if begun.elapsed() > within {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Some(begun.elapsed())
}

async fn pl_162_one_slow(nodes: &Nodes, tested: &TestedSession) -> Step {
    nodes.proxies()[2].set(LinkMode::Late(DELAY));
    tokio::time::sleep(ONSET).await;
    let (share, all) = share_of(2, nodes).await;
    nodes.proxies()[2].set(LinkMode::Open);
    let back = until(PATIENCE, || tested.states().iter().all(|state| *state == ServerState::Up)).await;
    Step {
        id: "PL-162",
        what: "one server is 200 ms away: its share of the requests after two seconds",
        holds: share <= SHARE_MAX && back.is_some(),
        seen: format!("{:.2} % of {all}, trusted again after {back:?}", share * 100.0),
    }
}

async fn pl_162_all_slow(nodes: &Nodes, tested: &TestedSession) -> Step {
    let mut periods = Vec::new();
    while periods.len() < REPETITIONS_MAX && periods.last() != Some(&0) {
        // The pool needs this time to forget the delays before.
        tokio::time::sleep(WATCHED).await;
        nodes.proxies().iter().for_each(|proxy| proxy.set(LinkMode::Late(DELAY)));
        let begun = Instant::now();
        let mut suspect = 0;
        while begun.elapsed() < ONSET + WATCHED {
            suspect += tested.states().iter().filter(|state| **state == ServerState::Suspect).count();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        nodes.proxies().iter().for_each(|proxy| proxy.set(LinkMode::Open));
        periods.push(suspect);
    }
    Step {
        id: "PL-162",
        what: "all servers are 200 ms away: no server is suspect",
        holds: periods.last() == Some(&0),
        seen: format!("suspects seen in periods of {:?}, checked every 50 ms: {periods:?}", ONSET + WATCHED),
    }
}

async fn pl_160_one_killed(nodes: &mut Nodes, tested: &TestedSession, tally: &Tally) -> Result<Step, String> {
    let before = tally.failures();
    let killed = Instant::now();
    nodes.kill(1)?;
    let seen = until(REFILL_WITHIN, || tested.states().contains(&ServerState::Down)).await;
    let down = seen.map(|_| killed.elapsed());
    nodes.start_all(&[1]).await?;
    let full = full(tested, nodes, REFILL_WITHIN).await;
    let failed = tally.failures() - before;
    Ok(Step {
        id: "PL-160",
        what: "one server is killed and started again",
        holds: down.is_some() && full.is_some() && failed == 0,
        seen: format!("down after {down:?}, full {full:?} after it is back, {failed} idempotent requests failed"),
    })
}

async fn pl_161_one_stopped(nodes: &Nodes, tested: &TestedSession, tally: &Tally) -> Result<Step, String> {
    let before = tally.failures();
    nodes.pause(2)?;
    let stopped = Instant::now();
    tokio::time::sleep(ONSET).await;
    let (share, all) = share_of(2, nodes).await;
    let seen = until(PATIENCE, || tested.states().contains(&ServerState::Down)).await;
    let closed = seen.map(|_| stopped.elapsed());
    nodes.resume(2)?;
    let full = full(tested, nodes, PATIENCE).await;
    let failed = tally.failures() - before;
    Ok(Step {
        id: "PL-161",
        what: "one server stands still: its share after two seconds, its connections, and its return",
        holds: share <= SHARE_MAX && closed.is_some() && full.is_some() && failed == 0,
        seen: format!(
            "{:.2} % of {all}; its connections closed after {closed:?}, full {full:?} after it goes on, {failed} \
             idempotent requests failed",
            share * 100.0
        ),
    })
}

/// The share of the requests that goes to one server during [`WATCHED`], and the number of all requests.
async fn share_of(number: usize, nodes: &Nodes) -> (f64, u64) {
    let before = nodes.requests();
    tokio::time::sleep(WATCHED).await;
    let during: Vec<u64> = nodes.requests().iter().zip(&before).map(|(after, before)| after - before).collect();
    let all = during.iter().sum::<u64>();
    (during[number] as f64 / all.max(1) as f64, all)
}

async fn pl_167_come_and_go(nodes: &mut Nodes, tested: &TestedSession, tally: &Tally) -> Result<Step, String> {
    let before = tally.failures();
    let servers = |count: usize| move |tested: &TestedSession| tested.states().len() == count;
    nodes.join().await?;
    let joined = until(SEEN_WITHIN, || servers(4)(tested)).await;
    nodes.leave().await?;
    let left = until(SEEN_WITHIN, || servers(3)(tested)).await;
    let full = full(tested, nodes, REFILL_WITHIN).await;
    let failed = tally.failures() - before;
    Ok(Step {
        id: "PL-167",
        what: "a fourth server joins and is decommissioned again",
        holds: joined.is_some() && left.is_some() && full.is_some() && failed == 0,
        seen: format!(
            "seen after {joined:?}, gone after {left:?}, full after {full:?}, {failed} idempotent requests failed"
        ),
    })
}

async fn pl_163_all_gone(nodes: &mut Nodes, tested: &TestedSession) -> Result<Step, String> {
    nodes.kill_all()?;
    let down = until(REFILL_WITHIN, || tested.states().iter().all(|state| *state == ServerState::Down)).await;
    let statement =
        tested.session.prepare("SELECT n FROM chaos.t WHERE id = ?").await.map_err(|error| error.to_string())?;
    let (mut slowest_status, mut longest) = (Duration::ZERO, Duration::ZERO);
    let (begun, mut answered) = (Instant::now(), 0);
    while begun.elapsed() < ALL_GONE {
        let began = Instant::now();
        drop(tested.session.pool().status());
        slowest_status = slowest_status.max(began.elapsed());
        let options = honeyflow_cassandra::Options::within(WITHIN).idempotent();
        let began = Instant::now();
        answered += u32::from(tested.session.execute(&statement, (1_i32,), &options).await.is_ok());
        longest = longest.max(began.elapsed());
    }
    nodes.start_all(&[2, 0, 1]).await?;
    let full = full(tested, nodes, PATIENCE).await;
    Ok(Step {
        id: "PL-163",
        what: "all servers are killed, and started again in another order",
        holds: down.is_some() && answered == 0 && longest < WITHIN * 2 && full.is_some(),
        seen: format!(
            "down after {down:?}; then {answered} answers, the longest request {longest:?}, the slowest status \
             {slowest_status:?}; full {full:?} after the last start"
        ),
    })
}

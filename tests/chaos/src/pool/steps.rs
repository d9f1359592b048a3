//! One fault after the other on three nodes of Cassandra behind proxies, and what must come of each. Shares and sizes are
//! counted at the proxies, replicas are those that the server's own tool names.

mod replicas;
mod stopped;

use std::time::{Duration, Instant};

use honeyflow_cassandra::{Consistency, Session};
use honeyflow_pool::{ServerState, settings::SpeculateAfter};
use serde::Serialize;

use super::{
    Field, PATIENCE, REFILL_AT_MOST,
    ground::stand_in,
    load::{Load, Tally, WITHIN},
    nodes::Nodes,
    proxy::Way,
};

/// What was looked at, and what was seen.
#[derive(Serialize)]
pub struct Step {
    pub id: &'static str,
    pub what: &'static str,
    pub holds: bool,
    pub seen: String,
}

const CALLERS: i32 = 64;
const DELAY: Duration = Duration::from_millis(200);
/// How long a slow server may still be asked as before.
const ONSET: Duration = Duration::from_secs(2);
const WATCHED: Duration = Duration::from_secs(5);
/// A server that really was slower than the others, as on a machine with much else to do, is suspect for good reason.
const SPELLS: usize = 3;
const SHARE_MAX: f64 = 0.007;
const SEEN_WITHIN: Duration = Duration::from_secs(5);
const ALL_GONE: Duration = Duration::from_secs(10);

/// # Errors
/// What kept them from being carried out at all.
pub fn run() -> Result<Vec<Step>, String> {
    let mut nodes = Nodes::start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(play(&mut nodes))
}

async fn play(nodes: &mut Nodes) -> Result<Vec<Step>, String> {
    let session = open(nodes, SpeculateAfter::Time(Duration::from_millis(100)))?;
    nodes.furnish(&session).await?;
    let mut steps = vec![replicas::cq_11_compare(nodes, &session).await?];
    tell(&steps);
    let load = Load::start(&session, CALLERS, Consistency::LocalQuorum).await?;
    let field = Field::new(session, 3);
    full(&field, nodes, PATIENCE).await.ok_or("the pool was not full at the beginning")?;
    steps.push(pl_162_one_slow(nodes, &field).await);
    tell(&steps);
    steps.push(pl_162_all_slow(nodes, &field).await);
    tell(&steps);
    steps.push(pl_160_one_killed(nodes, &field, &load.tally).await?);
    tell(&steps);
    steps.push(pl_161_one_stopped(nodes, &field, &load.tally).await?);
    tell(&steps);
    steps.push(pl_167_come_and_go(nodes, &field, &load.tally).await?);
    tell(&steps);
    steps.push(pl_163_all_gone(nodes, &field).await?);
    tell(&steps);
    load.stop().await;
    drop(field);
    steps.push(stopped::pl_184_measure(nodes).await?);
    tell(&steps);
    Ok(steps)
}

fn tell(steps: &[Step]) {
    if let Some(step) = steps.last() {
        let holds = if step.holds { "holds" } else { "DOES NOT HOLD" };
        eprintln!("{} {}: {holds}: {}", step.id, step.what, step.seen);
    }
}

fn open(nodes: &Nodes, speculate_after: SpeculateAfter) -> Result<Session, String> {
    let mut translate = nodes.translate();
    // Of whoever joins, too.
    for number in 4..=5 {
        let address =
            nodes.cluster().addresses().first().map(|first| (std::net::Ipv4Addr::new(127, 0, 0, number), first.port()));
        translate.table.extend(address.map(|address| (address.into(), stand_in(address.into()))));
    }
    let settings = honeyflow_pool::Settings {
        servers: nodes.seeds(),
        translate,
        speculate_after,
        ..honeyflow_pool::Settings::default()
    };
    Session::open(honeyflow_cassandra::connection::Settings::default(), settings).map_err(|error| error.to_string())
}

/// How long until the pool had its size again, counted at the proxies.
async fn full(field: &Field, nodes: &Nodes, within: Duration) -> Option<Duration> {
    until(within, || field.is_full_at(nodes.open())).await
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

async fn pl_162_one_slow(nodes: &Nodes, field: &Field) -> Step {
    nodes.proxies()[2].set(Way::Late(DELAY));
    tokio::time::sleep(ONSET).await;
    let (share, all) = share_of(2, nodes).await;
    nodes.proxies()[2].set(Way::Open);
    let back = until(PATIENCE, || field.states().iter().all(|state| *state == ServerState::Up)).await;
    Step {
        id: "PL-162",
        what: "one server is 200 ms away: what share of the requests goes there after two seconds",
        holds: share <= SHARE_MAX && back.is_some(),
        seen: format!("{:.2} % of {all}, trusted again after {back:?}", share * 100.0),
    }
}

async fn pl_162_all_slow(nodes: &Nodes, field: &Field) -> Step {
    let mut spells = Vec::new();
    while spells.len() < SPELLS && spells.last() != Some(&0) {
        // What came before is to be forgotten by then.
        tokio::time::sleep(WATCHED).await;
        nodes.proxies().iter().for_each(|proxy| proxy.set(Way::Late(DELAY)));
        let begun = Instant::now();
        let mut suspect = 0;
        while begun.elapsed() < ONSET + WATCHED {
            suspect += field.states().iter().filter(|state| **state == ServerState::Suspect).count();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        nodes.proxies().iter().for_each(|proxy| proxy.set(Way::Open));
        spells.push(suspect);
    }
    Step {
        id: "PL-162",
        what: "all servers are 200 ms away: nobody is suspect",
        holds: spells.last() == Some(&0),
        seen: format!("suspects seen in spells of {:?}, looked every 50 ms: {spells:?}", ONSET + WATCHED),
    }
}

async fn pl_160_one_killed(nodes: &mut Nodes, field: &Field, tally: &Tally) -> Result<Step, String> {
    let before = tally.failures();
    let killed = Instant::now();
    nodes.kill(1)?;
    let seen = until(REFILL_AT_MOST, || field.states().contains(&ServerState::Down)).await;
    let down = seen.map(|_| killed.elapsed());
    nodes.start_all(&[1]).await?;
    let full = full(field, nodes, REFILL_AT_MOST).await;
    let failed = tally.failures() - before;
    Ok(Step {
        id: "PL-160",
        what: "one server is killed and started again",
        holds: down.is_some() && full.is_some() && failed == 0,
        seen: format!("down after {down:?}, full {full:?} after it is back, {failed} idempotent requests failed"),
    })
}

async fn pl_161_one_stopped(nodes: &Nodes, field: &Field, tally: &Tally) -> Result<Step, String> {
    let before = tally.failures();
    nodes.pause(2)?;
    let stopped = Instant::now();
    tokio::time::sleep(ONSET).await;
    let (share, all) = share_of(2, nodes).await;
    let seen = until(PATIENCE, || field.states().contains(&ServerState::Down)).await;
    let closed = seen.map(|_| stopped.elapsed());
    nodes.resume(2)?;
    let full = full(field, nodes, PATIENCE).await;
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

/// What part of the requests goes to a server for a while, and how many there were.
async fn share_of(number: usize, nodes: &Nodes) -> (f64, u64) {
    let before = nodes.requests();
    tokio::time::sleep(WATCHED).await;
    let during: Vec<u64> = nodes.requests().iter().zip(&before).map(|(after, before)| after - before).collect();
    let all = during.iter().sum::<u64>();
    (during[number] as f64 / all.max(1) as f64, all)
}

async fn pl_167_come_and_go(nodes: &mut Nodes, field: &Field, tally: &Tally) -> Result<Step, String> {
    let before = tally.failures();
    let servers = |count: usize| move |field: &Field| field.states().len() == count;
    nodes.join().await?;
    let joined = until(SEEN_WITHIN, || servers(4)(field)).await;
    nodes.leave().await?;
    let left = until(SEEN_WITHIN, || servers(3)(field)).await;
    let full = full(field, nodes, REFILL_AT_MOST).await;
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

async fn pl_163_all_gone(nodes: &mut Nodes, field: &Field) -> Result<Step, String> {
    nodes.kill_all()?;
    let down = until(REFILL_AT_MOST, || field.states().iter().all(|state| *state == ServerState::Down)).await;
    let statement =
        field.session.prepare("SELECT n FROM chaos.t WHERE id = ?").await.map_err(|error| error.to_string())?;
    let (mut slowest_status, mut longest) = (Duration::ZERO, Duration::ZERO);
    let (begun, mut answered) = (Instant::now(), 0);
    while begun.elapsed() < ALL_GONE {
        let asked = Instant::now();
        drop(field.session.pool().status());
        slowest_status = slowest_status.max(asked.elapsed());
        let how = honeyflow_cassandra::Options::within(WITHIN).idempotent();
        let asked = Instant::now();
        answered += u32::from(field.session.execute(&statement, (1_i32,), &how).await.is_ok());
        longest = longest.max(asked.elapsed());
    }
    nodes.start_all(&[2, 0, 1]).await?;
    let full = full(field, nodes, PATIENCE).await;
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

//! A session under load on failing servers. Prints the status of its pool every second:
//! `cargo run -p honeyflow-cassandra --example misbehave`.
//!
//! With addresses as arguments, it writes to and reads from those servers, in a keyspace `misbehave` that it creates.
//! Without, it starts three nodes of Cassandra; after some seconds it stops one of them (SIGSTOP), continues it later,
//! then kills another one and starts it again.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use honeyflow_cassandra::{Consistency, Options, Session};
use honeyflow_pool::{Drain, Section, ServerState};
use honeyflow_services::Cassandras;
use tokio::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const CALLERS: i32 = 16;

/// The faults: the time in seconds after the load began, the action, and the node.
const PLAN: [(u64, &str, usize); 4] = [(4, "stop", 1), (14, "continue", 1), (22, "kill", 2), (26, "start", 2)];
/// How many seconds the program continues after all nodes are up again; a node takes some time to start.
const REST: u64 = 5;

#[derive(Default)]
struct Answers {
    good: AtomicU64,
    failed: AtomicU64,
    /// The slowest answer in microseconds.
    slowest: AtomicU64,
    /// The number of hedged requests at the last status line.
    hedged: AtomicU64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let named: Vec<SocketAddr> =
        std::env::args().skip(1).map(|word| word.parse()).collect::<std::result::Result<_, _>>()?;
    let own = if named.is_empty() {
        println!("starting three nodes");
        Some(Arc::new(Mutex::new(tokio::task::spawn_blocking(|| Cassandras::start(3)).await??)))
    } else {
        None
    };
    let addresses = |nodes: &Arc<Mutex<Cassandras>>| nodes.lock().unwrap_or_else(PoisonError::into_inner).addresses();
    let servers = own.as_ref().map_or(named, addresses);
    let settings = format!(
        "[cassandra]\nservers = {:?}\nspeculate-after = \"50ms\"\n",
        servers.iter().map(ToString::to_string).collect::<Vec<_>>()
    );
    print!("{settings}");
    let session = Session::configured(Section::from_toml(&settings, "cassandra")?)?;
    let patient = Options::within(Duration::from_secs(60)).idempotent();
    let replicas = servers.len().min(3);
    for statement in [
        format!(
            "CREATE KEYSPACE IF NOT EXISTS misbehave WITH replication = \
             {{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"
        ),
        "CREATE TABLE IF NOT EXISTS misbehave.t (id int PRIMARY KEY, n int)".to_owned(),
    ] {
        session.query(&statement, &patient).await?;
    }
    let answers = Arc::new(Answers::default());
    let callers: Vec<_> = (0..CALLERS).map(|id| tokio::spawn(call(session.clone(), id, answers.clone()))).collect();
    watch(&session, own.as_ref(), &answers).await;
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    let counted = session.pool().counters();
    let (hedged, won, silent) = (counted.speculations, counted.speculations_won, counted.use_timeouts);
    println!(
        "{hedged} requests were hedged, and the second one was faster {won} times; {silent} had no answer in time"
    );
    println!("closed: {:?}", session.pool().control().close(Drain::within(Duration::from_secs(5))).await.1);
    Ok(())
}

/// Writes and reads one key in a loop.
async fn call(session: Session, id: i32, answers: Arc<Answers>) -> Result<()> {
    let put = session.prepare("INSERT INTO misbehave.t (id, n) VALUES (?, ?)").await?;
    let get = session.prepare("SELECT n FROM misbehave.t WHERE id = ?").await?;
    let how = Options::within(Duration::from_secs(2)).consistency(Consistency::LocalQuorum).idempotent();
    for n in 0.. {
        let begun = Instant::now();
        let done = match session.execute(&put, (id, n), &how).await {
            Ok(_) => session.execute(&get, (id,), &how).await.map(drop),
            Err(error) => Err(error),
        };
        let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        answers.slowest.fetch_max(took, Ordering::Relaxed);
        match done {
            Ok(()) => answers.good.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                println!("        {error}");
                answers.failed.fetch_add(1, Ordering::Relaxed)
            }
        };
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn watch(session: &Session, own: Option<&Arc<Mutex<Cassandras>>>, answers: &Answers) {
    let begun = Instant::now();
    let last = PLAN.iter().map(|(at, _, _)| *at).max().unwrap_or_default();
    let mut rested = 0;
    for second in 1.. {
        tokio::time::sleep_until(begun + Duration::from_secs(second)).await;
        show(session, second, answers);
        let all_up = session.pool().status().servers.iter().all(|server| server.state == ServerState::Up);
        rested = if all_up && second > last { rested + 1 } else { 0 };
        if own.is_some() && rested > REST {
            return;
        }
        for (_, what, node) in PLAN.into_iter().filter(|(at, _, _)| *at == second) {
            if let Some(nodes) = own.cloned() {
                // Starting a node takes a while; the status is printed meanwhile.
                tokio::task::spawn_blocking(move || act(&nodes, what, node));
            }
        }
    }
}

fn act(nodes: &Mutex<Cassandras>, what: &str, at: usize) {
    let mut nodes = nodes.lock().unwrap_or_else(PoisonError::into_inner);
    println!("        {what} {}", nodes.addresses()[at]);
    let Some(node) = nodes.node_mut(at) else { return };
    match what {
        "stop" => node.pause(),
        "continue" => node.resume(),
        "kill" => node.kill(),
        _ => {
            if let Err(error) = node.start() {
                println!("        it did not start: {error}");
            }
        }
    }
}

fn show(session: &Session, second: u64, answers: &Answers) {
    let (good, failed) = (answers.good.swap(0, Ordering::Relaxed), answers.failed.swap(0, Ordering::Relaxed));
    let slowest = Duration::from_micros(answers.slowest.swap(0, Ordering::Relaxed));
    let (status, hedged) = (session.pool().status(), session.pool().counters().speculations);
    let hedged = hedged - answers.hedged.swap(hedged, Ordering::Relaxed);
    let slowest = slowest.as_millis();
    print!("{second:>3} s  {good:>4} good, {failed} failed, slowest {slowest:>4} ms, {hedged:>2} asked twice ");
    for server in &status.servers {
        let state = format!("{:?}", server.state).to_lowercase();
        print!(" | {} {state:<7} {}/{} open", server.server.address.ip(), server.open, server.target);
    }
    println!();
    for server in &status.servers {
        if let (Some(error), 0) = (&server.last_error, server.open) {
            println!("        {error}");
        }
    }
}

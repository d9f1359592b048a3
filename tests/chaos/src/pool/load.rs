//! Callers that write numbers and read them back. Each caller has its own keys, so it knows what it may read: nothing
//! older than the last number whose write was acknowledged.
//!
//! The numbers are also the timestamps. A write whose answer was lost may be executed late; it is then older than the
//! writes after it, and loses.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use honeyflow_cassandra::{Consistency, Options, Session, Statement};
use honeyflow_pool::Kind;
use tokio::{sync::watch, task::JoinSet, time::Instant};

/// The results of all requests.
#[derive(Default)]
pub struct Tally {
    pub good: AtomicU64,
    pub failed: AtomicU64,
    /// Failed requests that could have been repeated on another server; the report decides later whether they should
    /// have been.
    pub failed_idempotent: Mutex<Vec<Failure>>,
    pub wrong: AtomicU64,
    pub hung: AtomicU64,
    /// A description of the last wrong or hanging request.
    pub complaint: Mutex<Option<String>>,
}

pub struct Failure {
    pub begun: Instant,
    pub due: Instant,
    /// The request was lost at as many servers as it may be tried at.
    pub exhausted: bool,
    /// At least two servers had the request at once, and neither answered.
    pub by_two: bool,
    pub text: String,
}

impl Tally {
    /// The number of idempotent requests that have failed so far.
    pub fn failures(&self) -> usize {
        self.failed_idempotent.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn complain(&self, what: String) {
        *self.complaint.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
    }

    fn add_failure(&self, failure: Failure) {
        self.failed_idempotent.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
    }
}

pub struct Load {
    callers: JoinSet<()>,
    running: watch::Sender<bool>,
    over: Arc<AtomicBool>,
    busy: Arc<AtomicU64>,
    pub tally: Arc<Tally>,
}

pub const WITHIN: Duration = Duration::from_secs(2);
/// Allows for a busy machine with two cores; a request that hangs takes longer.
const LATE_AT_MOST: Duration = Duration::from_secs(3);
const KEYS_EACH: i32 = 4;
/// The pool's default.
const TRIES: usize = 3;

#[derive(Clone)]
struct Caller {
    session: Session,
    put: Statement,
    get: Statement,
    consistency: Consistency,
    tally: Arc<Tally>,
}

impl Load {
    /// # Errors
    /// If the statements cannot be prepared.
    pub async fn start(session: &Session, callers: i32, consistency: Consistency) -> Result<Load, String> {
        let put = "INSERT INTO chaos.t (id, n) VALUES (?, ?) USING TIMESTAMP ?";
        let put = session.prepare(put).await.map_err(|error| error.to_string())?;
        let get = session.prepare("SELECT n FROM chaos.t WHERE id = ?").await.map_err(|error| error.to_string())?;
        let tally = Arc::new(Tally::default());
        let caller = Caller { session: session.clone(), put, get, consistency, tally: tally.clone() };
        let (running, over, busy) =
            (watch::Sender::new(true), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut all = JoinSet::new();
        for number in 0..callers {
            let (caller, mut go, over, busy) = (caller.clone(), running.subscribe(), over.clone(), busy.clone());
            all.spawn(async move {
                let mut acknowledged = [0_i64; KEYS_EACH as usize];
                for turn in 1_i64.. {
                    if go.wait_for(|go| *go).await.is_err() || over.load(Ordering::Relaxed) {
                        return;
                    }
                    busy.fetch_add(1, Ordering::SeqCst);
                    let own = (turn % i64::from(KEYS_EACH)) as usize;
                    let key = number * KEYS_EACH + i32::try_from(own).unwrap_or(0);
                    caller.turn(key, turn, &mut acknowledged[own]).await;
                    busy.fetch_sub(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
        Ok(Load { callers: all, running, over, busy, tally })
    }

    /// Stops new requests. Returns false if a request in flight does not end.
    pub async fn pause(&self) -> bool {
        self.running.send_replace(false);
        let by = Instant::now() + WITHIN + LATE_AT_MOST;
        while self.busy.load(Ordering::SeqCst) > 0 {
            if Instant::now() > by {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        true
    }

    pub fn resume(&self) {
        self.running.send_replace(true);
    }

    pub async fn stop(mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.running.send_replace(true);
        while self.callers.join_next().await.is_some() {}
    }
}

impl Caller {
    /// Describes the servers and waiters at the moment of a failure.
    fn describe_servers(&self, waiters: usize) -> String {
        let status = self.session.pool().status();
        let servers = status.servers.iter().map(|row| format!("{} {:?}", row.server.address, row.state));
        format!("{}; {waiters} wait", servers.collect::<Vec<_>>().join(", "))
    }

    /// Sends one request. Half of the turns are writes; every third write may not be repeated.
    async fn turn(&self, key: i32, turn: i64, acknowledged: &mut i64) {
        let begun = Instant::now();
        let options = Options::within(WITHIN).consistency(self.consistency);
        let (writes, idempotent) = ((turn / i64::from(KEYS_EACH)) % 2 == 0, turn % 3 != 0);
        let options = if idempotent || !writes { options.idempotent() } else { options };
        let result = if writes {
            self.session.execute(&self.put, (key, turn, turn), &options).await.map(|_| {
                *acknowledged = turn;
            })
        } else {
            self.session.execute(&self.get, (key,), &options).await.map(|response| {
                let read = response.into_rows().first::<(i64,)>();
                let number = read.as_ref().map(|row| row.map_or(0, |(number,)| number));
                // A write after the last acknowledged one may be there, too.
                if !number.as_ref().is_ok_and(|number| (*acknowledged..=turn).contains(number)) {
                    self.tally.wrong.fetch_add(1, Ordering::Relaxed);
                    self.tally
                        .complain(format!("key {key} at turn {turn}: {read:?} read, {acknowledged} acknowledged"));
                }
            })
        };
        let took = begun.elapsed();
        if took > WITHIN + LATE_AT_MOST {
            self.tally.hung.fetch_add(1, Ordering::Relaxed);
            self.tally.complain(format!("key {key} at turn {turn} took {took:?}"));
        }
        match result {
            Ok(()) => {
                self.tally.good.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                self.tally.failed.fetch_add(1, Ordering::Relaxed);
                let cause = error.cause.as_ref().map(ToString::to_string).unwrap_or_default();
                let what = if writes { "write" } else { "read" };
                let text = format!(
                    "{what}, idempotent: {}, after {took:?}: {error}: {cause}; {}",
                    options.is_idempotent(),
                    self.describe_servers(error.waiters)
                );
                print_if_asked(&text);
                if options.is_idempotent() {
                    let exhausted = error.tries.len() + 1 >= TRIES;
                    let by_two = error.kind == Kind::UseTimeout && !error.silent.is_empty();
                    self.tally.add_failure(Failure { begun, due: begun + WITHIN, exhausted, by_two, text });
                }
            }
        }
    }
}

/// Prints the failure if `HONEYFLOW_CHAOS_TELL` is set.
fn print_if_asked(error: &str) {
    if std::env::var_os("HONEYFLOW_CHAOS_TELL").is_some() {
        eprintln!("  {error}");
    }
}

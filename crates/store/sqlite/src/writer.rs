//! The one writer: groups whatever waits into one `BEGIN IMMEDIATE`, bounded in time and rows, and answers after the
//! commit.
//!
//! Each request has its own savepoint, so one that fails, or whose fence does not hold, leaves its neighbours alone.
//! The application's writers share the file's one lock with us: transactions are short and, where nobody waits for
//! them, rare.

use std::{
    collections::VecDeque,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use honeyflow_event::{EventId, Key};
use honeyflow_runtime::Failure;
use honeyflow_store::{Idempotency, NewEvent, Op, Reply, Write, admin::Admin};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::{admin, append, lane::Queued, outcome, tidy, write};

/// A transaction takes in no more once it has lasted so long …
const GROUP_TIME_MAX: Duration = Duration::from_millis(20);
/// … or touches so many rows.
const GROUP_ROWS_MAX: usize = 2_000;
/// Acknowledgements of fewer rows than this may wait for others.
const ROWS_WORTH_A_COMMIT: usize = 200;
const TIDY_EVERY: Duration = Duration::from_secs(60);
/// While there is more: quicker than it can grow.
const TIDY_SOON: Duration = Duration::from_millis(100);

pub(crate) type Answer = oneshot::Sender<Result<Reply, Failure>>;

pub(crate) enum Job {
    Write {
        write: Box<Write>,
        /// The containers found for each `FanOut` among the operations, in their order.
        pages: Vec<Vec<Key>>,
        answer: Answer,
    },
    Append {
        events: Vec<NewEvent>,
        idempotency: Option<Idempotency>,
        answer: Answer,
    },
    Admin {
        admin: Admin,
        answer: Answer,
    },
    /// Rows that a poll has found to be repeats of what is done.
    Forget(Vec<EventId>),
    /// Work that has its own transactions: migrations, triggers.
    Alone(Box<dyn FnOnce(&mut Connection) + Send>),
}

impl Job {
    fn rows(&self) -> usize {
        match self {
            Job::Write { write, pages, .. } => {
                write.ops.iter().map(op_rows).sum::<usize>() + pages.iter().map(Vec::len).sum::<usize>()
            }
            Job::Append { events, .. } => events.len(),
            Job::Admin { .. } | Job::Alone(_) => 1,
            Job::Forget(ids) => ids.len(),
        }
    }

    /// Nobody waits for it but the books.
    fn can_wait(&self) -> bool {
        match self {
            Job::Write { write, .. } => write.ops.iter().all(|op| matches!(op, Op::Settle { .. } | Op::History(_))),
            Job::Forget(_) => true,
            Job::Append { .. } | Job::Admin { .. } | Job::Alone(_) => false,
        }
    }
}

fn op_rows(op: &Op) -> usize {
    match op {
        Op::Settle { events, .. } => events.len(),
        Op::Park(parked) => 1 + parked.events.len(),
        Op::Checkpoint(checkpoint) => 1 + checkpoint.emit.len(),
        Op::Replace { by, .. } => 1 + by.len(),
        Op::Charge { .. } | Op::ParkRow { .. } | Op::Signal { .. } | Op::FanOut(_) | Op::History(_) => 1,
    }
}

/// What a request has come to, to be told after the commit.
struct Settled {
    answer: Answer,
    result: Result<Reply, Failure>,
}

pub(crate) struct Writer {
    connection: Connection,
    queue: Receiver<Queued<Job>>,
    /// Taken out of the queue, not yet begun.
    waiting: VecDeque<Job>,
    acknowledge_every: Duration,
    began_at: Option<Instant>,
    tidy_at: Instant,
}

impl Writer {
    pub fn new(connection: Connection, queue: Receiver<Queued<Job>>, acknowledge_every: Duration) -> Writer {
        let waiting = VecDeque::new();
        Writer { connection, queue, waiting, acknowledge_every, began_at: None, tidy_at: Instant::now() + TIDY_EVERY }
    }

    /// Until every handle of the store is gone.
    pub fn run(mut self) {
        loop {
            if self.waiting.is_empty() {
                match self.queue.recv_timeout(self.tidy_at.saturating_duration_since(Instant::now())) {
                    Ok(queued) => self.waiting.push_back(queued.job),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            if Instant::now() >= self.tidy_at {
                let more = tidy::run_once(&mut self.connection);
                self.tidy_at = Instant::now() + if more { TIDY_SOON } else { TIDY_EVERY };
            }
            self.gather();
            if let Some(Job::Alone(_)) = self.waiting.front() {
                if let Some(Job::Alone(work)) = self.waiting.pop_front() {
                    work(&mut self.connection);
                }
            } else if !self.waiting.is_empty() {
                self.began_at = Some(Instant::now());
                self.group();
            }
        }
    }

    /// Takes what waits, and lets lone acknowledgements wait for company.
    fn gather(&mut self) {
        let mut rows: usize = self.waiting.iter().map(Job::rows).sum();
        let mut patient = self.waiting.iter().all(Job::can_wait);
        let until = self.began_at.map(|began_at| began_at + self.acknowledge_every);
        while rows < GROUP_ROWS_MAX {
            let queued = match self.queue.try_recv() {
                Ok(queued) => queued,
                Err(_) if self.waiting.is_empty() || !patient || rows >= ROWS_WORTH_A_COMMIT => return,
                Err(_) => {
                    let left = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
                    match self.queue.recv_timeout(left) {
                        Ok(queued) if !left.is_zero() => queued,
                        Ok(queued) => {
                            self.waiting.push_back(queued.job);
                            return;
                        }
                        Err(_) => return,
                    }
                }
            };
            rows += queued.job.rows();
            patient &= queued.job.can_wait();
            self.waiting.push_back(queued.job);
        }
    }

    fn group(&mut self) {
        if let Err(error) = self.connection.prepare_cached("begin immediate").and_then(|mut begin| begin.execute([])) {
            let failure = outcome::failure(&error, "begin a write transaction");
            // What runs alone answers for itself: it keeps its place.
            for job in std::mem::take(&mut self.waiting) {
                if matches!(job, Job::Alone(_)) { self.waiting.push_back(job) } else { refuse(job, &failure) }
            }
            return;
        }
        let began_at = Instant::now();
        let mut settled = Vec::new();
        let mut rows = 0;
        while let Some(job) = self.next(rows, began_at) {
            rows += job.rows();
            if let Some(one) = perform(&self.connection, job) {
                settled.push(one);
            }
            // A full disk and the like roll everything back: whatever was done before is undone too.
            if self.connection.is_autocommit() {
                let failure = Failure::retry("rolled-back", "the database has rolled the transaction back");
                return tell(settled, Some(&failure));
            }
        }
        let committed = self.connection.prepare_cached("commit").and_then(|mut commit| commit.execute([]));
        match committed {
            Ok(_) => tell(settled, None),
            Err(error) => {
                let _ = self.connection.execute_batch("rollback");
                tell(settled, Some(&outcome::failure(&error, "commit")));
            }
        }
    }

    fn next(&mut self, rows: usize, began_at: Instant) -> Option<Job> {
        if rows >= GROUP_ROWS_MAX || (rows > 0 && began_at.elapsed() >= GROUP_TIME_MAX) {
            return None;
        }
        if self.waiting.is_empty() {
            self.waiting.push_back(self.queue.try_recv().ok()?.job);
        }
        match self.waiting.front() {
            Some(Job::Alone(_)) | None => None,
            Some(_) => self.waiting.pop_front(),
        }
    }
}

fn perform(connection: &Connection, job: Job) -> Option<Settled> {
    match job {
        Job::Write { write, pages, answer } => {
            let result = within_savepoint(connection, || write::write(connection, &write, &pages));
            Some(Settled { answer, result })
        }
        Job::Append { events, idempotency, answer } => {
            let result = within_savepoint(connection, || append::append(connection, &events, idempotency.as_ref()));
            Some(Settled { answer, result })
        }
        Job::Admin { admin, answer } => {
            let result = within_savepoint(connection, || admin::write(connection, &admin));
            Some(Settled { answer, result: result.map(Reply::Admin) })
        }
        Job::Forget(ids) => {
            if let Err(failure) = within_savepoint(connection, || append::forget_repeats(connection, &ids)) {
                tracing::warn!(%failure, "repeated events could not be removed");
            }
            None
        }
        Job::Alone(_) => None,
    }
}

/// Undone alone if it fails.
fn within_savepoint<T>(connection: &Connection, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let control = |sql: &str| {
        connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute([]))
            .map_err(|error| outcome::failure(&error, sql))
    };
    control("savepoint request")?;
    let result = work();
    if result.is_err() && !connection.is_autocommit() {
        control("rollback to request")?;
    }
    if !connection.is_autocommit() {
        control("release request")?;
    }
    result
}

fn tell(settled: Vec<Settled>, undone: Option<&Failure>) {
    for Settled { answer, result } in settled {
        // A request that failed by itself keeps its own reason.
        let result = match undone {
            Some(failure) => result.and_then(|_| Err(failure.clone())),
            None => result,
        };
        let _ = answer.send(result);
    }
}

fn refuse(job: Job, failure: &Failure) {
    match job {
        Job::Write { answer, .. } | Job::Append { answer, .. } | Job::Admin { answer, .. } => {
            let _ = answer.send(Err(failure.clone()));
        }
        // Found again by the next poll.
        Job::Forget(_) => {}
        // It answers for itself.
        Job::Alone(_) => {}
    }
}

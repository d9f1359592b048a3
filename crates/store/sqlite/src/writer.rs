//! The one writer: combines waiting requests into one `BEGIN IMMEDIATE` transaction, bounded in time and rows, and
//! answers them after the commit.
//!
//! Each request has its own savepoint, so a request that fails, or whose fence is invalid, does not affect the others.
//! The application's writers need the same file lock: transactions are short, and rare if no caller waits for them.

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

use crate::{admin, append, codes, lane::QueuedJob, outcome, tidy, write};

/// A transaction accepts no further request after this time.
const GROUP_TIME_MAX: Duration = Duration::from_millis(20);
/// A transaction accepts no further request once it touches this number of rows.
const GROUP_ROWS_MAX: usize = 2_000;
/// Acknowledgements of fewer rows than this may wait for further ones.
const ROWS_WORTH_A_COMMIT: usize = 200;
const TIDY_EVERY: Duration = Duration::from_secs(60);
/// The interval while there are more expired rows: short enough that they are removed faster than they accumulate.
const TIDY_SOON: Duration = Duration::from_millis(100);

pub(crate) type Answer = oneshot::Sender<Result<Reply, Failure>>;

pub(crate) enum Job {
    Write {
        write: Box<Write>,
        /// The containers of each `FanOut` operation, in the order of the operations.
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
    /// Removes rows that repeat a done event, as a poll has found.
    Forget(Vec<EventId>),
    /// Work that begins and ends its own transactions: migrations, triggers.
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

    /// Returns whether the job may be delayed: it only cleans up, and no run needs its result to continue.
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

/// The result of a request; it is sent after the commit.
struct PendingReply {
    answer: Answer,
    result: Result<Reply, Failure>,
}

pub(crate) struct Writer {
    connection: Connection,
    queue: Receiver<QueuedJob<Job>>,
    /// Jobs that were taken out of the queue and not executed yet.
    waiting: VecDeque<Job>,
    acknowledge_every: Duration,
    began_at: Option<Instant>,
    tidy_at: Instant,
}

impl Writer {
    pub fn new(connection: Connection, queue: Receiver<QueuedJob<Job>>, acknowledge_every: Duration) -> Writer {
        let waiting = VecDeque::new();
        Writer { connection, queue, waiting, acknowledge_every, began_at: None, tidy_at: Instant::now() + TIDY_EVERY }
    }

    /// Serves jobs until the last handle of the store is dropped.
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

    /// Takes the waiting jobs from the queue. A few acknowledgements alone wait for further ones.
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
            // A job that runs alone sends its own reply: it stays in the queue.
            for job in std::mem::take(&mut self.waiting) {
                if matches!(job, Job::Alone(_)) { self.waiting.push_back(job) } else { refuse(job, &failure) }
            }
            return;
        }
        let began_at = Instant::now();
        let mut replies = Vec::new();
        let mut rows = 0;
        while let Some(job) = self.next(rows, began_at) {
            rows += job.rows();
            if let Some(one) = perform(&self.connection, job) {
                replies.push(one);
            }
            // Errors such as a full disk roll back the whole transaction, including the requests before.
            if self.connection.is_autocommit() {
                let failure = Failure::retry(codes::ROLLED_BACK, "the database has rolled back the transaction");
                return send_replies(replies, Some(&failure));
            }
        }
        let committed = self.connection.prepare_cached("commit").and_then(|mut commit| commit.execute([]));
        match committed {
            Ok(_) => send_replies(replies, None),
            Err(error) => {
                let _ = self.connection.execute_batch("rollback");
                send_replies(replies, Some(&outcome::failure(&error, "commit")));
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

fn perform(connection: &Connection, job: Job) -> Option<PendingReply> {
    match job {
        Job::Write { write, pages, answer } => {
            let result = in_savepoint(connection, || write::write(connection, &write, &pages));
            Some(PendingReply { answer, result })
        }
        Job::Append { events, idempotency, answer } => {
            let result = in_savepoint(connection, || append::append(connection, &events, idempotency.as_ref()));
            Some(PendingReply { answer, result })
        }
        Job::Admin { admin, answer } => {
            let result = in_savepoint(connection, || admin::write(connection, &admin));
            Some(PendingReply { answer, result: result.map(Reply::Admin) })
        }
        Job::Forget(ids) => {
            if let Err(failure) = in_savepoint(connection, || append::forget_repeats(connection, &ids)) {
                tracing::warn!(%failure, "failed to remove repeated events");
            }
            None
        }
        Job::Alone(_) => None,
    }
}

/// Runs `work` in a savepoint, so that only its own changes are rolled back if it fails.
fn in_savepoint<T>(connection: &Connection, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
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

fn send_replies(replies: Vec<PendingReply>, undone: Option<&Failure>) {
    for PendingReply { answer, result } in replies {
        // A request that failed by itself keeps its own failure.
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
        // The next poll finds the rows again.
        Job::Forget(_) => {}
        // It sends its own reply.
        Job::Alone(_) => {}
    }
}

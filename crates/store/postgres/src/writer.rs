//! The one fenced writer: combines all waiting requests into one transaction that first compares all fences, and
//! answers them after the commit.
//!
//! An invalid fence refuses only its own requests. If the data of one request causes an error, the group is halved
//! until that request is alone. An unknown outcome (the connection is lost at the commit) is returned as `Retry`: every
//! operation is idempotent.

use std::{sync::Arc, time::Duration};

use hashbrown::HashSet;
use honeyflow_event::{EventId, Key};
use honeyflow_runtime::Failure;
use honeyflow_store::{Op, Reply, Write};
use tokio::sync::{mpsc, oneshot};

use crate::{
    codes, collision,
    config::Options,
    driver::{Error, PgConnection},
    lane, outcome,
    session::{self, Session, with_timeout},
    write::{self, Group},
};

/// A transaction accepts no further request once it touches this number of rows.
const GROUP_ROWS_MAX: usize = 2_000;
/// The maximum number of requests of one transaction.
const GROUP_REQUESTS_MAX: usize = 256;
/// The maximum number of remembered rows that other transactions have locked.
const HELD_MAX: usize = 10_000;

pub(crate) type Answer = oneshot::Sender<Result<Reply, Failure>>;

pub(crate) struct Job {
    pub write: Write,
    /// The containers of each `FanOut` operation, in the order of the operations.
    pub pages: Vec<Vec<Key>>,
    pub answer: Answer,
}

pub(crate) struct Writer {
    session: Session,
    options: Arc<Options>,
    /// Rows that another transaction had locked at the last write. The writer checks them first, before any statement
    /// waits for them again.
    held: HashSet<EventId>,
}

impl Writer {
    pub fn new(options: &Arc<Options>) -> Writer {
        Writer { session: Session::new(options), options: Arc::clone(options), held: HashSet::new() }
    }

    /// Serves writes until the last handle of the store is dropped.
    pub async fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        while let Some(first) = queue.recv().await {
            let mut jobs = vec![first];
            lane::gather(&mut queue, GROUP_REQUESTS_MAX, &mut jobs).await;
            let mut rest = jobs.into_iter().peekable();
            while rest.peek().is_some() {
                let mut rows = 0;
                let group = std::iter::from_fn(|| {
                    let next = rest.next_if(|_| rows < GROUP_ROWS_MAX)?;
                    rows += self::rows(&next.write);
                    Some(next)
                });
                let group = group.collect();
                self.write(group).await;
            }
        }
    }

    async fn write(&mut self, jobs: Vec<Job>) {
        // The halves that are not written yet.
        let mut groups = vec![jobs];
        while let Some(mut jobs) = groups.pop() {
            match self.group(&jobs).await {
                Ok(replies) => {
                    for (job, reply) in jobs.into_iter().zip(replies) {
                        let _ = job.answer.send(reply);
                    }
                }
                Err(error) if jobs.len() > 1 && outcome::is_data_error(&error) => {
                    let rest = jobs.split_off(jobs.len() / 2);
                    groups.push(rest);
                    groups.push(jobs);
                }
                Err(error) => {
                    let failure = outcome::failure(&error, "write");
                    for job in jobs {
                        let _ = job.answer.send(Err(failure.clone()));
                    }
                }
            }
        }
    }

    /// Writes one group; retries the whole group while it collides with other transactions.
    async fn group(&mut self, jobs: &[Job]) -> Result<Vec<Result<Reply, Failure>>, Error> {
        let mut tries = collision::tries();
        loop {
            let mut connection = self.session.take().await?;
            let timeout = self.options.timeout;
            let result = with_timeout(timeout, transact(&mut connection, &self.options, jobs, &self.held)).await;
            self.session.give_back(connection, &result).await;
            let error = match result {
                Ok(Outcome { replies, held }) => {
                    self.remember(jobs, held);
                    return Ok(replies);
                }
                Err(error) => error,
            };
            if outcome::is_lock_timeout(&error) {
                // The next attempt checks these rows first, so that the other requests do not wait for them.
                self.held.extend(jobs.iter().flat_map(|job| events(&job.write)));
            }
            if !outcome::is_collision(&error) || !tries.wait().await {
                return Err(error);
            }
        }
    }

    fn remember(&mut self, jobs: &[Job], held: Vec<EventId>) {
        if self.held.is_empty() {
            return;
        }
        for job in jobs {
            for event in events(&job.write) {
                self.held.remove(&event);
            }
        }
        self.held.extend(held);
        if self.held.len() > HELD_MAX {
            self.held.clear();
        }
    }
}

struct Outcome {
    replies: Vec<Result<Reply, Failure>>,
    held: Vec<EventId>,
}

async fn transact(
    connection: &mut PgConnection,
    options: &Options,
    jobs: &[Job],
    suspected: &HashSet<EventId>,
) -> Result<Outcome, Error> {
    let head = write::head(options, jobs.iter().map(|job| &job.write.fence));
    let answers = session::run(connection, head).await?;
    let head_reply = write::HeadReply::read(&answers)?;
    let mut admitted: Vec<&Job> = jobs.iter().filter(|job| head_reply.holds(&job.write.fence)).collect();
    let suspects: Vec<EventId> =
        admitted.iter().flat_map(|job| events(&job.write)).filter(|event| suspected.contains(event)).collect();
    let held = write::locked_by_others(connection, &suspects).await?;
    let is_held = |job: &Job| !held.is_empty() && events(&job.write).any(|event| held.contains(&event));
    admitted.retain(|job| !is_held(job));
    let group = Group::new(admitted.iter().map(|job| (&job.write, job.pages.as_slice())));
    group.write(connection, &head_reply).await?;
    let reply = |job: &Job| {
        if !head_reply.holds(&job.write.fence) {
            Ok(Reply::Fenced)
        } else if is_held(job) {
            Err(Failure::retry(
                codes::ROW_LOCKED,
                "write: another transaction holds a row of these events; Honeyflow retries",
            ))
        } else {
            Ok(Reply::Committed)
        }
    };
    Ok(Outcome { replies: jobs.iter().map(reply).collect(), held })
}

/// Returns the outbox rows that the request deletes.
fn events(write: &Write) -> impl Iterator<Item = EventId> {
    write.ops.iter().flat_map(|op| {
        let (one, many): (Option<EventId>, &[EventId]) = match op {
            Op::Settle { events, .. } => (None, events),
            Op::Park(parked) => (None, &parked.events),
            Op::ParkRow { event, .. } | Op::Replace { event, .. } => (Some(*event), &[]),
            Op::FanOut(fan_out) => (Some(fan_out.event), &[]),
            _ => (None, &[]),
        };
        one.into_iter().chain(many.iter().copied())
    })
}

fn rows(write: &Write) -> usize {
    let more = |op: &Op| match op {
        Op::Checkpoint(checkpoint) => 1 + checkpoint.emit.len(),
        Op::Replace { by, .. } => by.len(),
        Op::FanOut(fan_out) => fan_out.page as usize,
        Op::Settle { .. } => 0,
        _ => 1,
    };
    events(write).count() + write.ops.iter().map(more).sum::<usize>()
}

/// Returns a time limit of a transaction in milliseconds.
pub(crate) fn millis(duration: Duration) -> u128 {
    duration.as_millis().max(1)
}

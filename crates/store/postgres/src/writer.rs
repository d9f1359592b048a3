//! The one writer: whatever waits goes into one transaction that first compares all fences, and is answered after the
//! commit.
//!
//! A fence that does not hold refuses its own requests alone. If the data of one request is at fault, the group is
//! halved until that one stands alone. Whatever stays unknown (a connection lost at the commit) leaves as `Retry`: every
//! operation may be repeated.

use std::{sync::Arc, time::Duration};

use hashbrown::HashSet;
use honeyflow_event::{EventId, Key};
use honeyflow_runtime::Failure;
use honeyflow_store::{Op, Reply, Write};
use tokio::sync::{mpsc, oneshot};

use crate::{
    collision,
    config::Options,
    driver::{Error, PgConnection},
    lane, outcome,
    session::{self, Session, within},
    write::{self, Group},
};

/// A transaction takes in no more once it touches so many rows …
const GROUP_ROWS_MAX: usize = 2_000;
/// … or has so many requests.
const GROUP_REQUESTS_MAX: usize = 256;
/// How many rows that others hold are remembered.
const HELD_MAX: usize = 10_000;

pub(crate) type Answer = oneshot::Sender<Result<Reply, Failure>>;

pub(crate) struct Job {
    pub write: Write,
    /// The containers found for each `FanOut` among the operations, in their order.
    pub pages: Vec<Vec<Key>>,
    pub answer: Answer,
}

pub(crate) struct Writer {
    session: Session,
    options: Arc<Options>,
    /// Rows that another transaction held the last time: asked about before anything waits for them again.
    held: HashSet<EventId>,
}

impl Writer {
    pub fn new(options: &Arc<Options>) -> Writer {
        Writer { session: Session::new(options), options: Arc::clone(options), held: HashSet::new() }
    }

    /// Until every handle of the store is gone.
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
        // Halves that are still to be written.
        let mut groups = vec![jobs];
        while let Some(mut jobs) = groups.pop() {
            match self.group(&jobs).await {
                Ok(replies) => {
                    for (job, reply) in jobs.into_iter().zip(replies) {
                        let _ = job.answer.send(reply);
                    }
                }
                Err(error) if jobs.len() > 1 && outcome::is_of_the_data(&error) => {
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

    /// Repeated as a whole while it collides with others.
    async fn group(&mut self, jobs: &[Job]) -> Result<Vec<Result<Reply, Failure>>, Error> {
        let mut tries = collision::tries();
        loop {
            let mut connection = self.session.take().await?;
            let timeout = self.options.timeout;
            let result = within(timeout, transact(&mut connection, &self.options, jobs, &self.held)).await;
            self.session.give_back(connection, &result).await;
            let error = match result {
                Ok(Outcome { replies, held }) => {
                    self.remember(jobs, held);
                    return Ok(replies);
                }
                Err(error) => error,
            };
            if outcome::is_lock_timeout(&error) {
                // From now on these rows are asked about first, so that the others need not wait with them.
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
    let told = write::Told::read(&answers)?;
    let mut admitted: Vec<&Job> = jobs.iter().filter(|job| told.holds(&job.write.fence)).collect();
    let suspects: Vec<EventId> =
        admitted.iter().flat_map(|job| events(&job.write)).filter(|event| suspected.contains(event)).collect();
    let held = write::held_by_others(connection, &suspects).await?;
    let is_held = |job: &Job| !held.is_empty() && events(&job.write).any(|event| held.contains(&event));
    admitted.retain(|job| !is_held(job));
    let group = Group::of(admitted.iter().map(|job| (&job.write, job.pages.as_slice())));
    group.write(connection, &told).await?;
    let reply = |job: &Job| {
        if !told.holds(&job.write.fence) {
            Ok(Reply::Fenced)
        } else if is_held(job) {
            Err(Failure::retry(
                "row-locked",
                "write: another transaction holds a row of these events; it is tried again",
            ))
        } else {
            Ok(Reply::Committed)
        }
    };
    Ok(Outcome { replies: jobs.iter().map(reply).collect(), held })
}

/// Rows of the outbox that the request deletes.
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

/// The timeouts of a transaction, as milliseconds.
pub(crate) fn millis(duration: Duration) -> u128 {
    duration.as_millis().max(1)
}

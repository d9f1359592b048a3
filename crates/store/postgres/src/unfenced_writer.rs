//! The unfenced writes: events from the event endpoint, changes by an operator, and the removal of expired rows. They
//! share one connection and run one transaction each. Waiting appends without an idempotency key are combined into one
//! transaction.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use honeyflow_event::EventId;
use honeyflow_runtime::Failure;
use honeyflow_store::{Idempotency, NewEvent, Reply, admin::Admin};
use tokio::{sync::mpsc, time::MissedTickBehavior};

use crate::{
    admin, append, codes, collision,
    config::Options,
    driver::{Error, PgConnection},
    literal, outcome,
    session::{self, Session, with_timeout},
    tidy,
    writer::{Answer, millis},
};

/// One transaction combines no further appends once it has this number of events.
const TOGETHER_MAX: usize = 2_000;
const TIDY_EVERY: Duration = Duration::from_secs(60);
/// The interval while there are more expired rows: short enough that they are removed faster than they accumulate.
const TIDY_SOON: Duration = Duration::from_millis(100);

pub(crate) enum Job {
    Append {
        events: Vec<NewEvent>,
        idempotency: Option<Idempotency>,
        answer: Answer,
    },
    Admin {
        admin: Admin,
        answer: Answer,
    },
    Tidy {
        answer: Answer,
    },
    /// Removes rows that repeat a done event, as a poll has found.
    Forget(Vec<EventId>),
}

pub(crate) struct UnfencedWriter {
    session: Session,
    options: Arc<Options>,
}

impl UnfencedWriter {
    pub fn new(options: &Arc<Options>) -> UnfencedWriter {
        UnfencedWriter { session: Session::new(options), options: Arc::clone(options) }
    }

    /// Serves jobs until the last handle of the store is dropped.
    pub async fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        let mut tidy = tokio::time::interval(TIDY_EVERY);
        tidy.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tidy.reset();
        loop {
            tokio::select! {
                job = queue.recv() => match job {
                    Some(job) => self.serve(job, &mut queue).await,
                    None => return,
                },
                _ = tidy.tick() => {
                    match self.tidy().await {
                        Ok(true) => tidy.reset_after(TIDY_SOON),
                        Ok(false) => {}
                        // Not installed yet, or no connection: the next tick retries.
                        Err(error) => tracing::debug!(%error, "failed to remove expired rows"),
                    }
                }
            }
        }
    }

    async fn serve(&mut self, first: Job, queue: &mut mpsc::Receiver<Job>) {
        let mut next = Some(first);
        while let Some(job) = next.take() {
            match job {
                Job::Append { events, idempotency: None, answer } => {
                    next = self.append_together(events, answer, queue).await;
                }
                Job::Append { events, idempotency, answer } => {
                    let result = self.transact(&Work::Append(&events, idempotency.as_ref())).await;
                    let _ = answer.send(result.map_err(|error| outcome::failure(&error, "append events")));
                }
                Job::Admin { admin, answer } => {
                    let result = self.transact(&Work::Admin(&admin)).await;
                    let _ = answer.send(result.map_err(|error| outcome::failure(&error, "change")));
                }
                Job::Tidy { answer } => {
                    let mut more = Ok(true);
                    while matches!(more, Ok(true)) {
                        more = self.tidy().await;
                    }
                    let result = more.map(|_| Reply::Committed);
                    let _ = answer.send(result.map_err(|error| outcome::failure(&error, "tidy up")));
                }
                Job::Forget(ids) => {
                    if let Err(error) = self.transact(&Work::Forget(&ids)).await {
                        tracing::warn!(%error, "failed to remove repeated events");
                    }
                }
            }
        }
    }

    /// Combines waiting appends into one transaction. If that fails because of the data, each append is retried alone.
    /// Returns the job after them, if this took one of another kind out of the queue.
    async fn append_together(
        &mut self,
        events: Vec<NewEvent>,
        answer: Answer,
        queue: &mut mpsc::Receiver<Job>,
    ) -> Option<Job> {
        let mut all = events;
        let mut each = vec![(all.len(), answer)];
        let mut other = None;
        while all.len() < TOGETHER_MAX
            && let Ok(job) = queue.try_recv()
        {
            match job {
                Job::Append { events, idempotency: None, answer } => {
                    each.push((events.len(), answer));
                    all.extend(events);
                }
                job => {
                    other = Some(job);
                    break;
                }
            }
        }
        let together = self.transact(&Work::Append(&all, None)).await;
        let mut rest = all.as_slice();
        let alone = each.len() == 1;
        let mut ids = match &together {
            Ok(Reply::Appended { ids, .. }) => ids.as_slice(),
            _ => &[],
        };
        for (count, answer) in each {
            let (own, others) = rest.split_at(count);
            rest = others;
            let reply = match &together {
                Ok(_) => {
                    let (own, others) = ids.split_at(count.min(ids.len()));
                    ids = others;
                    Ok(Reply::Appended { ids: own.to_vec(), repeated: false })
                }
                Err(error) if alone || !outcome::is_data_error(error) => Err(outcome::failure(error, "append events")),
                Err(_) => {
                    let result = self.transact(&Work::Append(own, None)).await;
                    result.map_err(|error| outcome::failure(&error, "append events"))
                }
            };
            let _ = answer.send(reply);
        }
        other
    }

    /// Removes one batch of expired rows; returns whether there may be more.
    async fn tidy(&mut self) -> Result<bool, Error> {
        let more = AtomicBool::new(false);
        self.transact(&Work::Tidy { more: &more }).await?;
        Ok(more.into_inner())
    }

    async fn transact(&mut self, work: &Work<'_>) -> Result<Reply, Error> {
        let mut tries = collision::tries();
        loop {
            let mut connection = self.session.take().await?;
            let timeout = if work.is_large() { LARGE_TIMEOUT } else { self.options.timeout };
            let result = with_timeout(timeout, perform(&mut connection, &self.options, work)).await;
            self.session.give_back(connection, &result).await;
            match result {
                Err(error) if outcome::is_collision(&error) && tries.wait().await => {}
                result => return result,
            }
        }
    }
}

/// The time limit for requests that may touch many rows: an operator may retry all parked events at once.
const LARGE_TIMEOUT: Duration = Duration::from_secs(120);

enum Work<'w> {
    Append(&'w [NewEvent], Option<&'w Idempotency>),
    Admin(&'w Admin),
    Forget(&'w [EventId]),
    Tidy { more: &'w AtomicBool },
}

impl Work<'_> {
    fn is_large(&self) -> bool {
        matches!(self, Work::Admin(_) | Work::Tidy { .. })
    }
}

async fn perform(connection: &mut PgConnection, options: &Options, work: &Work<'_>) -> Result<Reply, Error> {
    let idle = millis(options.idle_in_transaction());
    let begin = format!(
        "begin isolation level read committed;
         select set_config('lock_timeout', '2000', true), set_config('jit', 'off', true),
           set_config('idle_in_transaction_session_timeout', '{idle}', true)"
    );
    session::run(connection, begin).await?;
    let reply = match work {
        Work::Append(events, idempotency) => append::append(connection, events, *idempotency).await?,
        Work::Admin(admin) => Reply::Admin(admin::write(connection, admin).await?),
        Work::Forget(ids) => {
            session::run(connection, forget_text(ids)).await?;
            Reply::Committed
        }
        Work::Tidy { more } => {
            more.store(tidy::remove_batch(connection).await?, Ordering::Relaxed);
            Reply::Committed
        }
    };
    session::run(connection, "commit".to_owned()).await?;
    Ok(reply)
}

/// Deletes the rows whose `dedupe` mark is still valid. It checks the mark again: it may have expired since the poll.
fn forget_text(ids: &[EventId]) -> String {
    format!(
        "delete from honeyflow_outbox o using honeyflow_dedupe d where o.id = any ({}::bigint[]) and d.tenant = o.tenant
           and d.entity = o.entity and d.entity_key = o.entity_key and d.dedupe = o.dedupe
           and d.until_at > statement_timestamp()",
        literal::integers(ids)
    )
}

/// The failure of a store whose tasks have ended.
pub(crate) fn stopped() -> Failure {
    Failure::retry(codes::STORE_STOPPED, "the store's task has ended; the node is stopping, or restarts the store")
}

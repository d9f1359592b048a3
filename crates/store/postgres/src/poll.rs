//! The poll task: takes all waiting polls from the queue, sends one message for all of them, and answers each.
//!
//! It takes no lock and writes nothing. Every transaction is `read committed`, independent of the role's default, so
//! each statement has its own snapshot. The position up to which a level was read comes from a snapshot that is no
//! newer than that of the rows, so that no row is skipped.

mod assemble;
pub(crate) mod statements;
mod sweep;

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use hashbrown::HashSet;
use honeyflow_event::EventId;
use honeyflow_runtime::Failure;
use honeyflow_store::{Names, Poll, PollReply, Reply, write::Checkpoint};
use tokio::sync::{mpsc, oneshot};

use crate::{
    config::Options,
    driver::{Either, Error, PgConnection},
    lane, outcome, recover,
    session::{self, Session, with_timeout},
    unfenced_writer,
};

/// The maximum number of polls that one message answers.
const POLLS_MAX: usize = 256;

pub(crate) struct PendingPoll {
    pub poll: Poll,
    pub answer: oneshot::Sender<Result<Reply, Failure>>,
}

/// The result of one poll.
#[derive(Default)]
pub(crate) struct PollOutcome {
    pub polled: PollReply,
    /// Rows that only repeat a done event.
    pub repeats: Vec<EventId>,
}

impl PollOutcome {
    /// Adds the checkpoints whose covered rows are all in this reply.
    fn resume(&mut self, kept: &[Checkpoint]) {
        let there: HashSet<EventId> = self.polled.events.iter().map(|event| event.id).collect();
        let whole = kept.iter().filter(|kept| kept.covers.iter().all(|id| there.contains(id)));
        self.polled.resumed = whole.cloned().collect();
    }
}

pub(crate) struct Poller {
    session: Session,
    names: Names,
    /// The highest id that any poll has read. A level that was read to its end was read up to here.
    high: EventId,
    timeout: Duration,
    schema_version: i64,
    /// Removes repeated rows. If its queue is full, the next poll finds them again.
    unfenced: mpsc::Sender<unfenced_writer::Job>,
}

impl Poller {
    pub fn new(options: &Arc<Options>, schema_version: u32, unfenced: mpsc::Sender<unfenced_writer::Job>) -> Poller {
        Poller {
            session: Session::new(options),
            names: Names::default(),
            high: 0,
            timeout: options.timeout,
            schema_version: schema_version.into(),
            unfenced,
        }
    }

    /// Serves polls until the last handle of the store is dropped.
    pub async fn run(mut self, mut queue: mpsc::Receiver<PendingPoll>) {
        while let Some(first) = queue.recv().await {
            let mut pending = vec![first];
            lane::gather(&mut queue, POLLS_MAX, &mut pending).await;
            // Skip polls whose caller has gone.
            pending.retain(|pending| !pending.answer.is_closed());
            let (sweeps, levels): (Vec<PendingPoll>, Vec<PendingPoll>) =
                pending.into_iter().partition(|pending| pending.poll.sweep.is_some());
            self.serve(levels, false).await;
            self.serve(sweeps, true).await;
        }
    }

    async fn serve(&mut self, pending: Vec<PendingPoll>, sweep: bool) {
        if pending.is_empty() {
            return;
        }
        let polls: Vec<&Poll> = pending.iter().map(|pending| &pending.poll).collect();
        match self.run_polls(&polls, sweep).await {
            Ok(gathered) => {
                for (pending, PollOutcome { mut polled, repeats }) in pending.into_iter().zip(gathered) {
                    polled.schema_version = self.schema_version;
                    if !repeats.is_empty() {
                        let _ = self.unfenced.try_send(unfenced_writer::Job::Forget(repeats));
                    }
                    let _ = pending.answer.send(Ok(Reply::Polled(polled)));
                }
            }
            Err(error) => {
                let failure = outcome::failure(&error, "poll");
                for pending in pending {
                    let _ = pending.answer.send(Err(failure.clone()));
                }
            }
        }
    }

    async fn run_polls(&mut self, polls: &[&Poll], sweep: bool) -> Result<Vec<PollOutcome>, Error> {
        let mut connection = self.session.take().await?;
        let timeout = self.timeout;
        let result = with_timeout(timeout, self.read_polls(&mut connection, polls, sweep)).await;
        self.session.give_back(connection, &result).await;
        result
    }

    async fn read_polls(
        &mut self,
        connection: &mut PgConnection,
        polls: &[&Poll],
        sweep: bool,
    ) -> Result<Vec<PollOutcome>, Error> {
        let mut gathered = if sweep {
            sweep::sweep(connection, polls, &mut self.names).await?
        } else {
            self.read_levels(connection, polls).await?
        };
        let events = gathered.iter().flat_map(|gathered| &gathered.polled.events);
        let alone: Vec<EventId> = events.filter(|event| event.workflow.is_some()).map(|event| event.id).collect();
        if !alone.is_empty() {
            let kept = recover::resumed(connection, &alone).await?;
            gathered.iter_mut().for_each(|gathered| gathered.resume(&kept));
        }
        Ok(gathered)
    }

    async fn read_levels(&mut self, connection: &mut PgConnection, polls: &[&Poll]) -> Result<Vec<PollOutcome>, Error> {
        let statements::Message { statements, parts } = statements::message(polls, self.high);
        let mut picture = assemble::PollAssembler::new(polls, self.high);
        let mut parts = parts.into_iter();
        let mut part = parts.next();
        {
            let mut items = std::pin::pin!(session::send(connection, statements));
            while let Some(item) = items.next().await {
                match (item?, &part) {
                    (Either::Right(row), Some(part)) => picture.add(part, &row, &mut self.names)?,
                    (Either::Right(_), None) => {}
                    (Either::Left(_), _) => part = parts.next(),
                }
            }
        }
        let gathered = picture.assemble();
        self.high = self.high.max(gathered.highest);
        Ok(gathered.each)
    }
}

//! The poll task: takes whatever polls wait, asks for all of them in one message, and answers each.
//!
//! No lock is taken and nothing is written. Every transaction is `read committed` whatever the role's default is; each
//! of its statements has its own snapshot, and what one says of "how far" comes from a snapshot no newer than the rows.

mod answer;
pub(crate) mod ask;
mod sweep;

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use hashbrown::HashSet;
use honeyflow_event::EventId;
use honeyflow_runtime::Failure;
use honeyflow_store::{Names, Poll, Polled, Reply, write::Checkpoint};
use tokio::sync::{mpsc, oneshot};

use crate::{
    config::Options,
    door,
    driver::{Either, Error, PgConnection},
    lane, outcome, recover,
    session::{self, Session, within},
};

/// Polls answered by one message.
const POLLS_MAX: usize = 256;

pub(crate) struct Asked {
    pub poll: Poll,
    pub answer: oneshot::Sender<Result<Reply, Failure>>,
}

/// What one poll has come to.
#[derive(Default)]
pub(crate) struct Gathered {
    pub polled: Polled,
    /// Rows that only repeat what is done.
    pub repeats: Vec<EventId>,
}

impl Gathered {
    /// Only where all the rows that it covers are here.
    fn resume(&mut self, kept: &[Checkpoint]) {
        let there: HashSet<EventId> = self.polled.events.iter().map(|event| event.id).collect();
        let whole = kept.iter().filter(|kept| kept.covers.iter().all(|id| there.contains(id)));
        self.polled.resumed = whole.cloned().collect();
    }
}

pub(crate) struct Poller {
    session: Session,
    names: Names,
    /// The highest id that any poll has seen: what was looked through to its end was so up to here.
    high: EventId,
    timeout: Duration,
    schema_version: i64,
    /// Removes repeats; they are found again if it has no room.
    door: mpsc::Sender<door::Job>,
}

impl Poller {
    pub fn new(options: &Arc<Options>, schema_version: u32, door: mpsc::Sender<door::Job>) -> Poller {
        Poller {
            session: Session::new(options),
            names: Names::default(),
            high: 0,
            timeout: options.timeout,
            schema_version: schema_version.into(),
            door,
        }
    }

    /// Until every handle of the store is gone.
    pub async fn run(mut self, mut queue: mpsc::Receiver<Asked>) {
        while let Some(first) = queue.recv().await {
            let mut asked = vec![first];
            lane::gather(&mut queue, POLLS_MAX, &mut asked).await;
            // Whoever asked may have gone; a poll that nobody waits for is not begun.
            asked.retain(|asked| !asked.answer.is_closed());
            let (sweeps, looks): (Vec<Asked>, Vec<Asked>) =
                asked.into_iter().partition(|asked| asked.poll.sweep.is_some());
            self.serve(looks, false).await;
            self.serve(sweeps, true).await;
        }
    }

    async fn serve(&mut self, asked: Vec<Asked>, sweep: bool) {
        if asked.is_empty() {
            return;
        }
        let polls: Vec<&Poll> = asked.iter().map(|asked| &asked.poll).collect();
        match self.ask(&polls, sweep).await {
            Ok(gathered) => {
                for (asked, Gathered { mut polled, repeats }) in asked.into_iter().zip(gathered) {
                    polled.schema_version = self.schema_version;
                    if !repeats.is_empty() {
                        let _ = self.door.try_send(door::Job::Forget(repeats));
                    }
                    let _ = asked.answer.send(Ok(Reply::Polled(polled)));
                }
            }
            Err(error) => {
                let failure = outcome::failure(&error, "poll");
                for asked in asked {
                    let _ = asked.answer.send(Err(failure.clone()));
                }
            }
        }
    }

    async fn ask(&mut self, polls: &[&Poll], sweep: bool) -> Result<Vec<Gathered>, Error> {
        let mut connection = self.session.take().await?;
        let timeout = self.timeout;
        let result = within(timeout, self.answer(&mut connection, polls, sweep)).await;
        self.session.give_back(connection, &result).await;
        result
    }

    async fn answer(
        &mut self,
        connection: &mut PgConnection,
        polls: &[&Poll],
        sweep: bool,
    ) -> Result<Vec<Gathered>, Error> {
        let mut gathered = if sweep {
            sweep::sweep(connection, polls, &mut self.names).await?
        } else {
            self.look(connection, polls).await?
        };
        let events = gathered.iter().flat_map(|gathered| &gathered.polled.events);
        let alone: Vec<EventId> = events.filter(|event| event.workflow.is_some()).map(|event| event.id).collect();
        if !alone.is_empty() {
            let kept = recover::resumed(connection, &alone).await?;
            gathered.iter_mut().for_each(|gathered| gathered.resume(&kept));
        }
        Ok(gathered)
    }

    async fn look(&mut self, connection: &mut PgConnection, polls: &[&Poll]) -> Result<Vec<Gathered>, Error> {
        let ask::Message { statements, parts } = ask::message(polls, self.high);
        let mut picture = answer::Picture::of(polls, self.high);
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

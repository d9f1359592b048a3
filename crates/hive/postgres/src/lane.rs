//! Requests of one kind and the few connections that serve them. A connection belongs to one request at a time; if
//! whoever has asked stops waiting, it is dropped: what has become of the request nobody knows.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use honeyflow_hive::{Reply, Request};
use honeyflow_runtime::Failure;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior},
};

use crate::{
    answer::{self, Asking, Found},
    driver::{ConnectOptions, Error, PgConnectOptions, PgConnection},
    hive::Hive,
    outcome, schema,
    session::{self, within},
};

/// A connection that nobody has needed for so long is closed: servers have few.
const IDLE_MAX: Duration = Duration::from_secs(60);
const VERSION_MIN: u32 = 130_000;
/// Connections that are being made for one request.
const ATTEMPTS_MAX: usize = 3;
/// How often a transaction that met another one is begun again.
const TRIES_MAX: u32 = 5;

pub(crate) struct Job {
    pub request: Request,
    pub answer: oneshot::Sender<Result<Reply, Failure>>,
}

/// What all lanes of a hive know.
pub(crate) struct Place {
    pub hive: Hive,
    pub address: PgConnectOptions,
    pub timeout: Duration,
}

/// Until every handle of the hive is gone and all is answered.
pub(crate) async fn serve(place: Arc<Place>, mut queue: mpsc::Receiver<Job>, connections_max: usize) {
    let mut running = FuturesUnordered::new();
    let mut idle: Vec<(PgConnection, Instant)> = Vec::new();
    let mut tidy = tokio::time::interval(IDLE_MAX / 4);
    tidy.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(connection) = running.next(), if !running.is_empty() => {
                idle.extend(Option::map(connection, |connection| (connection, Instant::now())));
            }
            job = queue.recv(), if running.len() < connections_max => match job {
                Some(job) => {
                    let connection = idle.pop().map(|(connection, _)| connection);
                    running.push(attend(Arc::clone(&place), connection, job));
                }
                None => break,
            },
            _ = tidy.tick() => idle.retain(|(_, since)| since.elapsed() < IDLE_MAX),
        }
    }
    while running.next().await.is_some() {}
}

/// Answers one request; gives the connection back if it is of use.
async fn attend(place: Arc<Place>, connection: Option<PgConnection>, job: Job) -> Option<PgConnection> {
    let Job { request, mut answer } = job;
    // Asked for by someone who has gone: a beat or a take that nobody hears of must not happen late.
    if answer.is_closed() {
        return connection;
    }
    let connection = match connection {
        Some(connection) => connection,
        // Not given up with the request: the next one needs it too.
        None => match place.connect().await {
            Ok(connection) => connection,
            Err(failure) => {
                let _ = answer.send(Err(failure));
                return None;
            }
        },
    };
    if answer.is_closed() {
        return Some(connection);
    }
    tokio::select! {
        biased;
        () = answer.closed() => None,
        (connection, result) = place.work(connection, request) => {
            let _ = answer.send(result);
            connection
        }
    }
}

impl Place {
    async fn connect(&self) -> Result<PgConnection, Failure> {
        let connection = within(self.timeout, self.attempts()).await;
        let connection = connection.map_err(|error| outcome::failure(&error, "reach the hive's database"))?;
        match connection.server_version_num() {
            Some(version) if version < VERSION_MIN => {
                let said = format!("the server is PostgreSQL {}; it must be 13 or newer, upgrade it", version / 10_000);
                Err(Failure::fatal("server-too-old", said))
            }
            _ => Ok(connection),
        }
    }

    /// A server that is slow is given its time; but one that could not be heard a moment ago may answer a new knock at
    /// once, and the old one much later.
    async fn attempts(&self) -> Result<PgConnection, Error> {
        let mut attempts = FuturesUnordered::new();
        loop {
            attempts.push(self.address.connect());
            tokio::select! {
                Some(result) = attempts.next() => return result,
                () = tokio::time::sleep(self.hive.knocks_every()), if attempts.len() < ATTEMPTS_MAX => {}
            }
        }
    }

    async fn work(
        &self,
        mut connection: PgConnection,
        request: Request,
    ) -> (Option<PgConnection>, Result<Reply, Failure>) {
        // The server ends the longest wait by itself; this is for one that says nothing.
        let timeout = self.timeout.max(self.hive.patience() + Duration::from_secs(1));
        match within(timeout, self.answer(&mut connection, request)).await {
            Ok((is_of_use, result)) => (is_of_use.then_some(connection), result),
            Err(error) => (None, Err(outcome::failure(&error, "ask the hive"))),
        }
    }

    /// Whether the connection is of use, and the answer.
    async fn answer(
        &self,
        connection: &mut PgConnection,
        mut request: Request,
    ) -> Result<(bool, Result<Reply, Failure>), Error> {
        let (mut tries, mut made) = (0, false);
        loop {
            let script = match self.hive.ask(&request) {
                Ok(Asking::Ask(script)) => script,
                Ok(Asking::Known(reply)) => return Ok((true, Ok(reply))),
                Err(failure) => return Ok((true, Err(failure))),
            };
            let error = match session::play(connection, script).await {
                Ok(answers) => match answer::read(&request, &answers) {
                    Ok(Found::Reply(reply)) => {
                        self.hive.heard(&request, &reply);
                        return Ok((true, Ok(reply)));
                    }
                    Ok(Found::Unfit(failure)) => return Ok((true, Err(failure))),
                    Ok(Found::Outdated) if !made => {
                        made = true;
                        if let Err(failure) = make_tables(connection).await {
                            return Ok(failure);
                        }
                        continue;
                    }
                    Ok(Found::Outdated) => return Ok((true, Err(changing()))),
                    Ok(Found::Gap) => {
                        request = Request::View;
                        continue;
                    }
                    Err(stop) => return Ok((true, Err(stop.failure(request.doing())))),
                },
                Err(error) => error,
            };
            let is_of_use = session::roll_back(connection, &error).await;
            // What was undone may be done again; what is unknown may not.
            if is_of_use && outcome::is_collision(&error) && tries < TRIES_MAX {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(3) * tries).await;
            } else if is_of_use && outcome::is_missing_table(&error) && !made {
                made = true;
                if !answer::makes(&request) {
                    return Ok((true, self.nothing(connection, &request).await));
                }
                if let Err(failure) = make_tables(connection).await {
                    return Ok(failure);
                }
            } else {
                return Ok((is_of_use, Err(outcome::failure(&error, request.doing()))));
            }
        }
    }

    async fn nothing(&self, connection: &mut PgConnection, request: &Request) -> Result<Reply, Failure> {
        let doing = request.doing();
        let answers = session::play(connection, self.hive.ask_nothing()).await;
        let answers = answers.map_err(|error| outcome::failure(&error, doing))?;
        answer::nothing(request, &answers).map_err(|stop| stop.failure(doing))
    }
}

/// If that fails: whether the connection is of use, and why.
async fn make_tables(connection: &mut PgConnection) -> Result<(), (bool, Result<Reply, Failure>)> {
    let Err(error) = schema::migrate(connection).await else { return Ok(()) };
    let is_of_use = session::roll_back(connection, &error).await;
    Err((is_of_use, Err(outcome::failure(&error, "make the hive's tables"))))
}

fn changing() -> Failure {
    Failure::retry("hive-busy", "join the hive: its tables are being changed, it is tried again")
}

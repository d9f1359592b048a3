//! A lane: the requests of one kind and the few connections that serve them. A connection serves one request at a time.
//! If the caller stops waiting, the connection is dropped, because the outcome of its request is unknown.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use honeyflow_hive::{Reply, Request};
use honeyflow_runtime::Failure;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior},
};

use crate::{
    answer::{self, Plan, ReadOutcome},
    codes,
    driver::{ConnectOptions, Error, PgConnectOptions, PgConnection},
    hive::Hive,
    outcome, schema,
    session::{self, with_timeout},
};

/// A connection that was idle for this long is closed, because servers accept few connections.
const IDLE_MAX: Duration = Duration::from_secs(60);
const VERSION_MIN: u32 = 130_000;
/// The largest number of concurrent connection attempts for one request.
const ATTEMPTS_MAX: usize = 3;
/// How often a transaction is retried after a collision with another one.
const TRIES_MAX: u32 = 5;

pub(crate) struct Job {
    pub request: Request,
    pub answer: oneshot::Sender<Result<Reply, Failure>>,
}

/// What all lanes of a hive share.
pub(crate) struct LaneContext {
    pub hive: Hive,
    pub address: PgConnectOptions,
    pub timeout: Duration,
}

/// Serves the queue until every handle of the hive is dropped and all requests are answered.
pub(crate) async fn serve(place: Arc<LaneContext>, mut queue: mpsc::Receiver<Job>, connections_max: usize) {
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
                    running.push(answer_job(Arc::clone(&place), connection, job));
                }
                None => break,
            },
            _ = tidy.tick() => idle.retain(|(_, since)| since.elapsed() < IDLE_MAX),
        }
    }
    while running.next().await.is_some() {}
}

/// Answers one request. Returns the connection if it can be used again.
async fn answer_job(place: Arc<LaneContext>, connection: Option<PgConnection>, job: Job) -> Option<PgConnection> {
    let Job { request, mut answer } = job;
    // The caller no longer waits. A heartbeat or a take must not happen late, as no node would learn of it.
    if answer.is_closed() {
        return connection;
    }
    let connection = match connection {
        Some(connection) => connection,
        // The connection attempt continues even if the caller gives up: the next request needs the connection too.
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

impl LaneContext {
    async fn connect(&self) -> Result<PgConnection, Failure> {
        let connection = with_timeout(self.timeout, self.connect_hedged()).await;
        let connection = connection.map_err(|error| outcome::failure(&error, "reach the hive's database"))?;
        match connection.server_version_num() {
            Some(version) if version < VERSION_MIN => {
                let said = format!("the server is PostgreSQL {}; it must be 13 or newer, upgrade it", version / 10_000);
                Err(Failure::fatal(codes::SERVER_TOO_OLD, said))
            }
            _ => Ok(connection),
        }
    }

    /// Starts further attempts while the first is still pending. A slow server gets its time; but a server that was
    /// unreachable a moment ago may answer a new attempt at once and the old one much later.
    async fn connect_hedged(&self) -> Result<PgConnection, Error> {
        let mut attempts = FuturesUnordered::new();
        loop {
            attempts.push(self.address.connect());
            tokio::select! {
                Some(result) = attempts.next() => return result,
                () = tokio::time::sleep(self.hive.reconnect_every()), if attempts.len() < ATTEMPTS_MAX => {}
            }
        }
    }

    async fn work(
        &self,
        mut connection: PgConnection,
        request: Request,
    ) -> (Option<PgConnection>, Result<Reply, Failure>) {
        // The server ends lock waits by itself; this timeout is for a server that does not answer.
        let timeout = self.timeout.max(self.hive.lease_lock_wait() + Duration::from_secs(1));
        match with_timeout(timeout, self.answer(&mut connection, request)).await {
            Ok((is_of_use, result)) => (is_of_use.then_some(connection), result),
            Err(error) => (None, Err(outcome::failure(&error, "ask the hive"))),
        }
    }

    /// Returns whether the connection can be used again, and the answer.
    async fn answer(
        &self,
        connection: &mut PgConnection,
        mut request: Request,
    ) -> Result<(bool, Result<Reply, Failure>), Error> {
        let (mut tries, mut made) = (0, false);
        loop {
            let script = match self.hive.ask(&request) {
                Ok(Plan::Ask(script)) => script,
                Ok(Plan::Known(reply)) => return Ok((true, Ok(reply))),
                Err(failure) => return Ok((true, Err(failure))),
            };
            let error = match session::run_script(connection, script).await {
                Ok(answers) => match answer::read(&request, &answers) {
                    Ok(ReadOutcome::Reply(reply)) => {
                        self.hive.on_reply(&request, &reply);
                        return Ok((true, Ok(reply)));
                    }
                    Ok(ReadOutcome::Unfit(failure)) => return Ok((true, Err(failure))),
                    Ok(ReadOutcome::Outdated) if !made => {
                        made = true;
                        if let Err(failure) = make_tables(connection).await {
                            return Ok(failure);
                        }
                        continue;
                    }
                    Ok(ReadOutcome::Outdated) => return Ok((true, Err(tables_changing()))),
                    Ok(ReadOutcome::Gap) => {
                        request = Request::View;
                        continue;
                    }
                    Err(stop) => return Ok((true, Err(stop.failure(request.doing())))),
                },
                Err(error) => error,
            };
            let is_of_use = session::roll_back(connection, &error).await;
            // A transaction that was rolled back may be repeated; one whose outcome is unknown may not.
            if is_of_use && outcome::is_collision(&error) && tries < TRIES_MAX {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(3) * tries).await;
            } else if is_of_use && outcome::is_missing_table(&error) && !made {
                made = true;
                if !answer::creates_tables(&request) {
                    return Ok((true, self.answer_without_tables(connection, &request).await));
                }
                if let Err(failure) = make_tables(connection).await {
                    return Ok(failure);
                }
            } else {
                return Ok((is_of_use, Err(outcome::failure(&error, request.doing()))));
            }
        }
    }

    async fn answer_without_tables(&self, connection: &mut PgConnection, request: &Request) -> Result<Reply, Failure> {
        let doing = request.doing();
        let answers = session::run_script(connection, self.hive.ask_time_and_server()).await;
        let answers = answers.map_err(|error| outcome::failure(&error, doing))?;
        answer::reply_without_tables(request, &answers).map_err(|stop| stop.failure(doing))
    }
}

/// Creates or migrates the tables. The error says whether the connection can be used again, and what failed.
async fn make_tables(connection: &mut PgConnection) -> Result<(), (bool, Result<Reply, Failure>)> {
    let Err(error) = schema::migrate(connection).await else { return Ok(()) };
    let is_of_use = session::roll_back(connection, &error).await;
    Err((is_of_use, Err(outcome::failure(&error, "make the hive's tables"))))
}

fn tables_changing() -> Failure {
    Failure::retry(codes::HIVE_BUSY, "join the hive: another node changes its tables, the join is retried")
}

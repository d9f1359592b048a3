//! One connection that is opened on first use and reopened after it broke.
//!
//! The session has no state: settings for a statement are made inside its transaction, so that a pooler may give each
//! transaction another server process.

use std::{sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt, TryStreamExt};

use crate::{
    config::Options,
    driver::{self, AssertSqlSafe, ConnectOptions, Either, Error, Executor, PgConnection, PgQueryResult, PgRow, Query},
    outcome,
};

pub(crate) struct Session {
    options: Arc<Options>,
    connection: Option<PgConnection>,
}

impl Session {
    pub fn new(options: &Arc<Options>) -> Session {
        Session { options: Arc::clone(options), connection: None }
    }

    /// Takes the connection out; the caller gives it back after use. If it does not, the next caller opens a new one.
    pub async fn take(&mut self) -> Result<PgConnection, Error> {
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => with_timeout(self.options.timeout, self.options.address.0.connect()).await,
        }
    }

    /// Puts the connection back after use. A failed transaction is rolled back; a connection in an unknown state is
    /// closed.
    pub async fn give_back<T>(&mut self, mut connection: PgConnection, result: &Result<T, Error>) {
        match result {
            Ok(_) => self.connection = Some(connection),
            Err(error) if outcome::is_server_reply(error) => {
                if with_timeout(self.options.timeout, run(&mut connection, "rollback".to_owned())).await.is_ok() {
                    self.connection = Some(connection);
                }
            }
            Err(_) => {}
        }
    }
}

/// Runs `work` with a time limit, because a lost server never answers.
pub(crate) async fn with_timeout<T>(
    timeout: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(timeout, work).await {
        Ok(result) => result,
        Err(_) => {
            let message = format!("no answer within {timeout:?}");
            Err(Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, message)))
        }
    }
}

/// Sends statements as one message. They contain no users' data.
pub(crate) fn send(
    connection: &mut PgConnection,
    statements: String,
) -> impl Stream<Item = Result<Either<PgQueryResult, PgRow>, Error>> {
    connection.fetch_many(driver::raw_sql(AssertSqlSafe(statements)))
}

/// Sends statements like [`send`], waits until all are done, and returns the rows of each statement.
pub(crate) async fn run(connection: &mut PgConnection, statements: String) -> Result<Vec<Vec<PgRow>>, Error> {
    let mut answers = vec![Vec::new()];
    let mut answer = std::pin::pin!(send(connection, statements));
    while let Some(item) = answer.next().await {
        match (item?, answers.last_mut()) {
            (Either::Right(row), Some(rows)) => rows.push(row),
            _ => answers.push(Vec::new()),
        }
    }
    answers.pop();
    Ok(answers)
}

/// Executes a statement with bound values. Only inside a transaction, because it needs two messages.
pub(crate) async fn run_bound(connection: &mut PgConnection, statement: Query<'_>) -> Result<Vec<PgRow>, Error> {
    connection.fetch(statement.persistent(false)).try_collect().await
}

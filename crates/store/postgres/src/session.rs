//! One connection that is made when it is needed, and made anew after it broke.
//!
//! There is no state of a session: what a statement needs is set inside its transaction, so that a pooler may give each
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

    /// The connection, to be given back after use; whoever forgets it only makes the next one wait for a new one.
    pub async fn take(&mut self) -> Result<PgConnection, Error> {
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => within(self.options.timeout, self.options.address.0.connect()).await,
        }
    }

    /// After whatever was done on it. A transaction that failed is rolled back; a connection in an unknown state goes.
    pub async fn give_back<T>(&mut self, mut connection: PgConnection, result: &Result<T, Error>) {
        match result {
            Ok(_) => self.connection = Some(connection),
            Err(error) if outcome::is_answer(error) => {
                if within(self.options.timeout, run(&mut connection, "rollback".to_owned())).await.is_ok() {
                    self.connection = Some(connection);
                }
            }
            Err(_) => {}
        }
    }
}

/// So long and no longer: a server that is gone says nothing.
pub(crate) async fn within<T>(timeout: Duration, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match tokio::time::timeout(timeout, work).await {
        Ok(result) => result,
        Err(_) => {
            let silent = format!("no answer within {timeout:?}");
            Err(Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, silent)))
        }
    }
}

/// Statements sent as one message, without values from outside in them.
pub(crate) fn send(
    connection: &mut PgConnection,
    statements: String,
) -> impl Stream<Item = Result<Either<PgQueryResult, PgRow>, Error>> {
    connection.fetch_many(driver::raw_sql(AssertSqlSafe(statements)))
}

/// As [`send`], until all is done; the rows of each statement.
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

/// A statement with values bound to it. Only inside a transaction: it takes two messages.
pub(crate) async fn bound(connection: &mut PgConnection, statement: Query<'_>) -> Result<Vec<PgRow>, Error> {
    connection.fetch(statement.persistent(false)).try_collect().await
}

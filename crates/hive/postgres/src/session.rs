//! One connection that is made when it is needed, and made anew after it broke. It keeps no state: a pooler may give
//! each transaction another server process.

use std::time::Duration;

use futures_util::StreamExt;

use crate::{
    driver::{self, AssertSqlSafe, Either, Error, Executor, PgConnection, PgRow},
    outcome,
    script::{Answers, Script},
};

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

/// Statements sent as one message; the rows of each.
pub(crate) async fn run(connection: &mut PgConnection, statements: String) -> Result<Vec<Vec<PgRow>>, Error> {
    // A message ends there, whatever follows.
    if statements.contains('\0') {
        return Err(Error::Encode("a name holds a NUL character".into()));
    }
    let mut answers = vec![Vec::new()];
    let mut answer = std::pin::pin!(connection.fetch_many(driver::raw_sql(AssertSqlSafe(statements))));
    while let Some(item) = answer.next().await {
        match (item?, answers.last_mut()) {
            (Either::Right(row), Some(rows)) => rows.push(row),
            _ => answers.push(Vec::new()),
        }
    }
    answers.pop();
    Ok(answers)
}

pub(crate) async fn play(connection: &mut PgConnection, script: Script) -> Result<Answers, Error> {
    let (text, asked) = script.end();
    Ok(Answers::of(run(connection, text).await?, &asked))
}

/// After an answer that was an error. False if the connection is of no use any more.
pub(crate) async fn roll_back(connection: &mut PgConnection, error: &Error) -> bool {
    outcome::is_of_use(error) && run(connection, "rollback".to_owned()).await.is_ok()
}

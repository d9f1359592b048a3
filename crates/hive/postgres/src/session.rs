//! Sends messages over one connection. The connection keeps no state, because a pooler may give each transaction
//! another server process.

use std::time::Duration;

use futures_util::StreamExt;

use crate::{
    driver::{self, AssertSqlSafe, Either, Error, Executor, PgConnection, PgRow},
    outcome,
    script::{Answers, Script},
};

/// Limits `work` to `timeout`, because a server that is gone does not answer at all.
pub(crate) async fn with_timeout<T>(
    timeout: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(timeout, work).await {
        Ok(result) => result,
        Err(_) => {
            let silent = format!("no answer within {timeout:?}");
            Err(Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, silent)))
        }
    }
}

/// Sends the statements as one message and returns the rows of each.
pub(crate) async fn run(connection: &mut PgConnection, statements: String) -> Result<Vec<Vec<PgRow>>, Error> {
    // The protocol ends a message at the first NUL and ignores the rest.
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

pub(crate) async fn run_script(connection: &mut PgConnection, script: Script) -> Result<Answers, Error> {
    let (text, asked) = script.end();
    Ok(Answers::select(run(connection, text).await?, &asked))
}

/// Rolls back after an error. Returns false if the connection cannot be used again.
pub(crate) async fn roll_back(connection: &mut PgConnection, error: &Error) -> bool {
    outcome::is_usable(error) && run(connection, "rollback".to_owned()).await.is_ok()
}

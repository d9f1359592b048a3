//! A few read-only connections: for documents, an operator's reads, and the recovery of a shard. A caller waits until
//! one is free.

use std::sync::{Arc, Mutex, PoisonError};

use honeyflow_runtime::Failure;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    config::Options,
    driver::{Error, PgConnection},
    session::Session,
    unfenced_writer,
};

pub(crate) struct Readers {
    options: Arc<Options>,
    idle: Mutex<Vec<Session>>,
    turns: Arc<Semaphore>,
}

/// One read-only connection, lent to one caller.
pub(crate) struct Reader {
    session: Session,
    pub connection: PgConnection,
    _turn: OwnedSemaphorePermit,
}

impl Readers {
    pub fn new(options: &Arc<Options>) -> Readers {
        let turns = Arc::new(Semaphore::new(options.readers.max(1)));
        Readers { options: Arc::clone(options), idle: Mutex::default(), turns }
    }

    pub async fn take(&self) -> Result<Result<Reader, Error>, Failure> {
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(|_| unfenced_writer::stopped())?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut session = idle.unwrap_or_else(|| Session::new(&self.options));
        Ok(match session.take().await {
            Ok(connection) => Ok(Reader { session, connection, _turn: turn }),
            Err(error) => Err(error),
        })
    }

    /// Returns a connection. If a task is dropped before it calls this, its connection is closed.
    pub async fn give_back<T>(&self, reader: Reader, result: &Result<T, Error>) {
        let Reader { mut session, connection, _turn } = reader;
        session.give_back(connection, result).await;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
    }
}

//! Writes one batch: reads what is stored, judges each write, then writes partition by partition. A key that occurs
//! twice in a batch is written in its order. A bad write fails alone: if the rows of a partition are refused together,
//! each is sent separately.

use std::{collections::HashMap, sync::OnceLock};

use futures_util::{StreamExt, stream};
use honeyflow_cassandra::{Batch, Session, Value, session};
use honeyflow_event::{Key, Stamp};
use honeyflow_runtime::{Class, Failure};
use honeyflow_sink::{Outcome, Write};

use crate::{
    codes,
    config::Options,
    group::groups,
    judge::{StoredState, Verdict, judge},
    key, outcome,
    table::{self, Table},
};

/// A write with its key and document converted to cells.
struct PreparedWrite {
    key: Key,
    stamp: Stamp,
    row: Vec<Value>,
    /// `None` deletes the row.
    cells: Option<Vec<Value>>,
    bytes: usize,
}

pub struct Writer<'a> {
    pub session: &'a Session,
    pub options: &'a Options,
    pub table: &'a Table,
}

impl Writer<'_> {
    pub async fn write(&self, writes: Vec<Write>) -> Vec<Outcome> {
        let mut outcomes: Vec<Option<Outcome>> = writes.iter().map(|_| None).collect();
        for wave in waves(&writes) {
            let mut prepared: Vec<(usize, PreparedWrite)> = Vec::with_capacity(wave.len());
            for at in wave {
                match self.prepare(&writes[at]) {
                    Ok(one) => prepared.push((at, one)),
                    Err(failure) => outcomes[at] = Some(Outcome::Failed(failure)),
                }
            }
            for (at, outcome) in self.write_distinct(prepared).await {
                outcomes[at] = Some(outcome);
            }
        }
        let unanswered = || Outcome::Failed(Failure::retry(codes::CASSANDRA_UNANSWERED, "the write was not answered"));
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(unanswered)).collect()
    }

    fn prepare(&self, write: &Write) -> Result<PreparedWrite, Failure> {
        let kinds: Vec<_> = self.table.key.iter().map(|column| column.kind.clone()).collect();
        let row = key::cells(&write.key, &kinds)?;
        let document = write.document.as_deref();
        let cells = document.map(|document| table::cells(&self.table.columns, document)).transpose()?;
        let bytes = write.key.len() + document.map_or(0, |document| document.to_string().len());
        Ok(PreparedWrite { key: write.key.clone(), stamp: write.stamp, row, cells, bytes })
    }

    /// Writes a set of writes with distinct keys.
    async fn write_distinct(&self, writes: Vec<(usize, PreparedWrite)>) -> Vec<(usize, Outcome)> {
        // Set once a request has reached no server: the other writes need not wait for the same failure.
        let away: OnceLock<Failure> = OnceLock::new();
        let away = &away;
        let judged = stream::iter(writes)
            .map(|(at, write)| async move {
                if let Some(failure) = away.get() {
                    return (at, write, Some(Outcome::Failed(failure.clone())));
                }
                let outcome = self.judge_and_remember(&write).await;
                if let Some(Outcome::Failed(failure)) = &outcome
                    && outcome::is_away(failure)
                {
                    let _ = away.set(failure.clone());
                }
                (at, write, outcome)
            })
            .buffer_unordered(self.options.requests_max);
        let (mut answered, mut to_write) = (Vec::new(), Vec::new());
        let mut judged = std::pin::pin!(judged);
        while let Some((at, write, outcome)) = judged.next().await {
            match outcome {
                Some(outcome) => answered.push((at, outcome)),
                None => to_write.push((at, write)),
            }
        }
        let partition = |write: &PreparedWrite| {
            let cells = self.table.key.iter().zip(&write.row).filter(|(column, _)| column.in_partition);
            key::text(&cells.map(|(_, cell)| cell.clone()).collect::<Vec<_>>())
        };
        let sized = to_write.iter().enumerate().map(|(n, (_, write))| (n, partition(write), write.bytes));
        let groups = groups(sized, self.options.batch_rows_max, self.options.batch_bytes_max);
        let to_write = &to_write;
        let written = stream::iter(groups)
            .map(|group| async move {
                let writes: Vec<&PreparedWrite> = group.iter().map(|n| &to_write[*n].1).collect();
                let outcomes = self.send(&writes).await;
                group.iter().map(|n| to_write[*n].0).zip(outcomes).collect::<Vec<_>>()
            })
            .buffer_unordered(self.options.requests_max);
        let mut written = std::pin::pin!(written);
        while let Some(group) = written.next().await {
            answered.extend(group);
        }
        answered
    }

    /// Judges a write; `None` = write it. The stamp of a delete is stored before its row is deleted: if the node stops
    /// between the two, the delete is written again.
    async fn judge_and_remember(&self, write: &PreparedWrite) -> Option<Outcome> {
        let judged = self.judge(write).await;
        if judged.is_some() || write.cells.is_some() {
            return judged;
        }
        self.remember(write).await.err().map(Outcome::Failed)
    }

    /// Compares a write with what is stored; `None` = it may be written.
    async fn judge(&self, write: &PreparedWrite) -> Option<Outcome> {
        let stored = match self.stored(write).await {
            Ok(stored) => stored,
            Err(failure) => return Some(Outcome::Failed(self.find_cause(failure).await)),
        };
        match judge(write.stamp, write.cells.is_none(), stored) {
            Verdict::Write => None,
            Verdict::Stale { stored } => Some(Outcome::Stale { stored }),
            Verdict::Compare => Some(match self.is_stored(write).await {
                Ok(true) => Outcome::Done,
                Ok(false) => Outcome::Stale { stored: write.stamp },
                Err(failure) => Outcome::Failed(failure),
            }),
        }
    }

    async fn stored(&self, write: &PreparedWrite) -> Result<StoredState, Failure> {
        let (statements, how) = (&self.table.statements, self.request_options());
        let failed = |error: session::Error| outcome::from_error(&error);
        let rows = self.session.execute(&statements.version, &write.row, &how).await.map_err(failed)?.into_rows();
        if let Some((version,)) = rows.first::<(Option<i64>,)>().map_err(|why| outcome::unreadable(&why))? {
            // A row without a stamp was not written by this sink: every write is newer.
            return Ok(StoredState::Row(stamp(version.unwrap_or(0))));
        }
        let deleted = (&self.options.table, &*write.key);
        let rows = self.session.execute(&statements.deleted, deleted, &how).await.map_err(failed)?.into_rows();
        let deleted = rows.first::<(i64,)>().map_err(|why| outcome::unreadable(&why))?;
        Ok(deleted.map_or(StoredState::Nothing, |(version,)| StoredState::Deleted(stamp(version))))
    }

    /// Whether the stored row equals the offered one.
    async fn is_stored(&self, write: &PreparedWrite) -> Result<bool, Failure> {
        let rows = self.session.execute(&self.table.statements.row, &write.row, &self.request_options()).await;
        let rows = rows.map_err(|error| outcome::from_error(&error))?.into_rows();
        let stored = rows.first::<Vec<Value>>().map_err(|why| outcome::unreadable(&why))?;
        let Some(stored) = stored else { return Ok(false) };
        let columns = &self.table.columns;
        let offered = write.cells.as_deref().unwrap_or_default();
        Ok(table::document_from(columns, &stored) == table::document_from(columns, offered))
    }

    /// Sends the rows of one partition.
    async fn send(&self, writes: &[&PreparedWrite]) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(writes.len());
        match self.send_together(writes).await {
            Ok(()) => outcomes.resize(writes.len(), Outcome::Done),
            Err(failure) if failure.class == Class::Reject && writes.len() > 1 => {
                for write in writes {
                    outcomes.push(match self.send_together(&[write]).await {
                        Ok(()) => Outcome::Done,
                        Err(failure) => Outcome::Failed(self.find_cause(failure).await),
                    });
                }
            }
            Err(failure) => {
                let failure = self.find_cause(failure).await;
                outcomes.resize(writes.len(), Outcome::Failed(failure));
            }
        }
        outcomes
    }

    async fn send_together(&self, writes: &[&PreparedWrite]) -> Result<(), Failure> {
        let how = self.request_options();
        let answer = match writes {
            [write] => {
                let (statement, values) = self.statement(write);
                self.session.execute(statement, values, &how).await
            }
            _ => {
                let mut batch = Batch::unlogged();
                for write in writes {
                    let (statement, values) = self.statement(write);
                    batch.push(statement, values);
                }
                self.session.batch(&batch, &how).await
            }
        };
        answer.map(|_| ()).map_err(|error| outcome::from_error(&error))
    }

    fn statement(&self, write: &PreparedWrite) -> (&honeyflow_cassandra::Statement, Vec<Value>) {
        let version = Value::Bigint(timestamp(write.stamp));
        match &write.cells {
            Some(cells) => {
                let values = write.row.iter().chain(cells).cloned().chain([version.clone(), version]).collect();
                (&self.table.statements.put, values)
            }
            None => {
                let values = std::iter::once(version).chain(write.row.iter().cloned()).collect();
                (&self.table.statements.delete, values)
            }
        }
    }

    async fn remember(&self, write: &PreparedWrite) -> Result<(), Failure> {
        let version = timestamp(write.stamp);
        let seconds = i32::try_from(self.options.deletes_kept.as_secs()).unwrap_or(i32::MAX);
        let values = (&self.options.table, &*write.key, version, version, seconds);
        let answer = self.session.execute(&self.table.statements.remember, values, &self.request_options()).await;
        answer.map(|_| ()).map_err(|error| outcome::from_error(&error))
    }

    /// Finds the cause of a refused request. The row is at fault only if the table still fits; if the table has
    /// changed, the failure is fatal and the workflow stops.
    async fn find_cause(&self, failure: Failure) -> Failure {
        if failure.code != codes::CASSANDRA_REFUSED {
            return failure;
        }
        match Table::look(self.session, self.options).await {
            Ok(_) => failure,
            Err(refused) => refused.failure(),
        }
    }

    fn request_options(&self) -> honeyflow_cassandra::Options {
        // Idempotent: the same stamp is the same write, however often it arrives.
        honeyflow_cassandra::Options::within(self.options.deadline).consistency(self.options.consistency).idempotent()
    }
}

/// Splits the writes into waves of indices. No wave contains a key twice, and the writes of a key keep their order.
fn waves(writes: &[Write]) -> Vec<Vec<usize>> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let mut waves: Vec<Vec<usize>> = Vec::new();
    for (at, write) in writes.iter().enumerate() {
        let wave = seen.entry(&write.key).and_modify(|wave| *wave += 1).or_insert(0);
        match waves.get_mut(*wave) {
            Some(known) => known.push(at),
            None => waves.push(vec![at]),
        }
    }
    waves
}

/// Converts a stamp to a timestamp; a stamp has 62 bits.
fn timestamp(stamp: Stamp) -> i64 {
    i64::try_from(stamp.0).unwrap_or(i64::MAX)
}

pub fn stamp(version: i64) -> Stamp {
    Stamp(version.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_keeps_its_order_and_occurs_once_per_wave() {
        let write = |key: &str| Write { key: key.into(), stamp: Stamp(1), document: None };
        assert_eq!(waves(&["a", "b", "a", "c", "a", "b"].map(write)), [vec![0, 1, 3], vec![2, 5], vec![4]]);
        assert!(waves(&[]).is_empty());
    }
}

//! Reads what a new owner of a shard needs to continue where the last owner stopped.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{EventId, Stamp};
use honeyflow_runtime::Failure;
use honeyflow_store::{
    RecoveredState, RunKey,
    write::{Checkpoint, CheckpointOutcome, Pause, StoredFailure},
};

use crate::{
    codes,
    driver::{Error, PgConnection, PgRow},
    literal,
    poll::statements::BEGIN,
    row, session,
};

const COLUMNS: &str = "c.tenant, c.entity, c.entity_key, c.workflow, c.phase, c.step, c.instance, c.version,
  array_to_string(c.covers, ','), c.attempt, c.stamp, c.outcome, c.output";

const NOW_MS: &str = "(extract(epoch from statement_timestamp()) * 1000)::bigint";

/// Reads everything in one snapshot, so that a checkpoint and the rows it covers are consistent.
pub(crate) async fn recover(connection: &mut PgConnection, shard: u16) -> Result<RecoveredState, Error> {
    let text = format!(
        "begin isolation level repeatable read read only;
         select {NOW_MS};
         {failures};
         select {COLUMNS} from honeyflow_checkpoint c where shard = {shard} and parked = 0
           and not exists (select 1 from unnest(c.covers) as covered(id)
             where not exists (select 1 from honeyflow_outbox o where o.id = covered.id))
           order by tenant, entity, entity_key, workflow, phase, stamp;
         {PAUSED};
         commit",
        failures = failures_text(&format!("where shard = {shard}")),
    );
    let answers = session::run(connection, text).await?;
    let rows = |n: usize| answers.get(n).into_iter().flatten();
    let store_ms = rows(1).next().map(|row| row::number(row, 0)).transpose()?.unwrap_or(0);
    Ok(RecoveredState {
        failures: rows(2).map(charged).collect::<Result<_, _>>()?,
        checkpoints: rows(3).map(checkpoint).collect::<Result<_, _>>()?,
        paused: rows(4).map(pause).collect::<Result<_, _>>()?,
        store_ms,
    })
}

/// Returns the checkpoints of runs whose rows are for one workflow alone. A run is found by the first row it covers.
pub(crate) async fn resumed(connection: &mut PgConnection, events: &[EventId]) -> Result<Vec<Checkpoint>, Error> {
    let ids = literal::integers(events);
    let text = format!(
        "{BEGIN}; select {COLUMNS} from honeyflow_outbox o join honeyflow_checkpoint c on c.shard = o.shard
           and c.tenant = o.tenant and c.entity = o.entity and c.entity_key = o.entity_key and c.workflow = o.workflow
           and c.parked = 0 and c.covers[1] = o.id
         where o.id = any ({ids}::bigint[]) order by c.phase, c.stamp; commit"
    );
    session::run(connection, text).await?.iter().skip(2).flatten().map(checkpoint).collect()
}

pub(crate) const PAUSED: &str =
    "select noun, name, why, (extract(epoch from since_at) * 1000)::bigint from honeyflow_pause order by noun, name";

/// Returns the statement that reads failures. `condition` may end with a limit.
pub(crate) fn failures_text(condition: &str) -> String {
    format!(
        "select tenant, entity, entity_key, workflow, step, instance, attempts,
           greatest(0, (extract(epoch from ready_at - statement_timestamp()) * 1000)::bigint), failure
         from (select * from honeyflow_failure {condition}) f order by ready_at"
    )
}

pub(crate) fn charged(row: &PgRow) -> Result<StoredFailure, Error> {
    Ok(StoredFailure {
        run: run(row)?,
        step: string(row, 4)?.into(),
        index: row::number(row, 5)?,
        attempts: row::number(row, 6)?,
        due_in: Duration::from_millis(row::number(row, 7)?),
        failure: failure(string(row, 8)?),
    })
}

fn checkpoint(row: &PgRow) -> Result<Checkpoint, Error> {
    let output = row::text(row, 12)?;
    let outcome = match string(row, 11)? {
        "done" => {
            let document = output.and_then(|text| serde_json::from_str(text).ok());
            CheckpointOutcome::Done(document.map(Arc::new))
        }
        "failed" => CheckpointOutcome::Failed(failure(output.unwrap_or_default())),
        "until" => CheckpointOutcome::Until(output.and_then(|text| text.parse().ok()).unwrap_or(0)),
        _ => CheckpointOutcome::Skipped,
    };
    Ok(Checkpoint {
        run: run(row)?,
        version: row::number(row, 7)?,
        covers: string(row, 8)?.split(',').filter_map(|id| id.parse().ok()).collect(),
        phase: row::number(row, 4)?,
        step: string(row, 5)?.into(),
        index: row::number(row, 6)?,
        attempt: row::number(row, 9)?,
        stamp: Stamp(row::number::<i64>(row, 10)?.cast_unsigned()),
        outcome,
        // The emitted events were stored with the checkpoint.
        emit: Vec::new(),
    })
}

pub(crate) fn pause(row: &PgRow) -> Result<Pause, Error> {
    Ok(Pause {
        noun: string(row, 0)?.to_owned(),
        name: string(row, 1)?.to_owned(),
        why: string(row, 2)?.to_owned(),
        since_ms: row::number(row, 3)?,
    })
}

fn run(row: &PgRow) -> Result<RunKey, Error> {
    Ok(RunKey {
        tenant: string(row, 0)?.into(),
        entity: string(row, 1)?.into(),
        key: string(row, 2)?.into(),
        workflow: string(row, 3)?.into(),
    })
}

/// Returns the text of a column that is never null.
pub(crate) fn string(row: &PgRow, column: usize) -> Result<&str, Error> {
    Ok(row::text(row, column)?.unwrap_or_default())
}

/// Parses a stored failure. A text that cannot be parsed becomes a failure with that text as its message.
fn failure(text: &str) -> Failure {
    serde_json::from_str(text).unwrap_or_else(|_| Failure::reject(codes::UNREADABLE_ROW, text))
}

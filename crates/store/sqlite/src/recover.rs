//! Reads what a new owner needs to continue where the last owner stopped.

use std::{sync::Arc, time::Duration};

use hashbrown::HashSet;
use honeyflow_event::{Event, EventId, Stamp};
use honeyflow_runtime::Failure;
use honeyflow_store::{
    RecoveredState, RunKey,
    write::{Checkpoint, CheckpointOutcome, Pause, StoredFailure},
};
use rusqlite::{Connection, Row, params};

use crate::{codes, outcome, write};

pub(crate) fn recover(connection: &mut Connection, shard: u16) -> Result<RecoveredState, Failure> {
    read(connection, shard).map_err(|error| outcome::failure(&error, "recover"))
}

fn read(connection: &mut Connection, shard: u16) -> rusqlite::Result<RecoveredState> {
    let snapshot = connection.transaction()?;
    let store_ms = write::now_ms(&snapshot)?;
    let mut recovered = RecoveredState { paused: paused(&snapshot)?, store_ms, ..RecoveredState::default() };
    // There is only shard 0; it owns everything.
    if shard == 0 {
        recovered.failures = failures(&snapshot, store_ms, u32::MAX)?;
        recovered.checkpoints = checkpoints(&snapshot)?;
    }
    Ok(recovered)
}

pub(crate) fn failures(connection: &Connection, now_ms: i64, limit: u32) -> rusqlite::Result<Vec<StoredFailure>> {
    connection
        .prepare_cached(
            "select tenant, entity, entity_key, workflow, step, instance, attempts, ready_at, failure
             from honeyflow_failure order by ready_at limit ?1",
        )?
        .query_map([limit], |row| {
            let due_in = row.get::<_, i64>(7)?.saturating_sub(now_ms).max(0).cast_unsigned();
            Ok(StoredFailure {
                run: run(row)?,
                step: row.get(4)?,
                index: row.get(5)?,
                attempts: row.get(6)?,
                due_in: Duration::from_millis(due_in),
                failure: failure(row.get_ref(8)?.as_str()?),
            })
        })?
        .collect()
}

const COLUMNS: &str = "tenant, entity, entity_key, workflow, phase, step, instance, version, covers, attempt, stamp,
  outcome, output";

fn checkpoints(connection: &Connection) -> rusqlite::Result<Vec<Checkpoint>> {
    connection
        .prepare_cached(&format!(
            "select {COLUMNS} from honeyflow_checkpoint as c where parked = 0
               and not exists (select 1 from json_each(c.covers) as covered
                               where covered.value not in (select id from honeyflow_outbox))
             order by tenant, entity, entity_key, workflow, phase, stamp"
        ))?
        .query_map([], checkpoint)?
        .collect()
}

/// Returns the checkpoints of runs whose rows are for one workflow alone; nearly always there are none.
pub(crate) fn resumed(connection: &Connection, events: &[Event]) -> rusqlite::Result<Vec<Checkpoint>> {
    if events.iter().all(|event| event.workflow.is_none())
        || !connection.prepare_cached("select 1 from honeyflow_checkpoint where parked = 0 limit 1")?.exists([])?
    {
        return Ok(Vec::new());
    }
    let there: HashSet<EventId> = events.iter().map(|event| event.id).collect();
    let mut statement = connection.prepare_cached(&format!(
        "select {COLUMNS} from honeyflow_checkpoint
         where tenant = ?1 and entity = ?2 and entity_key = ?3 and workflow = ?4 and parked = 0 order by phase, stamp"
    ))?;
    let mut resumed = Vec::new();
    for event in events.iter().filter(|event| event.workflow.is_some()) {
        let rows = statement.query_map(params![event.tenant, event.entity, event.key, event.workflow], checkpoint)?;
        for kept in rows {
            let kept = kept?;
            // Each checkpoint once, although several rows may form one run.
            if kept.covers.first() == Some(&event.id) && kept.covers.iter().all(|id| there.contains(id)) {
                resumed.push(kept);
            }
        }
    }
    Ok(resumed)
}

fn checkpoint(row: &Row<'_>) -> rusqlite::Result<Checkpoint> {
    let output: Option<String> = row.get(12)?;
    let outcome = match row.get_ref(11)?.as_str()? {
        "done" => {
            let document = output.as_deref().and_then(|text| serde_json::from_str(text).ok());
            CheckpointOutcome::Done(document.map(Arc::new))
        }
        "failed" => CheckpointOutcome::Failed(failure(output.as_deref().unwrap_or_default())),
        "until" => CheckpointOutcome::Until(output.and_then(|text| text.parse().ok()).unwrap_or(0)),
        _ => CheckpointOutcome::Skipped,
    };
    Ok(Checkpoint {
        run: run(row)?,
        version: row.get(7)?,
        covers: serde_json::from_str(row.get_ref(8)?.as_str()?).unwrap_or_default(),
        phase: row.get(4)?,
        step: row.get(5)?,
        index: row.get(6)?,
        attempt: row.get(9)?,
        stamp: Stamp(row.get::<_, i64>(10)?.cast_unsigned()),
        outcome,
        // The emitted events were stored with the checkpoint.
        emit: Vec::new(),
    })
}

pub(crate) fn paused(connection: &Connection) -> rusqlite::Result<Vec<Pause>> {
    connection
        .prepare_cached("select noun, name, why, since_ms from honeyflow_pause order by noun, name")?
        .query_map([], |row| {
            Ok(Pause { noun: row.get(0)?, name: row.get(1)?, why: row.get(2)?, since_ms: row.get(3)? })
        })?
        .collect()
}

fn run(row: &Row<'_>) -> rusqlite::Result<RunKey> {
    Ok(RunKey { tenant: row.get(0)?, entity: row.get(1)?, key: row.get(2)?, workflow: row.get(3)? })
}

/// Parses a stored failure. A text that cannot be parsed becomes a failure with that text as its message.
fn failure(text: &str) -> Failure {
    serde_json::from_str(text).unwrap_or_else(|_| Failure::reject(codes::UNREADABLE_ROW, text))
}

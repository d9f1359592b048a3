//! Executes fenced writes: it compares the fence first, in the same transaction. Every operation is idempotent.

use honeyflow_event::EventId;
use honeyflow_hive::{Fence, contract, fence};
use honeyflow_runtime::{Class, Failure};
use honeyflow_store::{
    Op, Reply, RunKey, Write,
    write::{Checkpoint, CheckpointOutcome, FanOut, History, ParkRequest},
};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use crate::{
    append::{self, DEDUPE_MS},
    outcome, park_row, planted, row, schema, signal,
};

/// Executes a write. `pages` are the containers of each `FanOut`, in the order of the operations.
pub(crate) fn write(
    connection: &Connection,
    write: &Write,
    pages: &[Vec<honeyflow_event::Key>],
) -> Result<Reply, Failure> {
    perform(connection, write, pages).map_err(|error| outcome::failure(&error, "write"))
}

fn perform(connection: &Connection, write: &Write, pages: &[Vec<honeyflow_event::Key>]) -> rusqlite::Result<Reply> {
    let journals = |op: &Op| matches!(op, Op::Checkpoint(_) | Op::Charge { .. });
    let unchecked = planted::on("PB-2") && write.ops.iter().all(journals);
    if !unchecked && !holds(connection, &write.fence)? {
        return Ok(Reply::Fenced);
    }
    let now_ms = now_ms(connection)?;
    let mut pages = pages.iter();
    for op in &write.ops {
        match op {
            Op::Settle { events, runs } => settle(connection, events, runs, now_ms)?,
            Op::Charge { run, step, index, attempts, due_in, failure } => {
                let ready_at = now_ms.saturating_add(append::millis(*due_in));
                // A repeated write has the same number of attempts and must not delay the due time.
                cached(
                    connection,
                    "insert into honeyflow_failure(tenant, entity, entity_key, workflow, phase, step, instance, attempts,
                       ready_at, failure) values (?1, ?2, ?3, ?4, 0, ?5, ?6, ?7, ?8, ?9)
                     on conflict(tenant, entity, entity_key, workflow, phase, step, instance) do update
                     set attempts = excluded.attempts, ready_at = excluded.ready_at, failure = excluded.failure
                     where excluded.attempts > attempts",
                )?
                .execute(params![
                    run.tenant,
                    run.entity,
                    run.key,
                    run.workflow,
                    step,
                    index,
                    attempts,
                    ready_at,
                    failure_text(failure)
                ])?;
            }
            Op::Park(parked) => park(connection, parked, now_ms)?,
            Op::ParkRow { event, failure } => park_row::park_row(connection, *event, failure, now_ms)?,
            Op::Checkpoint(checkpoint) => put_checkpoint(connection, checkpoint, now_ms)?,
            Op::Signal { event, keep } => signal::put(connection, event, *keep, now_ms)?,
            Op::Replace { event, by } => {
                if delete_event(connection, *event)? {
                    append::insert_all(connection, by, now_ms)?;
                }
            }
            Op::FanOut(fan_out) => {
                let containers = pages.next().map_or(&[][..], Vec::as_slice);
                fan_out_page(connection, fan_out, containers)?;
            }
            Op::History(history) => put_history(connection, history, now_ms)?,
        }
    }
    Ok(Reply::Committed)
}

fn holds(connection: &Connection, fence: &Fence) -> rusqlite::Result<bool> {
    let epoch = i64::try_from(fence.epoch().0).unwrap_or(i64::MAX);
    // The leases of an outbox are in the hive of this name, independent of the name of the nodes' own hive.
    let shown = params![contract::HIVE, fence.lease(), epoch, fence.holder().to_string()];
    cached(connection, fence::SQLITE)?.exists(shown)
}

pub(crate) fn now_ms(connection: &Connection) -> rusqlite::Result<i64> {
    thread_local! {
        static TEXT: String = format!("select {}", schema::NOW_MS);
    }
    TEXT.with(|text| cached(connection, text)?.query_row([], |row| row.get(0)))
}

fn cached<'c>(connection: &'c Connection, sql: &str) -> rusqlite::Result<CachedStatement<'c>> {
    connection.prepare_cached(sql)
}

fn settle(connection: &Connection, events: &[EventId], runs: &[RunKey], now_ms: i64) -> rusqlite::Result<()> {
    let ids = append::id_list(events);
    cached(
        connection,
        "insert or replace into honeyflow_dedupe(tenant, entity, entity_key, dedupe, until_ms)
         select tenant, entity, entity_key, dedupe, ?2 from honeyflow_outbox
         where id in (select value from json_each(?1)) and dedupe is not null and entity <> ''",
    )?
    .execute(params![ids, now_ms + DEDUPE_MS])?;
    cached(connection, "delete from honeyflow_outbox where id in (select value from json_each(?1))")?
        .execute([&ids])?;
    clear(connection, runs)
}

/// Clears the journal of runs. These tables are nearly always empty; then nothing is looked up per run.
fn clear(connection: &Connection, runs: &[RunKey]) -> rusqlite::Result<()> {
    if runs.is_empty() {
        return Ok(());
    }
    let (failures, parked, checkpoints): (bool, bool, bool) = cached(
        connection,
        "select exists(select 1 from honeyflow_failure), exists(select 1 from honeyflow_parked),
           exists(select 1 from honeyflow_checkpoint)",
    )?
    .query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    if failures {
        let mut delete = cached(connection, DELETE_FAILURES)?;
        for run in runs {
            delete.execute(params![run.tenant, run.entity, run.key, run.workflow])?;
        }
    }
    if checkpoints {
        let mut delete = cached(connection, DELETE_CHECKPOINTS)?;
        for run in runs {
            delete.execute(params![run.tenant, run.entity, run.key, run.workflow])?;
        }
    }
    if parked {
        // A parked message carries its own data: a later success heals only parked entries that read the current data.
        let mut heal = cached(
            connection,
            "delete from honeyflow_parked
             where tenant = ?1 and entity = ?2 and entity_key = ?3 and workflow = ?4 and event = 0",
        )?;
        for run in runs {
            heal.execute(params![run.tenant, run.entity, run.key, run.workflow])?;
        }
    }
    Ok(())
}

const DELETE_FAILURES: &str =
    "delete from honeyflow_failure where tenant = ?1 and entity = ?2 and entity_key = ?3 and workflow = ?4";
/// Keeps the checkpoints that belong to a parked message.
const DELETE_CHECKPOINTS: &str = "delete from honeyflow_checkpoint
     where tenant = ?1 and entity = ?2 and entity_key = ?3 and workflow = ?4
       and parked not in (select id from honeyflow_parked where event <> 0)";

fn delete_event(connection: &Connection, event: EventId) -> rusqlite::Result<bool> {
    Ok(cached(connection, "delete from honeyflow_outbox where id = ?1")?.execute([event])? == 1)
}

fn park(connection: &Connection, parked: &ParkRequest, now_ms: i64) -> rusqlite::Result<()> {
    let run = &parked.run;
    let event = parked.message.unwrap_or(0);
    let id: i64 = cached(
        connection,
        "insert into honeyflow_parked(tenant, entity, entity_key, workflow, step, event, kind, priority, version, attempts,
           class, code, message, payload, parked_at, change, columns)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
         on conflict(tenant, entity, entity_key, workflow, phase, step, instance, event) do update
         set kind = excluded.kind, priority = excluded.priority, version = excluded.version, attempts = excluded.attempts,
           class = excluded.class, code = excluded.code, message = excluded.message, payload = excluded.payload,
           parked_at = excluded.parked_at, change = excluded.change, columns = excluded.columns
         returning id",
    )?
    .query_row(
        params![
            run.tenant,
            run.entity,
            run.key,
            run.workflow,
            parked.step,
            event,
            row::kind_name(parked.kind),
            parked.priority,
            parked.version,
            parked.attempts,
            class_name(parked.failure.class),
            parked.failure.code,
            parked.failure.message,
            parked.payload,
            now_ms,
            parked.change.text(),
            parked.columns
        ],
        |row| row.get(0),
    )?;
    // Its checkpoints move to the parked entry, so that newer runs of the key do not use them; a retry restores them.
    cached(
        connection,
        "update or replace honeyflow_checkpoint set parked = ?5
         where tenant = ?1 and entity = ?2 and entity_key = ?3 and workflow = ?4 and parked = 0",
    )?
    .execute(params![run.tenant, run.entity, run.key, run.workflow, id])?;
    cached(connection, DELETE_FAILURES)?.execute(params![run.tenant, run.entity, run.key, run.workflow])?;
    for event in parked.events.iter().filter(|_| !planted::on("PB-20")) {
        delete_event(connection, *event)?;
    }
    Ok(())
}

fn put_checkpoint(connection: &Connection, checkpoint: &Checkpoint, now_ms: i64) -> rusqlite::Result<()> {
    let run = &checkpoint.run;
    let (outcome, output) = match &checkpoint.outcome {
        CheckpointOutcome::Done(document) => ("done", document.as_ref().map(ToString::to_string)),
        CheckpointOutcome::Failed(failure) => ("failed", Some(failure_text(failure))),
        CheckpointOutcome::Skipped => ("skipped", None),
        CheckpointOutcome::Until(at_ms) => ("until", Some(at_ms.to_string())),
    };
    // The first outcome stays; only the start of a wait is replaced by its end.
    let stored = cached(
        connection,
        "insert into honeyflow_checkpoint(tenant, entity, entity_key, workflow, phase, step, instance, version, covers,
           attempt, stamp, outcome, output, created_at)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
         on conflict(tenant, entity, entity_key, workflow, parked, phase, step, instance) do update
         set attempt = excluded.attempt, stamp = excluded.stamp, outcome = excluded.outcome, output = excluded.output
         where outcome = 'until' and excluded.outcome <> 'until'",
    )?
    .execute(params![
        run.tenant,
        run.entity,
        run.key,
        run.workflow,
        checkpoint.phase,
        checkpoint.step,
        checkpoint.index,
        checkpoint.version,
        append::id_list(&checkpoint.covers),
        checkpoint.attempt,
        checkpoint.stamp.0.cast_signed(),
        outcome,
        output,
        now_ms
    ])?;
    if stored == 1 {
        append::insert_all(connection, &checkpoint.emit, now_ms)?;
    }
    Ok(())
}

/// Stores one page of a fan-out. The next position gets a new row: with the same row, a repeated write would store the
/// page again.
fn fan_out_page(
    connection: &Connection,
    fan_out: &FanOut,
    containers: &[honeyflow_event::Key],
) -> rusqlite::Result<()> {
    let payload: Option<Option<String>> =
        cached(connection, "select cast(payload as text) from honeyflow_outbox where id = ?1")?
            .query_row([fan_out.event], |row| row.get(0))
            .optional()?;
    let Some(payload) = payload else { return Ok(()) };
    let pending: i64 = cached(
        connection,
        "select count(*) from (select 1 from honeyflow_outbox
           where shard = 0 and priority = ?1 and priority <> 4 and ready_at is null and kind = 'row' limit ?2)",
    )?
    .query_row(params![honeyflow_event::PRIORITY_FAN_OUT, fan_out.pending_max], |row| row.get(0))?;
    if pending >= i64::from(fan_out.pending_max) {
        return Ok(());
    }
    let mut insert = cached(
        connection,
        "insert into honeyflow_outbox(tenant, entity, entity_key, priority, workflow, root, change, payload)
         values (?1, ?2, ?3, ?4, ?5, ?6, 'related', ?7)",
    )?;
    for container in containers {
        insert.execute(params![
            fan_out.tenant,
            fan_out.entity,
            container,
            honeyflow_event::PRIORITY_FAN_OUT,
            fan_out.workflow,
            fan_out.root,
            fan_out.payload
        ])?;
    }
    let full = u32::try_from(containers.len()).is_ok_and(|count| count >= fan_out.page);
    if let (true, Some(last)) = (full, containers.last()) {
        let moved = append::with_position(payload.as_deref(), last);
        cached(
            connection,
            "insert into honeyflow_outbox(format, kind, tenant, entity, entity_key, priority, workflow, created_at, dedupe,
               traceparent, root, payload)
             select 1, kind, tenant, entity, entity_key, priority, workflow, created_at, dedupe, traceparent, root, ?2
             from honeyflow_outbox where id = ?1",
        )?
        .execute(params![fan_out.event, moved])?;
    }
    delete_event(connection, fan_out.event)?;
    Ok(())
}

fn put_history(connection: &Connection, history: &History, now_ms: i64) -> rusqlite::Result<()> {
    let run = &history.run;
    // A repeated write has the same steps, times included.
    cached(
        connection,
        "insert into honeyflow_run(tenant, entity, entity_key, workflow, version, verdict, steps, ended_at)
         select ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
         where not exists (select 1 from honeyflow_run where entity = ?2 and entity_key = ?3 and workflow = ?4
           and tenant = ?1 and version = ?5 and verdict = ?6 and steps = ?7)",
    )?
    .execute(params![
        run.tenant,
        run.entity,
        run.key,
        run.workflow,
        history.version,
        history.verdict,
        history.steps.to_string(),
        now_ms
    ])?;
    Ok(())
}

pub(crate) fn class_name(class: Class) -> &'static str {
    match class {
        Class::Retry => "retry",
        Class::RetryAfter => "retry-after",
        Class::Reject => "reject",
        Class::Fatal => "fatal",
    }
}

/// Returns the failure as JSON. Serialising a failure cannot fail.
fn failure_text(failure: &Failure) -> String {
    serde_json::to_string(failure).unwrap_or_default()
}

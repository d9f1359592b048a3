//! Answers the requests of an operator. Reads use the load connection, changes the writer.

use honeyflow_event::{Event, EventId, Key, Name, key};
use honeyflow_runtime::Failure;
use honeyflow_store::{
    KeyColumn, KeyType, Names,
    admin::{Admin, AdminReply, Lag, ParkedFilter, ParkedRow, RetryMode, Task},
    write::WHOLE_RUN_STEP,
};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params, params_from_iter, types::Value};

use crate::{
    codes, definition, outcome, recover, rewrite,
    row::{self, COLUMNS, RowContent},
    value, write,
};

/// The number of bytes of a payload that an operator is shown.
const HEAD_BYTES: i64 = 4096;

pub(crate) fn read(connection: &Connection, admin: &Admin) -> Result<AdminReply, Failure> {
    let result = match admin {
        Admin::Lag => lag(connection).map(AdminReply::Lag),
        Admin::Parked { filter, after, limit } => parked(connection, filter, *after, *limit).map(AdminReply::Parked),
        Admin::Paused => recover::paused(connection).map(AdminReply::Paused),
        Admin::Events { entity, key, limit } => events(connection, entity, key, *limit).map(AdminReply::Events),
        Admin::Waiting { events } => waiting(connection, events).map(AdminReply::Ids),
        Admin::Failures { limit } => write::now_ms(connection)
            .and_then(|now_ms| recover::failures(connection, now_ms, *limit))
            .map(AdminReply::Failures),
        Admin::History { limit } => history(connection, *limit).map(AdminReply::History),
        Admin::TableKeys { table, key, after, limit } => {
            let after = after.as_ref().map(|after| parts(key, after)).transpose()?;
            table_keys(connection, table, key, after, *limit).map(AdminReply::Keys)
        }
        Admin::Tasks => tasks(connection).map(AdminReply::Tasks),
        Admin::Definitions { workflow } => {
            definition::list(connection, workflow.as_deref()).map(AdminReply::Definitions)
        }
        other => return Err(Failure::fatal(codes::MISPLACED_REQUEST, format!("not a read request: {other:?}"))),
    };
    result.map_err(|error| outcome::failure(&error, "read"))
}

pub(crate) fn write(connection: &Connection, admin: &Admin) -> Result<AdminReply, Failure> {
    let result = match admin {
        Admin::RetryParked { filter, mode } => retry_parked(connection, filter, mode).map(AdminReply::Count),
        Admin::PutDefinitions(wanted) => definition::put(connection, wanted).map(AdminReply::Versions),
        Admin::DropParked(filter) => drop_parked(connection, filter).map(AdminReply::Count),
        Admin::Pause(pause) => {
            // The store sets the start time; a second pause only changes the reason.
            write::now_ms(connection)
                .and_then(|now_ms| {
                    connection.execute(
                        "insert into honeyflow_pause(noun, name, why, since_ms) values (?1, ?2, ?3, ?4)
                         on conflict(noun, name) do update set why = excluded.why",
                        params![pause.noun, pause.name, pause.why, now_ms],
                    )
                })
                .map(|_| AdminReply::Done)
        }
        Admin::Resume { noun, name } => connection
            .execute("delete from honeyflow_pause where noun = ?1 and name = ?2", params![noun, name])
            .map(|_| AdminReply::Done),
        Admin::PutTask { noun, name, state } => write::now_ms(connection)
            .and_then(|now_ms| {
                connection.execute(
                    "insert into honeyflow_task(noun, name, state, created_at) values (?1, ?2, ?3, ?4)
                     on conflict(noun, name) do update set state = excluded.state",
                    params![noun, name, state, now_ms],
                )
            })
            .map(|_| AdminReply::Done),
        other => return Err(Failure::fatal(codes::MISPLACED_REQUEST, format!("not a write request: {other:?}"))),
    };
    result.map_err(|error| outcome::failure(&error, "change"))
}

/// Returns the backlog. The counts come from the indexes; the count of the default level is that of the table minus all
/// others. The oldest row of each level is the one with the lowest id.
fn lag(connection: &Connection) -> rusqlite::Result<Lag> {
    let now_ms = write::now_ms(connection)?;
    let mut by_priority = [0_u64; honeyflow_event::PRIORITY_LEVELS];
    let mut oldest_at = None;
    let mut levels = connection.prepare_cached(
        "select min(max(priority, 0), 9), count(*), min(id) from honeyflow_outbox
         where ready_at is null and priority <> 4 group by priority
         union all
         select 4, (select count(*) from honeyflow_outbox)
                     - (select count(*) from honeyflow_outbox where ready_at is null and priority <> 4)
                     - (select count(*) from honeyflow_outbox where ready_at is not null),
           (select id from honeyflow_outbox where ready_at is null and +priority = 4 order by id limit 1)",
    )?;
    let mut rows = levels.query([])?;
    while let Some(row) = rows.next()? {
        by_priority[usize::from(row.get::<_, u8>(0)?)] += count(row, 1)?;
        let created_at: Option<i64> = connection
            .prepare_cached("select created_at from honeyflow_outbox where id = ?1")?
            .query_row([row.get::<_, Option<i64>>(2)?], |row| row.get(0))
            .optional()?;
        oldest_at = oldest_at.into_iter().chain(created_at).min();
    }
    let mut due = connection.prepare_cached(
        "select min(max(priority, 0), 9), count(*), min(ready_at) from honeyflow_outbox
         where ready_at is not null and ready_at <= ?1 group by 1",
    )?;
    let mut rows = due.query([now_ms])?;
    while let Some(row) = rows.next()? {
        by_priority[usize::from(row.get::<_, u8>(0)?)] += count(row, 1)?;
        // A delayed event counts as waiting from its due time on.
        oldest_at = oldest_at.into_iter().chain([row.get(2)?]).min();
    }
    let (delayed, parked) = connection
        .prepare_cached(
            "select (select count(*) from honeyflow_outbox where ready_at is not null and ready_at > ?1),
               (select count(*) from honeyflow_parked)",
        )?
        .query_row([now_ms], |row| Ok((count(row, 0)?, count(row, 1)?)))?;
    Ok(Lag {
        waiting: by_priority.iter().sum(),
        by_priority: (0..).zip(by_priority).filter(|(_, count)| *count > 0).collect(),
        delayed,
        parked,
        oldest_ms: oldest_at.map_or(0, |at_ms: i64| now_ms.saturating_sub(at_ms).max(0).cast_unsigned()),
    })
}

fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)?.max(0).cast_unsigned())
}

/// A filter as an SQL condition with bound values.
struct Condition {
    sql: String,
    values: Vec<Value>,
}

fn condition(filter: &ParkedFilter) -> Condition {
    let ParkedFilter { id, tenant, entity, key, workflow, code } = filter;
    let text = |name: &Option<std::sync::Arc<str>>| name.as_ref().map(|name| Value::Text(name.to_string()));
    let mut condition = Condition { sql: "1 = 1".to_owned(), values: Vec::new() };
    for (column, value) in [
        ("id", id.map(Value::Integer)),
        ("tenant", text(tenant)),
        ("entity", text(entity)),
        ("entity_key", text(key)),
        ("workflow", text(workflow)),
        ("code", code.clone().map(Value::Text)),
    ] {
        if let Some(value) = value {
            condition.values.push(value);
            condition.sql.push_str(&format!(" and {column} = ?{}", condition.values.len()));
        }
    }
    condition
}

fn parked(connection: &Connection, filter: &ParkedFilter, after: i64, limit: u32) -> rusqlite::Result<Vec<ParkedRow>> {
    let Condition { sql, mut values } = condition(filter);
    let n = values.len();
    values.extend([after.into(), limit.into(), HEAD_BYTES.into()]);
    let mut statement = connection.prepare_cached(&format!(
        "select id, tenant, entity, entity_key, workflow, step, attempts, class, code, message, parked_at,
           ifnull(octet_length(payload), 0), substr(cast(payload as blob), 1, ?{}), version
         from honeyflow_parked where {sql} and id > ?{} order by id limit ?{}",
        n + 3,
        n + 1,
        n + 2
    ))?;
    statement
        .query_map(params_from_iter(values), |row| {
            let workflow: String = row.get(4)?;
            let head: Option<Vec<u8>> = row.get(12)?;
            Ok(ParkedRow {
                id: row.get(0)?,
                tenant: row.get(1)?,
                entity: row.get(2)?,
                key: row.get(3)?,
                workflow: Some(workflow).filter(|workflow| !workflow.is_empty()),
                step: row.get(5)?,
                version: row.get(13)?,
                attempts: row.get(6)?,
                class: row.get(7)?,
                code: row.get(8)?,
                message: row.get(9)?,
                parked_ms: row.get(10)?,
                payload_bytes: count(row, 11)?,
                // The payload is cut after a number of bytes, so its last character may be incomplete.
                payload_head: head.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            })
        })?
        .collect()
}

/// Turns each parked entry into an event for its one workflow, inside the database; its attempts start at 0 again, its
/// outputs are kept.
fn retry_parked(connection: &Connection, filter: &ParkedFilter, mode: &RetryMode) -> rusqlite::Result<u64> {
    let Condition { sql, values } = condition(filter);
    let ids: Vec<i64> = connection
        .prepare(&format!("select id from honeyflow_parked where {sql} order by id"))?
        .query_map(params_from_iter(values), |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let mut insert = connection.prepare_cached(
        "insert into honeyflow_outbox(format, kind, tenant, entity, entity_key, priority, workflow, change, columns,
           payload)
         select format, kind, tenant, entity, entity_key, priority, nullif(workflow, ''), change, columns, payload
         from honeyflow_parked where id = ?1",
    )?;
    let mut take_up = connection.prepare_cached(
        "update or ignore honeyflow_checkpoint set parked = 0, covers = '[' || ?2 || ']'
         where (tenant, entity, entity_key, workflow) =
             (select tenant, entity, entity_key, workflow from honeyflow_parked where id = ?1) and parked = ?1",
    )?;
    let mut forgive = connection.prepare_cached(
        "delete from honeyflow_failure where (tenant, entity, entity_key, workflow) =
             (select tenant, entity, entity_key, workflow from honeyflow_parked where id = ?1)",
    )?;
    for id in &ids {
        let event = insert.insert([id])?;
        forget_outputs(connection, *id, if let RetryMode::Without(steps) = mode { steps } else { &[] })?;
        if *mode != RetryMode::FromStart {
            take_up.execute([*id, event])?;
        }
        forgive.execute([id])?;
        remove_parked(connection, *id)?;
    }
    Ok(ids.len() as u64)
}

/// Deletes the checkpoints of these steps and of all failed steps, which the retry executes again, and the checkpoint
/// of the whole run.
fn forget_outputs(connection: &Connection, id: i64, steps: &[Name]) -> rusqlite::Result<()> {
    let mut forget = connection.prepare_cached(
        "delete from honeyflow_checkpoint where (tenant, entity, entity_key, workflow) =
             (select tenant, entity, entity_key, workflow from honeyflow_parked where id = ?1)
           and parked = ?1 and (step = ?2 or outcome = 'failed')",
    )?;
    forget.execute(params![id, WHOLE_RUN_STEP])?;
    for step in steps {
        forget.execute(params![id, step])?;
    }
    Ok(())
}

fn drop_parked(connection: &Connection, filter: &ParkedFilter) -> rusqlite::Result<u64> {
    let Condition { sql, values } = condition(filter);
    let ids: Vec<i64> = connection
        .prepare(&format!("select id from honeyflow_parked where {sql}"))?
        .query_map(params_from_iter(values), |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for id in &ids {
        remove_parked(connection, *id)?;
    }
    Ok(ids.len() as u64)
}

fn remove_parked(connection: &Connection, id: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "delete from honeyflow_checkpoint where (tenant, entity, entity_key, workflow) =
                 (select tenant, entity, entity_key, workflow from honeyflow_parked where id = ?1) and parked = ?1",
        )?
        .execute([id])?;
    connection.prepare_cached("delete from honeyflow_parked where id = ?1")?.execute([id])?;
    Ok(())
}

fn events(connection: &Connection, entity: &str, key: &str, limit: u32) -> rusqlite::Result<Vec<Event>> {
    let mut names = Names::default();
    let mut statement = connection.prepare_cached(&format!(
        "select {COLUMNS} from honeyflow_outbox where entity = ?2 and entity_key = ?3 order by id limit ?4"
    ))?;
    let mut rows = statement.query(params![HEAD_BYTES, entity, key, limit])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        // An operator sees where an event waits; that needs no large payload.
        if let RowContent::Event(event) = row::read(row, &mut names, u64::MAX)? {
            events.push(event);
        }
    }
    Ok(events)
}

fn waiting(connection: &Connection, events: &[EventId]) -> rusqlite::Result<Vec<EventId>> {
    let mut find = connection.prepare_cached("select id from honeyflow_outbox where id = ?1")?;
    let mut found = Vec::new();
    for event in events {
        found.extend(find.query_row([event], |row| row.get::<_, EventId>(0)).optional()?);
    }
    Ok(found)
}

fn history(connection: &Connection, limit: u32) -> rusqlite::Result<Vec<serde_json::Value>> {
    connection
        .prepare_cached(
            "select tenant, entity, entity_key, workflow, version, verdict, steps, ended_at
             from honeyflow_run order by id desc limit ?1",
        )?
        .query_map([limit], |row| {
            let steps: String = row.get(6)?;
            Ok(serde_json::json!({
                "tenant": row.get::<_, String>(0)?,
                "entity": row.get::<_, String>(1)?,
                "key": row.get::<_, String>(2)?,
                "workflow": row.get::<_, String>(3)?,
                "version": row.get::<_, u32>(4)?,
                "verdict": row.get::<_, String>(5)?,
                "steps": serde_json::from_str::<serde_json::Value>(&steps).unwrap_or_default(),
                "ended_ms": row.get::<_, i64>(7)?,
            }))
        })?
        .collect()
}

/// Returns the parts of a key text as values of its columns' types.
fn parts(columns: &[KeyColumn], key: &str) -> Result<Vec<Value>, Failure> {
    let bad = |why: &str| Failure::reject(codes::BAD_KEY, format!("key `{key}`: {why}"));
    let texts = key::split(key, columns.len()).ok_or_else(|| bad("wrong number of parts"))?;
    columns
        .iter()
        .zip(texts)
        .map(|(column, text)| match column.kind {
            KeyType::Integer => text.parse().map(Value::Integer).map_err(|_| bad("not an integer")),
            KeyType::Text | KeyType::Uuid | KeyType::Named(_) => Ok(Value::Text(text)),
            KeyType::Blob => value::unhex(&text).map(Value::Blob).ok_or_else(|| bad("not hex")),
        })
        .collect()
}

fn table_keys(
    connection: &Connection,
    table: &str,
    key: &[KeyColumn],
    after: Option<Vec<Value>>,
    limit: u32,
) -> rusqlite::Result<Vec<Key>> {
    let columns = key.iter().map(|column| rewrite::quote(&column.name)).collect::<Vec<_>>().join(", ");
    let present = key
        .iter()
        .map(|column| format!("{} is not null", rewrite::quote(&column.name)))
        .collect::<Vec<_>>()
        .join(" and ");
    let above = after.as_ref().map_or_else(String::new, |after| {
        let marks = (1..=after.len()).map(|n| format!("?{n}")).collect::<Vec<_>>().join(", ");
        format!(" and ({columns}) > ({marks})")
    });
    let table = rewrite::quote(table);
    let sql = format!("select {columns} from {table} where {present}{above} order by {columns} limit {limit}");
    let mut statement = connection.prepare_cached(&sql)?;
    let after = after.unwrap_or_default();
    let mut rows = statement.query(params_from_iter(after.iter().map(|value| value as &dyn ToSql)))?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        let mut parts = Vec::with_capacity(key.len());
        for n in 0..key.len() {
            let mut part = String::new();
            if value::push_key_text(&mut part, row.get_ref(n)?) {
                parts.push(part);
            }
        }
        if parts.len() == key.len() {
            keys.push(key::join(&parts).into());
        }
    }
    Ok(keys)
}

fn tasks(connection: &Connection) -> rusqlite::Result<Vec<Task>> {
    connection
        .prepare_cached("select id, noun, name, state, created_at from honeyflow_task order by id")?
        .query_map([], |row| {
            Ok(Task {
                id: row.get(0)?,
                noun: row.get(1)?,
                name: row.get(2)?,
                state: row.get(3)?,
                created_ms: row.get(4)?,
            })
        })?
        .collect()
}

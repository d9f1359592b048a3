//! Answers the requests of an operator. Reads use the read-only connections, changes the unfenced writer.

use honeyflow_event::{Event, PRIORITY_LEVELS};
use honeyflow_store::{
    Names,
    admin::{Admin, AdminReply, Lag, ParkedFilter, ParkedRow, RetryMode, Task},
    write::WHOLE_RUN_STEP,
};

use crate::{
    definition,
    driver::{self, AssertSqlSafe, Error, PgConnection, PgRow, Query, Row},
    recover,
    row::{self, RowContent},
    session, table,
};

/// The number of bytes of a payload that an operator is shown.
const HEAD_BYTES: u32 = 4096;

/// Answers a read request; the caller has begun a read-only transaction.
pub(crate) async fn read(connection: &mut PgConnection, admin: &Admin) -> Result<AdminReply, Error> {
    let rows = async |connection: &mut PgConnection, text: String| -> Result<Vec<PgRow>, Error> {
        Ok(session::run(connection, text).await?.pop().unwrap_or_default())
    };
    Ok(match admin {
        Admin::Lag => AdminReply::Lag(lag(connection).await?),
        Admin::Parked { filter, after, limit } => AdminReply::Parked(parked(connection, filter, *after, *limit).await?),
        Admin::Paused => {
            let paused = rows(connection, recover::PAUSED.to_owned()).await?;
            AdminReply::Paused(paused.iter().map(recover::pause).collect::<Result<_, _>>()?)
        }
        Admin::Events { entity, key, limit } => AdminReply::Events(events(connection, entity, key, *limit).await?),
        Admin::Waiting { events } => {
            let ids = crate::literal::integers(events.iter().copied());
            let text = format!("select id from honeyflow_outbox where id = any ({ids}::bigint[])");
            let found = rows(connection, text).await?;
            AdminReply::Ids(found.iter().map(|row| row::number(row, 0)).collect::<Result<_, _>>()?)
        }
        Admin::Failures { limit } => {
            let text = recover::failures_text(&format!("order by ready_at limit {limit}"));
            let failures = rows(connection, text).await?;
            AdminReply::Failures(failures.iter().map(recover::charged).collect::<Result<_, _>>()?)
        }
        Admin::History { limit } => AdminReply::History(history(connection, *limit).await?),
        Admin::TableKeys { table, key, after, limit } => {
            AdminReply::Keys(table::keys(connection, table, key, after.as_ref(), *limit).await?)
        }
        Admin::Tasks => {
            let text = "select id, noun, name, state, (extract(epoch from created_at) * 1000)::bigint
                 from honeyflow_task order by id";
            let tasks = rows(connection, text.to_owned()).await?;
            AdminReply::Tasks(tasks.iter().map(task).collect::<Result<_, _>>()?)
        }
        Admin::Definitions { workflow } => {
            AdminReply::Definitions(definition::list(connection, workflow.as_deref()).await?)
        }
        other => return Err(Error::Protocol(format!("not a read request: {other:?}"))),
    })
}

/// Executes a change; the caller has begun a transaction.
pub(crate) async fn write(connection: &mut PgConnection, admin: &Admin) -> Result<AdminReply, Error> {
    let statement = match admin {
        Admin::RetryParked { filter, mode } => {
            return retry_parked(connection, filter, mode).await.map(AdminReply::Count);
        }
        Admin::PutDefinitions(wanted) => return definition::put(connection, wanted).await.map(AdminReply::Versions),
        Admin::DropParked(filter) => return drop_parked(connection, filter).await.map(AdminReply::Count),
        // The store sets the start time; a second pause only changes the reason.
        Admin::Pause(pause) => driver::query(
            "insert into honeyflow_pause(noun, name, why) values ($1, $2, $3)
             on conflict (noun, name) do update set why = excluded.why",
        )
        .bind(&pause.noun)
        .bind(&pause.name)
        .bind(&pause.why),
        Admin::Resume { noun, name } => {
            driver::query("delete from honeyflow_pause where noun = $1 and name = $2").bind(noun).bind(name)
        }
        Admin::PutTask { noun, name, state } => driver::query(
            "insert into honeyflow_task(noun, name, state) values ($1, $2, $3)
             on conflict (noun, name) do update set state = excluded.state",
        )
        .bind(noun)
        .bind(name)
        .bind(state),
        other => return Err(Error::Protocol(format!("not a write request: {other:?}"))),
    };
    session::run_bound(connection, statement).await?;
    Ok(AdminReply::Done)
}

/// Returns the backlog. A delayed event counts as waiting from its due time on.
async fn lag(connection: &mut PgConnection) -> Result<Lag, Error> {
    let text = "select priority, count(*), (extract(epoch from statement_timestamp() - min(at)) * 1000)::bigint from (
           select priority, created_at as at from honeyflow_outbox where ready_at is null
           union all select priority, ready_at from honeyflow_outbox where ready_at <= statement_timestamp()) w
         group by priority;
         select (select count(*) from honeyflow_outbox where ready_at > statement_timestamp()),
           (select count(*) from honeyflow_parked)";
    let answers = session::run(connection, text.to_owned()).await?;
    let mut by_priority = [0_u64; PRIORITY_LEVELS];
    let mut lag = Lag::default();
    for row in answers.first().into_iter().flatten() {
        let level: usize = row::number(row, 0)?;
        by_priority[level.min(PRIORITY_LEVELS - 1)] += row::number::<u64>(row, 1)?;
        let age_ms: i64 = row::number(row, 2)?;
        lag.oldest_ms = lag.oldest_ms.max(age_ms.max(0).cast_unsigned());
    }
    if let Some(row) = answers.get(1).and_then(|rows| rows.first()) {
        (lag.delayed, lag.parked) = (row::number(row, 0)?, row::number(row, 1)?);
    }
    lag.waiting = by_priority.iter().sum();
    lag.by_priority = (0..).zip(by_priority).filter(|(_, count)| *count > 0).collect();
    Ok(lag)
}

const CONDITION: &str = "($1::bigint is null or id = $1) and ($2::text is null or tenant = $2)
  and ($3::text is null or entity = $3) and ($4::text is null or entity_key = $4)
  and ($5::text is null or workflow = $5) and ($6::text is null or code = $6)";

fn filtered<'f>(text: String, filter: &'f ParkedFilter) -> Query<'f> {
    let ParkedFilter { id, tenant, entity, key, workflow, code } = filter;
    driver::query(AssertSqlSafe(text))
        .bind(id)
        .bind(tenant.as_deref())
        .bind(entity.as_deref())
        .bind(key.as_deref())
        .bind(workflow.as_deref())
        .bind(code.as_deref())
}

async fn parked(
    connection: &mut PgConnection,
    filter: &ParkedFilter,
    after: i64,
    limit: u32,
) -> Result<Vec<ParkedRow>, Error> {
    // The payload is cut after a number of bytes, so its last character may be incomplete.
    let text = format!(
        "select id, tenant, entity, entity_key, workflow, step, attempts, class, code, message,
           (extract(epoch from parked_at) * 1000)::bigint, coalesce(octet_length(payload), 0)::bigint,
           substr(convert_to(left(payload, {HEAD_BYTES}), 'UTF8'), 1, {HEAD_BYTES}), version
         from honeyflow_parked where {CONDITION} and id > {after} order by id limit {limit}"
    );
    let rows = session::run_bound(connection, filtered(text, filter)).await?;
    rows.iter()
        .map(|row| {
            let workflow: String = row.try_get(4)?;
            let head: Option<Vec<u8>> = row.try_get(12)?;
            Ok(ParkedRow {
                id: row.try_get(0)?,
                tenant: row.try_get(1)?,
                entity: row.try_get(2)?,
                key: row.try_get(3)?,
                workflow: Some(workflow).filter(|workflow| !workflow.is_empty()),
                step: row.try_get(5)?,
                version: row.try_get::<i32, _>(13)?.max(0).cast_unsigned(),
                attempts: row.try_get::<i32, _>(6)?.max(0).cast_unsigned(),
                class: row.try_get(7)?,
                code: row.try_get(8)?,
                message: row.try_get(9)?,
                parked_ms: row.try_get(10)?,
                payload_bytes: row.try_get::<i64, _>(11)?.max(0).cast_unsigned(),
                payload_head: head.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            })
        })
        .collect()
}

/// Turns each parked entry into an event for its one workflow, inside the database; its attempts start at 0 again. Its
/// checkpoints move to the shard of the new event, except those of steps that the retry executes again.
async fn retry_parked(connection: &mut PgConnection, filter: &ParkedFilter, mode: &RetryMode) -> Result<u64, Error> {
    const PAGE: u32 = 1_000;
    let steps: Vec<&str> = match mode {
        RetryMode::Without(steps) => steps.iter().map(|step| &**step).collect(),
        RetryMode::Continue | RetryMode::FromStart => Vec::new(),
    };
    let mut count = 0;
    loop {
        let text = format!(
            "with entry as (delete from honeyflow_parked where id in (
                 select id from honeyflow_parked where {CONDITION} order by id limit {PAGE} for update)
               returning *),
             numbered as (select *, nextval(pg_get_serial_sequence('honeyflow_outbox', 'id')) as new_id
               from (select * from entry order by id) e),
             event as (
               insert into honeyflow_outbox(id, format, kind, tenant, entity, entity_key, priority, workflow, change, columns,
                 payload)
               overriding system value
               select new_id, format, kind, tenant, entity, entity_key, priority, nullif(workflow, ''), change, columns,
                 payload
               from numbered order by new_id returning id, shard),
             forgiven as (delete from honeyflow_failure f using entry e where f.tenant = e.tenant
               and f.entity = e.entity and f.entity_key = e.entity_key and f.workflow = e.workflow),
             freed as (delete from honeyflow_checkpoint c using entry e where c.parked = e.id returning c.*),
             taken_up as (
               insert into honeyflow_checkpoint(shard, tenant, entity, entity_key, workflow, parked, phase, step,
                 instance, version, covers, attempt, stamp, outcome, output, created_at)
               select event.shard, f.tenant, f.entity, f.entity_key, f.workflow, 0, f.phase, f.step, f.instance,
                 f.version, array[event.id], f.attempt, f.stamp, f.outcome, f.output, f.created_at
               from freed f join numbered n on n.id = f.parked join event on event.id = n.new_id
               where $7 and f.outcome <> 'failed' and f.step <> '{WHOLE_RUN_STEP}' and f.step <> all ($8::text[])
               on conflict (shard, tenant, entity, entity_key, workflow, parked, phase, step, instance) do nothing)
             select count(*) from entry"
        );
        let rows =
            session::run_bound(connection, filtered(text, filter).bind(*mode != RetryMode::FromStart).bind(&steps))
                .await?;
        let page: i64 = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
        count += page.max(0).cast_unsigned();
        if page < i64::from(PAGE) {
            return Ok(count);
        }
    }
}

async fn drop_parked(connection: &mut PgConnection, filter: &ParkedFilter) -> Result<u64, Error> {
    let text = format!(
        "with entry as (delete from honeyflow_parked where {CONDITION} returning id),
         freed as (delete from honeyflow_checkpoint c using entry e where c.parked = e.id)
         select count(*) from entry"
    );
    let rows = session::run_bound(connection, filtered(text, filter)).await?;
    let count: i64 = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
    Ok(count.max(0).cast_unsigned())
}

/// Returns the waiting events of a key. An operator needs no large payloads here, so these rows are left out. Rows are
/// read as text, like those of polls.
async fn events(connection: &mut PgConnection, entity: &str, key: &str, limit: u32) -> Result<Vec<Event>, Error> {
    let find =
        driver::query("select id from honeyflow_outbox where entity = $1 and entity_key = $2 order by id limit $3");
    let rows = session::run_bound(connection, find.bind(entity).bind(key).bind(i64::from(limit))).await?;
    let ids: Vec<i64> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let columns = row::columns(&HEAD_BYTES.to_string());
    let ids = crate::literal::integers(ids);
    let text = format!("select {columns} from honeyflow_outbox o where id = any ({ids}::bigint[]) order by id");
    let mut names = Names::default();
    let mut events = Vec::new();
    for row in session::run(connection, text).await?.iter().flatten() {
        if let RowContent::Event(event) = row::read(row, 0, &mut names)?.content {
            events.push(event);
        }
    }
    Ok(events)
}

async fn history(connection: &mut PgConnection, limit: u32) -> Result<Vec<serde_json::Value>, Error> {
    let text = format!(
        "select tenant, entity, entity_key, workflow, version, verdict, steps, (extract(epoch from ended_at) * 1000)::bigint
         from honeyflow_run order by id desc limit {limit}"
    );
    let answers = session::run(connection, text).await?;
    let run = |row: &PgRow| -> Result<serde_json::Value, Error> {
        let steps = recover::string(row, 6)?;
        Ok(serde_json::json!({
            "tenant": recover::string(row, 0)?,
            "entity": recover::string(row, 1)?,
            "key": recover::string(row, 2)?,
            "workflow": recover::string(row, 3)?,
            "version": row::number::<u32>(row, 4)?,
            "verdict": recover::string(row, 5)?,
            "steps": serde_json::from_str::<serde_json::Value>(steps).unwrap_or_default(),
            "ended_ms": row::number::<i64>(row, 7)?,
        }))
    };
    answers.iter().flatten().map(run).collect()
}

fn task(row: &PgRow) -> Result<Task, Error> {
    Ok(Task {
        id: row::number(row, 0)?,
        noun: recover::string(row, 1)?.to_owned(),
        name: recover::string(row, 2)?.to_owned(),
        state: recover::string(row, 3)?.to_owned(),
        created_ms: row::number(row, 4)?,
    })
}

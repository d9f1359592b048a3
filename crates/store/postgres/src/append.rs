//! Stores events: from the event endpoint, emitted by steps, or created by a fan-out.

use std::time::Duration;

use honeyflow_event::{EventId, Key};
use honeyflow_store::{Idempotency, NewEvent, Reply};

use crate::{
    driver::{self, Error, PgConnection, Row},
    row, session,
};

/// How long a producer's message id, or the idempotency key of a request, is remembered: an SQL interval.
pub(crate) const DEDUPE: &str = "24 hours";

/// The maximum number of rows that one statement inserts.
const INSERT_MAX: usize = 5_000;

/// Stores events; the caller has begun a transaction. It claims the idempotency key first: of two concurrent requests
/// with one key, the second waits and then finds the result of the first.
pub(crate) async fn append(
    connection: &mut PgConnection,
    events: &[NewEvent],
    idempotency: Option<&Idempotency>,
) -> Result<Reply, Error> {
    let all: Vec<&NewEvent> = events.iter().collect();
    let Some(Idempotency { key, body_hash }) = idempotency else {
        return Ok(Reply::Appended { ids: insert_all(connection, &all).await?, repeated: false });
    };
    let claim = driver::query(
        "insert into honeyflow_dedupe(tenant, entity, entity_key, dedupe, until_at, body_hash)
         values ('', '', '', $1, statement_timestamp() + $2::text::interval, $3)
         on conflict (tenant, entity, entity_key, dedupe) do update
         set until_at = excluded.until_at, body_hash = excluded.body_hash, ids = null
         where honeyflow_dedupe.until_at <= statement_timestamp() returning 1",
    );
    let claim = claim.bind(key).bind(DEDUPE).bind(body_hash.cast_signed());
    if session::run_bound(connection, claim).await?.is_empty() {
        let stored = driver::query(
            "select coalesce(body_hash, 0), coalesce(ids, '{}') from honeyflow_dedupe
             where tenant = '' and entity = '' and entity_key = '' and dedupe = $1",
        );
        let rows = session::run_bound(connection, stored.bind(key)).await?;
        let Some(row) = rows.first() else { return Err(Error::RowNotFound) };
        let (stored_hash, ids): (i64, Vec<EventId>) = (row.try_get(0)?, row.try_get(1)?);
        let same = stored_hash.cast_unsigned() == *body_hash;
        return Ok(if same { Reply::Appended { ids, repeated: true } } else { Reply::Conflict });
    }
    let ids = insert_all(connection, &all).await?;
    let note = driver::query(
        "update honeyflow_dedupe set ids = $2 where tenant = '' and entity = '' and entity_key = '' and dedupe = $1",
    );
    session::run_bound(connection, note.bind(key).bind(&ids)).await?;
    Ok(Reply::Appended { ids, repeated: false })
}

/// Inserts events and returns their ids in the same order; the caller has begun a transaction.
pub(crate) async fn insert_all(connection: &mut PgConnection, events: &[&NewEvent]) -> Result<Vec<EventId>, Error> {
    let mut ids = Vec::with_capacity(events.len());
    for events in events.chunks(INSERT_MAX) {
        let insert = driver::query(
            "insert into honeyflow_outbox(kind, tenant, entity, entity_key, priority, workflow, ready_at, dedupe,
               traceparent, root, change, columns, payload)
             select kind, tenant, entity, entity_key, priority, workflow,
               statement_timestamp() + delay_ms * interval '1 millisecond', dedupe, traceparent, root, change, columns,
               payload
             from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::text[], $7::bigint[],
               $8::text[], $9::text[], $10::bigint[], $11::text[], $12::text[], $13::text[]) with ordinality
               as e(kind, tenant, entity, entity_key, priority, workflow, delay_ms, dedupe, traceparent, root, change,
               columns, payload, n)
             order by n returning id",
        )
        .bind(events.iter().map(|event| row::kind_name(event.kind)).collect::<Vec<_>>())
        .bind(events.iter().map(|event| &*event.tenant).collect::<Vec<_>>())
        .bind(events.iter().map(|event| &*event.entity).collect::<Vec<_>>())
        .bind(events.iter().map(|event| &*event.key).collect::<Vec<_>>())
        .bind(events.iter().map(|event| i16::from(event.priority)).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.workflow.as_deref()).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.delay.map(millis)).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.dedupe.as_deref()).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.traceparent.as_deref()).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.root).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.change.text()).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.columns.as_deref()).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.payload.as_deref()).collect::<Vec<_>>());
        for row in session::run_bound(connection, insert).await? {
            ids.push(row.try_get(0)?);
        }
    }
    Ok(ids)
}

/// Returns `{1,2}`: a text value that the statement casts to an array.
pub(crate) fn array_text(ids: &[EventId]) -> String {
    crate::literal::integers(ids).trim_matches('\'').to_owned()
}

/// Returns milliseconds, capped at a thousand years so that the server's timestamps cannot overflow.
pub(crate) fn millis(duration: Duration) -> i64 {
    const LONGEST_MS: i64 = 1000 * 365 * 24 * 60 * 60 * 1000;
    i64::try_from(duration.as_millis()).unwrap_or(LONGEST_MS).min(LONGEST_MS)
}

/// Returns the payload of a fan-out row with a new position. It is a JSON object; its `after` is the last container
/// that already has its row.
pub(crate) fn with_position(payload: Option<&str>, after: &Key) -> String {
    let mut position = payload
        .and_then(|text| serde_json::from_str(text).ok())
        .filter(serde_json::Value::is_object)
        .unwrap_or_else(|| serde_json::json!({}));
    position["after"] = serde_json::Value::String(after.to_string());
    position.to_string()
}

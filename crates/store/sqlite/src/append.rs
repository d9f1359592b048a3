//! Stores events: from the event endpoint, emitted by steps, or created by a fan-out.

use std::time::Duration;

use honeyflow_event::{EventId, Key};
use honeyflow_runtime::Failure;
use honeyflow_store::{Idempotency, NewEvent, Reply};
use rusqlite::{Connection, OptionalExtension, params};

use crate::{outcome, row, write};

/// How long a producer's message id, or the idempotency key of a request, is remembered.
pub(crate) const DEDUPE_MS: i64 = 24 * 60 * 60 * 1000;

pub(crate) fn append(
    connection: &Connection,
    events: &[NewEvent],
    idempotency: Option<&Idempotency>,
) -> Result<Reply, Failure> {
    perform(connection, events, idempotency).map_err(|error| outcome::failure(&error, "append events"))
}

fn perform(connection: &Connection, events: &[NewEvent], idempotency: Option<&Idempotency>) -> rusqlite::Result<Reply> {
    let now_ms = write::now_ms(connection)?;
    let Some(Idempotency { key, body_hash }) = idempotency else {
        return Ok(Reply::Appended { ids: insert_all(connection, events, now_ms)?, repeated: false });
    };
    let stored: Option<(i64, String)> = connection
        .prepare_cached(
            "select ifnull(body_hash, 0), ifnull(ids, '[]') from honeyflow_dedupe
             where tenant = '' and entity = '' and entity_key = '' and dedupe = ?1 and until_ms > ?2",
        )?
        .query_row(params![key, now_ms], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if let Some((stored_hash, ids)) = stored {
        return Ok(if stored_hash.cast_unsigned() == *body_hash {
            Reply::Appended { ids: serde_json::from_str(&ids).unwrap_or_default(), repeated: true }
        } else {
            Reply::Conflict
        });
    }
    let ids = insert_all(connection, events, now_ms)?;
    connection
        .prepare_cached(
            "insert or replace into honeyflow_dedupe(tenant, entity, entity_key, dedupe, until_ms, body_hash, ids)
             values ('', '', '', ?1, ?2, ?3, ?4)",
        )?
        .execute(params![key, now_ms + DEDUPE_MS, body_hash.cast_signed(), id_list(&ids)])?;
    Ok(Reply::Appended { ids, repeated: false })
}

pub(crate) fn insert_all(connection: &Connection, events: &[NewEvent], now_ms: i64) -> rusqlite::Result<Vec<EventId>> {
    let mut insert = connection.prepare_cached(
        "insert into honeyflow_outbox(kind, tenant, entity, entity_key, priority, workflow, ready_at, dedupe, traceparent,
           root, change, columns, payload) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?;
    let mut ids = Vec::with_capacity(events.len());
    for event in events {
        let ready_at = event.delay.map(|delay| now_ms.saturating_add(millis(delay)));
        ids.push(insert.insert(params![
            row::kind_name(event.kind),
            event.tenant,
            event.entity,
            event.key,
            event.priority,
            event.workflow,
            ready_at,
            event.dedupe,
            event.traceparent,
            event.root,
            event.change.text(),
            event.columns,
            event.payload
        ])?);
    }
    Ok(ids)
}

/// Removes rows whose `dedupe` mark says that they are done. It checks the mark again: it may have expired since the
/// poll.
pub(crate) fn forget_repeats(connection: &Connection, ids: &[EventId]) -> Result<(), Failure> {
    connection
        .prepare_cached(
            "delete from honeyflow_outbox where id in (select value from json_each(?1)) and exists (
               select 1 from honeyflow_dedupe d where d.tenant = honeyflow_outbox.tenant
                 and d.entity = honeyflow_outbox.entity and d.entity_key = honeyflow_outbox.entity_key
                 and d.dedupe = honeyflow_outbox.dedupe and d.until_ms > ?2)",
        )
        .and_then(|mut delete| delete.execute(params![id_list(ids), write::now_ms(connection)?]))
        .map(|_| ())
        .map_err(|error| outcome::failure(&error, "remove repeated events"))
}

/// Returns a JSON array for `json_each`: one bound value, so that the statement's text does not depend on the count.
pub(crate) fn id_list(ids: &[EventId]) -> String {
    use std::fmt::Write;
    let mut list = String::with_capacity(2 + ids.len() * 8);
    list.push('[');
    for (n, id) in ids.iter().enumerate() {
        let comma = if n > 0 { "," } else { "" };
        let _ = write!(list, "{comma}{id}");
    }
    list.push(']');
    list
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
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

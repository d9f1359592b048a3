//! Reads outbox rows as events.
//!
//! Any program may write rows. A value that does not fit our types is corrected if that is harmless (a priority out of
//! range); a row of unknown kind is reported to the engine, which parks it.

use honeyflow_event::{Changes, Event, EventId, Kind, PRIORITY_LEVELS};
use honeyflow_store::{Names, poll::UnreadRow};
use rusqlite::{Row, types::ValueRef};

use crate::capture;

/// The columns in the order in which [`read`] reads them; `?1` is the size in bytes of the largest payload to read.
pub(crate) const COLUMNS: &str = "id, entity, workflow, dedupe, format, kind, tenant, entity_key, priority, created_at,
  traceparent, root, octet_length(payload), case when octet_length(payload) <= ?1 then cast(payload as text) end, change,
  columns";

/// The format of payloads that SQLite triggers have written.
const FORMAT_CAPTURED: i64 = 2;

pub(crate) enum RowContent {
    Event(Event),
    /// The row is too large, or of a kind that this binary does not know.
    Unreadable(UnreadRow),
}

/// The columns that a poll checks before it reads the others.
pub(crate) struct Head<'r> {
    pub id: EventId,
    pub priority: u8,
    pub entity: &'r str,
    pub workflow: Option<&'r str>,
    pub dedupe: Option<&'r str>,
}

pub(crate) fn head<'r>(row: &'r Row<'_>) -> rusqlite::Result<Head<'r>> {
    Ok(Head {
        id: row.get(0)?,
        priority: priority(integer(row.get_ref(8)?)),
        entity: text(row.get_ref(1)?).unwrap_or_default(),
        workflow: text(row.get_ref(2)?),
        dedupe: text(row.get_ref(3)?),
    })
}

pub(crate) fn read(row: &Row<'_>, names: &mut Names, payload_bytes_max: u64) -> rusqlite::Result<RowContent> {
    let id = row.get(0)?;
    let bytes = match row.get_ref(12)? {
        ValueRef::Integer(bytes) => Some(bytes.cast_unsigned()),
        _ => None,
    };
    let kind = text(row.get_ref(5)?).and_then(kind);
    let (Some(kind), false) = (kind, bytes.is_some_and(|bytes| bytes > payload_bytes_max)) else {
        return Ok(RowContent::Unreadable(UnreadRow { id, bytes: bytes.unwrap_or(0) }));
    };
    let format = integer(row.get_ref(4)?).unwrap_or(1);
    let payload = text(row.get_ref(13)?);
    let payload = match payload {
        Some(captured) if format == FORMAT_CAPTURED => match capture::payload::decode(captured) {
            Ok(json) => Some(json.into()),
            Err(_) => return Ok(RowContent::Unreadable(UnreadRow { id, bytes: bytes.unwrap_or(0) })),
        },
        plain => plain.map(Into::into),
    };
    let key = match row.get_ref(7)? {
        // The column's text affinity keeps the digits of a number: `values ('book', 42)`.
        ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).into(),
        ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes).into(),
        _ => "".into(),
    };
    Ok(RowContent::Event(Event {
        id,
        format: format.try_into().unwrap_or(u16::MAX),
        kind,
        tenant: names.get(text(row.get_ref(6)?).unwrap_or_default()),
        entity: names.get(text(row.get_ref(1)?).unwrap_or_default()),
        key,
        priority: priority(integer(row.get_ref(8)?)),
        workflow: text(row.get_ref(2)?).map(|workflow| names.get(workflow)),
        created_ms: integer(row.get_ref(9)?).unwrap_or(0),
        dedupe: text(row.get_ref(3)?).map(Into::into),
        traceparent: text(row.get_ref(10)?).map(Into::into),
        root: integer(row.get_ref(11)?),
        change: text(row.get_ref(14)?).map_or(Changes::UNKNOWN, Changes::parse),
        columns: text(row.get_ref(15)?).map(Into::into),
        payload,
    }))
}

fn text(value: ValueRef<'_>) -> Option<&str> {
    match value {
        ValueRef::Text(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

fn integer(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Integer(integer) => Some(integer),
        _ => None,
    }
}

fn priority(stored: Option<i64>) -> u8 {
    let last = i64::try_from(PRIORITY_LEVELS).unwrap_or(i64::MAX) - 1;
    stored.unwrap_or(last).clamp(0, last).try_into().unwrap_or(u8::MAX)
}

pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Row => "row",
        Kind::Message => "message",
        Kind::FanOut => "fan-out",
        Kind::Truncate => "truncate",
    }
}

pub(crate) fn kind(name: &str) -> Option<Kind> {
    [Kind::Row, Kind::Message, Kind::FanOut, Kind::Truncate].into_iter().find(|kind| kind_name(*kind) == name)
}

//! Reads outbox rows as events.
//!
//! Any program may write rows; a row of unknown kind is reported to the engine, which parks it.

use std::str::FromStr;

use honeyflow_event::{Changes, Event, EventId, Kind, PRIORITY_LEVELS};
use honeyflow_store::{Names, poll::UnreadRow};

use crate::driver::{self, Error, PgRow, Row};

/// Returns the columns of `honeyflow_outbox o` in the order in which [`read`] reads them. `max` is an SQL expression:
/// the size in bytes of the largest payload to read.
pub(crate) fn columns(max: &str) -> String {
    format!(
        "o.id, o.shard, o.priority, o.entity, o.workflow, o.dedupe,
         case when o.dedupe is not null then (select d.until_at > statement_timestamp() from honeyflow_dedupe d
           where d.tenant = o.tenant and d.entity = o.entity and d.entity_key = o.entity_key and d.dedupe = o.dedupe) end,
         o.format, o.kind, o.tenant, o.entity_key, (extract(epoch from o.created_at) * 1000)::bigint, o.traceparent,
         o.root, octet_length(o.payload), case when octet_length(o.payload) <= {max} then o.payload end, o.change, o.columns"
    )
}

#[derive(Clone)]
pub(crate) struct OutboxRow {
    pub id: EventId,
    pub shard: u16,
    pub priority: u8,
    pub content: RowContent,
}

#[derive(Clone)]
pub(crate) enum RowContent {
    Event(Event),
    /// The row's `dedupe` mark is stored: the row repeats a done event.
    Repeat,
    /// The row is too large, or of a kind that this binary does not know.
    Unreadable(UnreadRow),
}

/// Reads a row of a simple statement whose columns from `at` on are [`columns`].
pub(crate) fn read(row: &PgRow, at: usize, names: &mut Names) -> Result<OutboxRow, Error> {
    let id: EventId = number(row, at)?;
    let shard = number::<i16>(row, at + 1)?.try_into().unwrap_or(0);
    let priority = priority(number(row, at + 2)?);
    let done = text(row, at + 6)? == Some("t");
    let bytes: Option<u64> = optional(row, at + 14)?;
    let payload = text(row, at + 15)?;
    let kind = text(row, at + 8)?.and_then(kind);
    let content = match kind {
        _ if done => RowContent::Repeat,
        Some(kind) if bytes.is_none() == payload.is_none() => RowContent::Event(Event {
            id,
            format: number::<i16>(row, at + 7)?.try_into().unwrap_or(u16::MAX),
            kind,
            tenant: names.get(text(row, at + 9)?.unwrap_or_default()),
            entity: names.get(text(row, at + 3)?.unwrap_or_default()),
            key: text(row, at + 10)?.unwrap_or_default().into(),
            priority,
            workflow: text(row, at + 4)?.map(|workflow| names.get(workflow)),
            created_ms: number(row, at + 11)?,
            dedupe: text(row, at + 5)?.map(Into::into),
            traceparent: text(row, at + 12)?.map(Into::into),
            root: optional(row, at + 13)?,
            change: text(row, at + 16)?.map_or(Changes::UNKNOWN, Changes::parse),
            columns: text(row, at + 17)?.map(Into::into),
            payload: payload.map(Into::into),
        }),
        _ => RowContent::Unreadable(UnreadRow { id, bytes: bytes.unwrap_or(0) }),
    };
    Ok(OutboxRow { id, shard, priority, content })
}

/// Returns a value of a simple statement: the server sends such values as text.
pub(crate) fn text(row: &PgRow, column: usize) -> Result<Option<&str>, Error> {
    row.try_get_raw(column).and_then(|value| {
        if driver::ValueRef::is_null(&value) {
            return Ok(None);
        }
        value.as_str().map(Some).map_err(Error::Decode)
    })
}

pub(crate) fn optional<T: FromStr>(row: &PgRow, column: usize) -> Result<Option<T>, Error> {
    text(row, column)?.map(|text| text.parse().map_err(|_| misfit(column, text))).transpose()
}

pub(crate) fn number<T: FromStr>(row: &PgRow, column: usize) -> Result<T, Error> {
    optional(row, column)?.ok_or_else(|| misfit(column, "null"))
}

fn misfit(column: usize, text: &str) -> Error {
    Error::Decode(format!("column {column} is not a number in range: {text}").into())
}

pub(crate) fn priority(stored: i16) -> u8 {
    let last = i16::try_from(PRIORITY_LEVELS).unwrap_or(i16::MAX) - 1;
    stored.clamp(0, last).try_into().unwrap_or(u8::MAX)
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

//! Converts columns to values and back: SQLite's integers are signed; it stores UUIDs and lists as text.

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    NodeId,
    contract::{Event, LeaseRow, NodeRow, WatchedNode},
};
use rusqlite::{Row, types::Type};

pub(crate) const NODE: &str = "id, name, beat, beat_ms, ttl_ms, expires_ms, engaged_ms, ready, eligible, warm, meta";
/// The columns to select from [`LEASE_FROM`]: `n` is the row of the holder, `h` the row of the successor.
pub(crate) const LEASE: &str = "l.name, l.epoch, l.holder, l.heir, l.since_ms, l.cause, n.id is null,
    case when h.eligible and h.expires_ms > ?2 then h.warm end";
pub(crate) const LEASE_FROM: &str = "hive_lease l
    left join hive_node n on n.hive = l.hive and n.id = l.holder
    left join hive_node h on h.hive = l.hive and h.id = l.heir";
pub(crate) const EVENT: &str = "version, at_ms, kind, node, lease, epoch, cause";
pub(crate) const WATCHED: &str = "id, beat, beat_ms, ttl_ms, expires_ms";

pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX - 1)
}

pub(crate) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)?.max(0).cast_unsigned())
}

pub(crate) fn epoch(row: &Row<'_>, column: usize) -> rusqlite::Result<Epoch> {
    unsigned(row, column).map(Epoch)
}

fn parsed<T>(column: usize, parsed: Result<T, impl std::error::Error + Send + Sync + 'static>) -> rusqlite::Result<T> {
    parsed.map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}

pub(crate) fn node_id(row: &Row<'_>, column: usize) -> rusqlite::Result<NodeId> {
    parsed(column, row.get::<_, String>(column)?.parse()).map(NodeId)
}

pub(crate) fn node_id_or_null(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<NodeId>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| parsed(column, text.parse()).map(NodeId)).transpose()
}

fn names(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<Name>> {
    let text: Option<String> = row.get(column)?;
    text.map_or(Ok(Vec::new()), |text| parsed(column, serde_json::from_str(&text)))
}

pub(crate) fn node(row: &Row<'_>) -> rusqlite::Result<NodeRow> {
    Ok(NodeRow {
        id: node_id(row, 0)?,
        name: row.get(1)?,
        beat: unsigned(row, 2)?,
        heartbeat_ms: unsigned(row, 3)?,
        ttl_ms: unsigned(row, 4)?,
        expires_ms: unsigned(row, 5)?,
        engaged_ms: unsigned(row, 6)?,
        ready: row.get(7)?,
        eligible: row.get(8)?,
        warm: names(row, 9)?,
        meta: row.get(10)?,
    })
}

pub(crate) fn lease(row: &Row<'_>) -> rusqlite::Result<LeaseRow> {
    let name: Name = row.get::<_, String>(0)?.into();
    let warm = names(row, 7)?;
    Ok(LeaseRow {
        epoch: epoch(row, 1)?,
        holder: node_id_or_null(row, 2)?,
        successor: node_id_or_null(row, 3)?,
        since_ms: unsigned(row, 4)?,
        cause: row.get(5)?,
        free: row.get(6)?,
        successor_is_warm: warm.contains(&name),
        name,
    })
}

pub(crate) fn watched(row: &Row<'_>) -> rusqlite::Result<WatchedNode> {
    Ok(WatchedNode {
        id: node_id(row, 0)?,
        beat: unsigned(row, 1)?,
        heartbeat_ms: unsigned(row, 2)?,
        ttl_ms: unsigned(row, 3)?,
        expires_ms: unsigned(row, 4)?,
        dead: false,
    })
}

pub(crate) fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    Ok(Event {
        version: unsigned(row, 0)?,
        at_ms: unsigned(row, 1)?,
        kind: row.get::<_, String>(2)?.as_str().into(),
        node: node_id_or_null(row, 3)?,
        lease: row.get::<_, Option<String>>(4)?.map(Name::from),
        epoch: row.get::<_, Option<i64>>(5)?.map(|epoch| Epoch(epoch.max(0).cast_unsigned())),
        cause: row.get::<_, String>(6)?.into(),
    })
}

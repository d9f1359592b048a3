//! Converts columns to values. The server sends all of them as text.

use std::{fmt::Display, str::FromStr};

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    NodeId,
    contract::{Counts, Event, Head, LeaseRow, NodeRow, WatchedNode},
};

use crate::{
    driver::{Error, MySqlRow, Row},
    schema::HIVE_MS,
};

pub(crate) const VIEW: &str =
    "origin, lineage, lineage_ms, max_ttl_ms, hold, version, limits, alive, ready, engaged, epoch, counted_ms";
pub(crate) const NODE: &str = "id, name, beat, beat_ms, ttl_ms, expires_ms, engaged_ms, ready, eligible, warm, meta";
pub(crate) const WATCHED: &str = "id, beat, beat_ms, ttl_ms, expires_ms";
pub(crate) const EVENT: &str = "version, at_ms, kind, node, lease, epoch, cause";

/// Selects leases with the rows of their holders and successors in one statement. `filter` is a condition on `l`.
pub(crate) fn leases(hive: &str, filter: &str) -> String {
    format!(
        "select l.name, l.epoch, l.holder, l.heir, l.since_ms, l.cause, n.id is null,
           if(h.eligible = 1 and h.expires_ms > {HIVE_MS}, h.warm, null)
         from hive_lease l
           left join hive_node n on n.hive = l.hive and n.id = l.holder
           left join hive_node h on h.hive = l.hive and h.id = l.heir
         where l.hive = {hive}{filter} order by l.name"
    )
}

pub(crate) fn text(row: &MySqlRow, column: usize) -> Result<Option<&str>, Error> {
    row.try_get_unchecked(column)
}

pub(crate) fn required(row: &MySqlRow, column: usize) -> Result<&str, Error> {
    text(row, column)?.ok_or_else(|| invalid_value(column, "null"))
}

fn invalid_value(column: usize, why: impl Display) -> Error {
    Error::Decode(format!("column {column} has a value that this version does not write: {why}").into())
}

fn parsed<T: FromStr<Err: Display>>(row: &MySqlRow, column: usize) -> Result<T, Error> {
    required(row, column)?.parse().map_err(|error| invalid_value(column, error))
}

fn parsed_or_null<T: FromStr<Err: Display>>(row: &MySqlRow, column: usize) -> Result<Option<T>, Error> {
    text(row, column)?.map(|text| text.parse().map_err(|error| invalid_value(column, error))).transpose()
}

/// Reads an unsigned number from a signed column.
pub(crate) fn unsigned(row: &MySqlRow, column: usize) -> Result<u64, Error> {
    parsed::<i64>(row, column).map(|number| number.max(0).cast_unsigned())
}

pub(crate) fn flag(row: &MySqlRow, column: usize) -> Result<bool, Error> {
    Ok(unsigned(row, column)? != 0)
}

pub(crate) fn epoch(row: &MySqlRow, column: usize) -> Result<Epoch, Error> {
    unsigned(row, column).map(Epoch)
}

pub(crate) fn node_id(row: &MySqlRow, column: usize) -> Result<NodeId, Error> {
    parsed(row, column).map(NodeId)
}

pub(crate) fn node_id_or_null(row: &MySqlRow, column: usize) -> Result<Option<NodeId>, Error> {
    Ok(parsed_or_null(row, column)?.map(NodeId))
}

fn names(row: &MySqlRow, column: usize) -> Result<Vec<Name>, Error> {
    text(row, column)?
        .map_or(Ok(Vec::new()), |text| serde_json::from_str(text).map_err(|error| invalid_value(column, error)))
}

pub(crate) fn head(row: &MySqlRow, empty: Head) -> Result<Head, Error> {
    Ok(Head {
        origin: Some(node_id(row, 0)?.0),
        lineage: text(row, 1)?.map(str::to_owned),
        lineage_ms: unsigned(row, 2)?,
        max_ttl_ms: unsigned(row, 3)?,
        hold: text(row, 4)?.map(str::to_owned),
        version: unsigned(row, 5)?,
        limits: unsigned(row, 6)?,
        counts: Counts {
            alive: unsigned(row, 7)?,
            ready: unsigned(row, 8)?,
            engaged: unsigned(row, 9)?,
            epoch: epoch(row, 10)?,
            counted_ms: unsigned(row, 11)?,
        },
        ..empty
    })
}

pub(crate) fn node(row: &MySqlRow) -> Result<NodeRow, Error> {
    Ok(NodeRow {
        id: node_id(row, 0)?,
        name: required(row, 1)?.to_owned(),
        beat: unsigned(row, 2)?,
        heartbeat_ms: unsigned(row, 3)?,
        ttl_ms: unsigned(row, 4)?,
        expires_ms: unsigned(row, 5)?,
        engaged_ms: unsigned(row, 6)?,
        ready: flag(row, 7)?,
        eligible: flag(row, 8)?,
        warm: names(row, 9)?,
        meta: required(row, 10)?.to_owned(),
    })
}

pub(crate) fn lease(row: &MySqlRow) -> Result<LeaseRow, Error> {
    let name: Name = required(row, 0)?.into();
    Ok(LeaseRow {
        epoch: epoch(row, 1)?,
        holder: node_id_or_null(row, 2)?,
        successor: node_id_or_null(row, 3)?,
        since_ms: unsigned(row, 4)?,
        cause: required(row, 5)?.to_owned(),
        free: flag(row, 6)?,
        successor_is_warm: names(row, 7)?.contains(&name),
        name,
    })
}

/// Reads the columns from `first` on.
pub(crate) fn watched(row: &MySqlRow, first: usize) -> Result<WatchedNode, Error> {
    Ok(WatchedNode {
        id: node_id(row, first)?,
        beat: unsigned(row, first + 1)?,
        heartbeat_ms: unsigned(row, first + 2)?,
        ttl_ms: unsigned(row, first + 3)?,
        expires_ms: unsigned(row, first + 4)?,
        dead: false,
    })
}

pub(crate) fn event(row: &MySqlRow) -> Result<Event, Error> {
    Ok(Event {
        version: unsigned(row, 0)?,
        at_ms: unsigned(row, 1)?,
        kind: required(row, 2)?.into(),
        node: node_id_or_null(row, 3)?,
        lease: text(row, 4)?.map(Name::from),
        epoch: parsed_or_null::<i64>(row, 5)?.map(|epoch| Epoch(epoch.max(0).cast_unsigned())),
        cause: required(row, 6)?.into(),
    })
}

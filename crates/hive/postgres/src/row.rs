//! Converts columns to values. The simple query protocol sends all of them as text.

use std::str::FromStr;

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    NodeId,
    contract::{Counts, Event, Head, LeaseRow, NodeRow, WatchedNode},
};
use uuid::Uuid;

use crate::driver::{Error, PgRow, Row, ValueRef};

/// Columns of `hive_node n`.
pub(crate) const NODE: &str =
    "n.id, n.name, n.beat, n.beat_ms, n.ttl_ms, n.expires_ms, n.engaged_ms, n.ready, n.eligible,
    n.warm::text, n.meta::text";
/// Columns of a lease, from `t` and [`LEASE_FROM`].
pub(crate) const LEASE: &str = "l.name, l.epoch, l.holder, l.heir, l.since_ms, l.cause, n.id is null,
    coalesce(h.eligible and h.expires_ms > t.now and h.warm ? l.name, false)";
/// A lease with the row `n` of its holder and the row `h` of its successor.
pub(crate) const LEASE_FROM: &str = "hive_lease l
    left join hive_node n on n.hive = l.hive and n.id = l.holder
    left join hive_node h on h.hive = l.hive and h.id = l.heir";
/// Columns of `hive_event e`.
pub(crate) const EVENT: &str = "e.version, e.at_ms, e.kind, e.node, e.lease, e.epoch, e.cause";
/// Columns of `t` and of `hive_view v`, which may be missing.
pub(crate) const HEAD: &str =
    "t.now, t.server, v.origin, v.lineage, v.lineage_ms, v.max_ttl_ms, v.hold, v.version, v.limits,
    v.alive, v.ready, v.engaged, v.epoch, v.counted_ms";
/// How many columns [`HEAD`] has.
pub(crate) const HEAD_COLUMNS: usize = 14;

#[derive(Clone, Copy)]
pub(crate) struct Line<'r>(pub &'r PgRow);

impl<'r> Line<'r> {
    pub fn text_or_null(self, column: usize) -> Result<Option<&'r str>, Error> {
        let value = self.0.try_get_raw(column)?;
        if value.is_null() {
            return Ok(None);
        }
        value.as_str().map(Some).map_err(Error::Decode)
    }

    pub fn text(self, column: usize) -> Result<&'r str, Error> {
        self.text_or_null(column)?.ok_or_else(|| invalid_value(column, "null"))
    }

    fn parsed<T: FromStr>(self, column: usize) -> Result<Option<T>, Error> {
        self.text_or_null(column)?.map(|text| text.parse().map_err(|_| invalid_value(column, text))).transpose()
    }

    /// Our numbers are never negative, unless a person has changed them by hand.
    pub fn number_or_null(self, column: usize) -> Result<Option<u64>, Error> {
        Ok(self.parsed::<i64>(column)?.map(unsigned))
    }

    pub fn number(self, column: usize) -> Result<u64, Error> {
        self.number_or_null(column)?.ok_or_else(|| invalid_value(column, "null"))
    }

    pub fn flag(self, column: usize) -> Result<bool, Error> {
        Ok(self.text(column)? == "t")
    }

    pub fn node_or_null(self, column: usize) -> Result<Option<NodeId>, Error> {
        Ok(self.parsed::<Uuid>(column)?.map(NodeId))
    }

    pub fn node(self, column: usize) -> Result<NodeId, Error> {
        self.node_or_null(column)?.ok_or_else(|| invalid_value(column, "null"))
    }

    pub fn json<T: serde::de::DeserializeOwned>(self, column: usize) -> Result<Option<T>, Error> {
        let text = self.text_or_null(column)?;
        text.map(|text| serde_json::from_str(text).map_err(|error| Error::Decode(error.into()))).transpose()
    }

    pub fn head(self) -> Result<Head, Error> {
        let head = Head { hive_ms: self.number(0)?, server: self.text(1)?.to_owned(), ..Head::default() };
        let Some(origin) = self.parsed(2)? else { return Ok(head) };
        Ok(Head {
            origin: Some(origin),
            lineage: self.text_or_null(3)?.map(str::to_owned),
            lineage_ms: self.number(4)?,
            max_ttl_ms: self.number(5)?,
            hold: self.text_or_null(6)?.map(str::to_owned),
            version: self.number(7)?,
            limits: self.number(8)?,
            counts: Counts {
                alive: self.number(9)?,
                ready: self.number(10)?,
                engaged: self.number(11)?,
                epoch: Epoch(self.number(12)?),
                counted_ms: self.number(13)?,
            },
            ..head
        })
    }

    pub fn node_row(self) -> Result<NodeRow, Error> {
        let warm: Option<Vec<Name>> = self.json(9)?;
        Ok(NodeRow {
            id: self.node(0)?,
            name: self.text(1)?.to_owned(),
            beat: self.number(2)?,
            heartbeat_ms: self.number(3)?,
            ttl_ms: self.number(4)?,
            expires_ms: self.number(5)?,
            engaged_ms: self.number(6)?,
            ready: self.flag(7)?,
            eligible: self.flag(8)?,
            warm: warm.unwrap_or_default(),
            meta: self.text(10)?.to_owned(),
        })
    }

    pub fn lease_row(self) -> Result<LeaseRow, Error> {
        Ok(LeaseRow {
            name: self.text(0)?.into(),
            epoch: Epoch(self.number(1)?),
            holder: self.node_or_null(2)?,
            successor: self.node_or_null(3)?,
            since_ms: self.number(4)?,
            cause: self.text(5)?.to_owned(),
            free: self.flag(6)?,
            successor_is_warm: self.flag(7)?,
        })
    }

    pub fn event(self) -> Result<Event, Error> {
        Ok(Event {
            version: self.number(0)?,
            at_ms: self.number(1)?,
            kind: self.text(2)?.into(),
            node: self.node_or_null(3)?,
            lease: self.text_or_null(4)?.map(Name::from),
            epoch: self.number_or_null(5)?.map(Epoch),
            cause: self.text(6)?.into(),
        })
    }
}

/// The parts of `json_build_array(id, beat, beat_ms, ttl_ms, expires_ms)`.
pub(crate) type WatchedParts = (Uuid, i64, i64, i64, i64);

pub(crate) fn watched((id, beat, heartbeat_ms, ttl_ms, expires_ms): WatchedParts) -> WatchedNode {
    WatchedNode {
        id: NodeId(id),
        beat: unsigned(beat),
        heartbeat_ms: unsigned(heartbeat_ms),
        ttl_ms: unsigned(ttl_ms),
        expires_ms: unsigned(expires_ms),
        dead: false,
    }
}

pub(crate) fn unsigned(value: i64) -> u64 {
    value.max(0).cast_unsigned()
}

fn invalid_value(column: usize, text: &str) -> Error {
    Error::Decode(format!("column {column} holds an invalid value: {text:?}").into())
}

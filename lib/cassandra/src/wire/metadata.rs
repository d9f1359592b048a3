//! What an answer says about its columns, and a server about a statement it has prepared.

use std::sync::Arc;

use bytes::Bytes;

use super::envelope::Version;
use super::kind::Type;
use super::{Malformed, Reader};

mod flag {
    pub const GLOBAL_TABLE: i32 = 0x01;
    pub const MORE_PAGES: i32 = 0x02;
    pub const NONE: i32 = 0x04;
    pub const CHANGED: i32 = 0x08;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub keyspace: Arc<str>,
    pub table: Arc<str>,
    pub name: String,
    pub kind: Type,
}

/// Of one page of rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// As the server counts them; equals the length of `columns` unless these were left out.
    pub count: usize,
    /// `None`: as they were when the statement was prepared.
    pub columns: Option<Arc<[Column]>>,
    /// Where the next page begins; `None` on the last.
    pub next_page: Option<Bytes>,
    /// The columns have changed since the statement was prepared, and this names them from now on.
    pub changed_id: Option<Bytes>,
}

impl Metadata {
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let flags = from.i32("the flags of columns")?;
        let count = from.i32("the number of columns")?;
        let count = usize::try_from(count)
            .map_err(|_| Malformed::Value { what: "the number of columns", value: count.into() })?;
        let next_page = if flags & flag::MORE_PAGES != 0 { from.bytes("the place of the next page")? } else { None };
        let changed = flags & flag::CHANGED != 0;
        let changed_id = changed.then(|| from.short_bytes("the id of columns")).transpose()?;
        let columns = if flags & flag::NONE != 0 { None } else { Some(columns(from, flags, count)?) };
        Ok(Self {
            count,
            columns,
            next_page: next_page.map(Bytes::copy_from_slice),
            changed_id: changed_id.map(Bytes::copy_from_slice),
        })
    }
}

fn columns(from: &mut Reader<'_>, flags: i32, count: usize) -> Result<Arc<[Column]>, Malformed> {
    let table = |from: &mut Reader<'_>| Ok((from.string("a keyspace")?.into(), from.string("a table")?.into()));
    let global: Option<(Arc<str>, Arc<str>)> = (flags & flag::GLOBAL_TABLE != 0).then(|| table(from)).transpose()?;
    let count = from.room_for("columns", count, if global.is_some() { 4 } else { 8 })?;
    let column = |from: &mut Reader<'_>| {
        let (keyspace, table) = global.clone().map_or_else(|| table(from), Ok)?;
        let name = from.string("the name of a column")?.to_owned();
        Ok(Column { keyspace, table, name, kind: Type::read(from)? })
    };
    (0..count).map(|_| column(from)).collect()
}

/// A statement as one server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    pub id: Bytes,
    /// Version 5: names the columns of the result.
    pub result_id: Option<Bytes>,
    /// What is to be bound.
    pub parameters: Arc<[Column]>,
    /// Which of these make the partition key, in its order; empty if it is not bound as a whole.
    pub key: Vec<u16>,
    /// What comes back; empty for a statement that returns nothing.
    pub columns: Arc<[Column]>,
}

impl Prepared {
    pub fn read(from: &mut Reader<'_>, version: Version) -> Result<Self, Malformed> {
        let id = Bytes::copy_from_slice(from.short_bytes("the id of a statement")?);
        let in_v5 = version >= Version::V5;
        let result_id = in_v5.then(|| from.short_bytes("the id of columns").map(Bytes::copy_from_slice)).transpose()?;
        let flags = from.i32("the flags of parameters")?;
        let count = from.i32("the number of parameters")?;
        let count = usize::try_from(count)
            .map_err(|_| Malformed::Value { what: "the number of parameters", value: count.into() })?;
        let key_count = from.count("the columns of a key", 2)?;
        let key: Vec<u16> = (0..key_count).map(|_| from.u16("a column of a key")).collect::<Result<_, _>>()?;
        let parameters = if flags & flag::NONE != 0 { Arc::default() } else { columns(from, flags, count)? };
        if let Some(at) = key.iter().find(|at| usize::from(**at) >= parameters.len()) {
            return Err(Malformed::Value { what: "a column of a key", value: (*at).into() });
        }
        let columns = Metadata::read(from)?.columns.unwrap_or_default();
        Ok(Self { id, result_id, parameters, key, columns })
    }
}

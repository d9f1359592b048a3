//! The columns of an answer, and the description of a prepared statement.

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

/// Columns together with their encoded bytes: if the same bytes come again, they need not be decoded again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    pub columns: Arc<[Column]>,
    count: usize,
    of_one_table: bool,
    bytes: Bytes,
}

impl Layout {
    /// Creates a layout without encoded bytes; its columns are decoded each time they come.
    pub fn of(columns: Arc<[Column]>) -> Self {
        Self { columns, ..Self::default() }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let head = Head::read(from)?;
        if head.without_columns() {
            return Ok(Self::default());
        }
        let before = from.clone();
        let columns = columns(from, &head)?;
        let bytes = Bytes::copy_from_slice(before.until(from));
        Ok(Self { columns, count: head.count, of_one_table: head.of_one_table(), bytes })
    }

    /// Returns the columns if the same bytes come next. Their meaning does not depend on the bytes that follow.
    fn read_again(&self, from: &mut Reader<'_>, head: &Head<'_>) -> Option<Arc<[Column]>> {
        let alike = (self.count, self.of_one_table) == (head.count, head.of_one_table());
        (alike && !self.bytes.is_empty() && from.skip(&self.bytes)).then(|| Arc::clone(&self.columns))
    }
}

/// The metadata of one page of rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// The number of columns; equals the length of `columns` unless these were left out.
    pub count: usize,
    /// `None` = the columns of the prepared statement.
    pub columns: Option<Arc<[Column]>>,
    /// The page state from which the next page continues; `None` on the last page.
    pub next_page: Option<Bytes>,
    /// The new id of the columns, if they have changed since the statement was prepared.
    pub changed_id: Option<Bytes>,
}

impl Metadata {
    pub fn read(from: &mut Reader<'_>, known: Option<&Layout>) -> Result<Self, Malformed> {
        let head = Head::read(from)?;
        let same = known.filter(|_| !head.without_columns()).and_then(|known| known.read_again(from, &head));
        let columns = match same {
            Some(columns) => Some(columns),
            None if head.without_columns() => None,
            None => Some(columns(from, &head)?),
        };
        Ok(Self {
            count: head.count,
            columns,
            next_page: head.next_page.map(Bytes::copy_from_slice),
            changed_id: head.changed_id.map(Bytes::copy_from_slice),
        })
    }
}

/// The fields before the columns.
struct Head<'b> {
    flags: i32,
    count: usize,
    next_page: Option<&'b [u8]>,
    changed_id: Option<&'b [u8]>,
}

impl<'b> Head<'b> {
    fn read(from: &mut Reader<'b>) -> Result<Self, Malformed> {
        let flags = from.i32("the flags of columns")?;
        let count = columns_count(from, "the number of columns")?;
        let next_page = if flags & flag::MORE_PAGES != 0 { from.bytes("the place of the next page")? } else { None };
        let changed = flags & flag::CHANGED != 0;
        let changed_id = changed.then(|| from.short_bytes("the id of columns")).transpose()?;
        Ok(Self { flags, count, next_page, changed_id })
    }

    fn without_columns(&self) -> bool {
        self.flags & flag::NONE != 0
    }

    /// Whether all columns are of one table.
    fn of_one_table(&self) -> bool {
        self.flags & flag::GLOBAL_TABLE != 0
    }
}

/// The largest number of columns: no table has more, and a column takes more memory than encoded bytes.
const COLUMNS_MAX: i32 = 65_535;

fn columns_count(from: &mut Reader<'_>, what: &'static str) -> Result<usize, Malformed> {
    let count = from.i32(what)?;
    let believed = usize::try_from(count).ok().filter(|_| count <= COLUMNS_MAX);
    believed.ok_or(Malformed::Value { what, value: count.into() })
}

fn columns(from: &mut Reader<'_>, head: &Head<'_>) -> Result<Arc<[Column]>, Malformed> {
    let table = |from: &mut Reader<'_>| Ok((from.string("a keyspace")?.into(), from.string("a table")?.into()));
    let global: Option<(Arc<str>, Arc<str>)> = head.of_one_table().then(|| table(from)).transpose()?;
    let count = from.room_for("columns", head.count, if global.is_some() { 4 } else { 8 })?;
    let column = |from: &mut Reader<'_>| {
        let (keyspace, table) = global.clone().map_or_else(|| table(from), Ok)?;
        let name = from.string("the name of a column")?.to_owned();
        Ok(Column { keyspace, table, name, kind: Type::read(from)? })
    };
    (0..count).map(|_| column(from)).collect()
}

/// A statement as one server has prepared it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedStatement {
    pub id: Bytes,
    /// Version 5 only: the id of the columns of the result.
    pub result_id: Option<Bytes>,
    /// The parameters to bind.
    pub parameters: Arc<[Column]>,
    /// The indices of the parameters that form the partition key, in its order; empty if the key is not bound as a
    /// whole.
    pub key: Vec<u16>,
    /// The columns of the result; empty for a statement that returns no rows.
    pub result: Layout,
}

impl PreparedStatement {
    pub fn read(from: &mut Reader<'_>, version: Version) -> Result<Self, Malformed> {
        let id = Bytes::copy_from_slice(from.short_bytes("the id of a statement")?);
        let in_v5 = version >= Version::V5;
        let result_id = in_v5.then(|| from.short_bytes("the id of columns").map(Bytes::copy_from_slice)).transpose()?;
        let flags = from.i32("the flags of parameters")?;
        let count = columns_count(from, "the number of parameters")?;
        let key_count = from.count("the columns of a key", 2)?;
        let key: Vec<u16> = (0..key_count).map(|_| from.u16("a column of a key")).collect::<Result<_, _>>()?;
        let head = Head { flags, count, next_page: None, changed_id: None };
        let parameters = if head.without_columns() { Arc::default() } else { columns(from, &head)? };
        if let Some(at) = key.iter().find(|at| usize::from(**at) >= parameters.len()) {
            return Err(Malformed::Value { what: "a column of a key", value: (*at).into() });
        }
        let result = Layout::read(from)?;
        Ok(Self { id, result_id, parameters, key, result })
    }
}

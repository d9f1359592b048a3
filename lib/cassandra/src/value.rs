//! The content of cells.
//!
//! [`Bind`] converts Rust values to cells of a column's type, [`FromCell`] converts cells back; [`Value`] is for
//! callers that do not know the types in advance. A value that does not fit its column is refused here, before it is
//! sent.

mod bind;
mod cell;
mod decode;
mod vint;

use std::net::IpAddr;
use std::sync::Arc;

use uuid::Uuid;

use crate::wire::{Malformed, Type, request::TooLong};

pub use bind::{Bind, BindAll, CellContent, Unset, bind_all};
pub use cell::FromCell;

#[deprecated(since = "0.1.0", note = "renamed to ValueMismatch")]
pub type Unfit = ValueMismatch;
#[deprecated(since = "0.1.0", note = "renamed to CellContent")]
pub type Written = CellContent;

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    /// Only in a statement: leaves the column unchanged.
    Unset,
    Text(String),
    Bigint(i64),
    Blob(Vec<u8>),
    Boolean(bool),
    Counter(i64),
    Decimal(Decimal),
    Double(f64),
    Float(f32),
    Int(i32),
    /// Milliseconds since 1970.
    Timestamp(i64),
    Uuid(Uuid),
    Varint(Varint),
    Inet(IpAddr),
    /// Days since 1970.
    Date(i32),
    /// Nanoseconds since midnight.
    Time(i64),
    Smallint(i16),
    Tinyint(i8),
    Duration(Duration),
    List(Vec<Value>),
    Set(Vec<Value>),
    Map(Vec<(Value, Value)>),
    /// A tuple. After reading a cell it has the parts that the cell contains; parts missing at the end are null.
    Tuple(Vec<Value>),
    /// A user-defined type: its fields in the order of the type. Fields that were added to the type after the cell was
    /// written are missing; they are null.
    User(Vec<(Arc<str>, Value)>),
    Vector(Vec<Value>),
    Custom(Vec<u8>),
}

/// A whole number of any size: two's complement, big-endian, never empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Varint(pub Vec<u8>);

impl From<i64> for Varint {
    fn from(number: i64) -> Self {
        let bytes = number.to_be_bytes();
        // A leading byte that only repeats the sign of the next one is left out.
        let repeats = |pair: &[u8]| pair[0] == if pair[1] & 0x80 == 0 { 0 } else { 0xff };
        let from = bytes.windows(2).take_while(|pair| repeats(pair)).count();
        Self(bytes[from..].to_vec())
    }
}

impl Varint {
    /// Returns the number, or `None` if it does not fit into 64 bits.
    pub fn as_i64(&self) -> Option<i64> {
        let (first, rest) = self.0.split_first()?;
        if rest.len() >= 8 {
            return None;
        }
        let start = i64::from(first.cast_signed());
        Some(rest.iter().fold(start, |number, byte| number << 8 | i64::from(*byte)))
    }
}

/// The decimal number `unscaled · 10^-scale`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Decimal {
    pub scale: i32,
    pub unscaled: Varint,
}

/// A duration in months, days and nanoseconds. They are separate, since none is a fixed multiple of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Duration {
    pub months: i32,
    pub days: i32,
    pub nanoseconds: i64,
}

/// Why a value does not fit a column.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueMismatch {
    #[error("{given} does not fit {kind}")]
    Type { given: &'static str, kind: String },
    #[error("null where a value is required")]
    Null,
    #[error("a collection cannot contain null")]
    NullInside,
    #[error("{wanted} values are required, {given} were given")]
    Count { wanted: usize, given: usize },
    #[error("{given} elements do not fit {kind}")]
    Length { given: usize, kind: String },
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("column {column}: {why}")]
    Column { column: String, why: Box<ValueMismatch> },
    #[error("there is no column {0}")]
    NoColumn(String),
}

impl ValueMismatch {
    pub(crate) fn kind(given: &'static str, kind: &Type) -> Self {
        Self::Type { given, kind: kind.to_string() }
    }

    pub(crate) fn in_column(self, column: &str) -> Self {
        Self::Column { column: column.to_owned(), why: Box::new(self) }
    }
}

#[cfg(test)]
mod tests;

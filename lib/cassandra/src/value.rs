//! What stands in a cell.
//!
//! [`Bind`] turns Rust values into cells of a column's type, [`FromCell`] turns cells back; [`Value`] is for whoever
//! does not know the types beforehand. A value that does not fit its column is refused here, not at the server.

mod bind;
mod cell;
mod decode;
mod vint;

use std::net::IpAddr;
use std::sync::Arc;

use uuid::Uuid;

use crate::wire::{Malformed, Type, request::TooLong};

pub use bind::{Bind, BindAll, Unset, Written, bind_all};
pub use cell::FromCell;

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    /// In a statement: leaves the column as it is.
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
    /// Read from a cell, it has the parts that are there: those that are missing at its end are null.
    Tuple(Vec<Value>),
    /// Fields in the order of their type. Those that it was given after a cell was written are not there: they are null.
    User(Vec<(Arc<str>, Value)>),
    Vector(Vec<Value>),
    Custom(Vec<u8>),
}

/// A whole number of any size: two's complement, big end first, never empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Varint(pub Vec<u8>);

impl From<i64> for Varint {
    fn from(number: i64) -> Self {
        let bytes = number.to_be_bytes();
        // A byte of sign alone says nothing if the next one has the same sign.
        let repeats = |pair: &[u8]| pair[0] == if pair[1] & 0x80 == 0 { 0 } else { 0xff };
        let from = bytes.windows(2).take_while(|pair| repeats(pair)).count();
        Self(bytes[from..].to_vec())
    }
}

impl Varint {
    /// `None` if it is larger.
    pub fn as_i64(&self) -> Option<i64> {
        let (first, rest) = self.0.split_first()?;
        if rest.len() >= 8 {
            return None;
        }
        let start = i64::from(first.cast_signed());
        Some(rest.iter().fold(start, |number, byte| number << 8 | i64::from(*byte)))
    }
}

/// `unscaled · 10^-scale`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Decimal {
    pub scale: i32,
    pub unscaled: Varint,
}

/// Months, days and nanoseconds apart, since none of them is a fixed number of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Duration {
    pub months: i32,
    pub days: i32,
    pub nanoseconds: i64,
}

/// A value and a column that do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("{given} does not fit {kind}")]
    Type { given: &'static str, kind: String },
    #[error("null where a value must be")]
    Null,
    #[error("a collection holds no null")]
    NullInside,
    #[error("{wanted} values are wanted, {given} were given")]
    Count { wanted: usize, given: usize },
    #[error("{given} elements do not fit {kind}")]
    Length { given: usize, kind: String },
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("column {column}: {why}")]
    Column { column: String, why: Box<Unfit> },
    #[error("there is no column {0}")]
    NoColumn(String),
}

impl Unfit {
    pub(crate) fn kind(given: &'static str, kind: &Type) -> Self {
        Self::Type { given, kind: kind.to_string() }
    }

    pub(crate) fn in_column(self, column: &str) -> Self {
        Self::Column { column: column.to_owned(), why: Box::new(self) }
    }
}

#[cfg(test)]
mod tests;

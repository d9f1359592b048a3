//! Converts Rust values to cells, and checks them against the types that the server sent for the prepared statement.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use bytes::Bytes;
use uuid::Uuid;

use super::decode::DATE_MIDDLE;
use super::{Value, ValueMismatch, vint};
use crate::wire::request::{BoundValues, TooLong};
use crate::wire::{Column, Type};

/// What a bound value has put into its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellContent {
    Bytes,
    Null,
    Unset,
}

/// A value that can be bound to a column.
///
/// ```
/// use honeyflow_cassandra::{Bind, Type};
///
/// let mut out = Vec::new();
/// 7_i32.bind(&Type::Int, &mut out).unwrap();
/// assert_eq!(out, [0, 0, 0, 7]);
/// assert!(7_i32.bind(&Type::Text, &mut out).is_err());
/// ```
pub trait Bind {
    /// Appends the bytes of the value, without their length; appends nothing for null and unset.
    fn bind(&self, kind: &Type, out: &mut Vec<u8>) -> Result<CellContent, ValueMismatch>;
}

/// Leaves a column unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unset;

macro_rules! bind_number {
    ($($number:ty: $($kind:ident)|+;)*) => {$(
        impl Bind for $number {
            fn bind(&self, kind: &Type, out: &mut Vec<u8>) -> Result<CellContent, ValueMismatch> {
                if !matches!(kind, $(Type::$kind)|+) {
                    return Err(ValueMismatch::kind(stringify!($number), kind));
                }
                out.extend_from_slice(&self.to_be_bytes());
                Ok(CellContent::Bytes)
            }
        }
    )*};
}

bind_number! {
    i8: Tinyint;
    i16: Smallint;
    i32: Int;
    i64: Bigint | Counter | Timestamp | Time;
    f32: Float;
    f64: Double;
}

macro_rules! bind_bytes {
    ($($value:ty, $given:literal: $($kind:pat_param)|+ => $bytes:expr;)*) => {$(
        impl Bind for $value {
            fn bind(&self, kind: &Type, out: &mut Vec<u8>) -> Result<CellContent, ValueMismatch> {
                if !matches!(kind, $($kind)|+) {
                    return Err(ValueMismatch::kind($given, kind));
                }
                let bytes: fn(&Self, &mut Vec<u8>) = $bytes;
                bytes(self, out);
                Ok(CellContent::Bytes)
            }
        }
    )*};
}

bind_bytes! {
    bool, "bool": Type::Boolean => |value, out| out.push(u8::from(*value));
    str, "text": Type::Text | Type::Ascii => |text, out| out.extend_from_slice(text.as_bytes());
    String, "text": Type::Text | Type::Ascii => |text, out| out.extend_from_slice(text.as_bytes());
    [u8], "bytes": Type::Blob | Type::Custom(_) => |bytes, out| out.extend_from_slice(bytes);
    Vec<u8>, "bytes": Type::Blob | Type::Custom(_) => |bytes, out| out.extend_from_slice(bytes);
    Bytes, "bytes": Type::Blob | Type::Custom(_) => |bytes, out| out.extend_from_slice(bytes);
    Uuid, "uuid": Type::Uuid | Type::Timeuuid => |uuid, out| out.extend_from_slice(uuid.as_bytes());
    IpAddr, "address": Type::Inet => |address, out| match address {
        IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
    };
}

impl Bind for Unset {
    fn bind(&self, _: &Type, _: &mut Vec<u8>) -> Result<CellContent, ValueMismatch> {
        Ok(CellContent::Unset)
    }
}

impl<T: Bind + ?Sized> Bind for &T {
    fn bind(&self, kind: &Type, out: &mut Vec<u8>) -> Result<CellContent, ValueMismatch> {
        (**self).bind(kind, out)
    }
}

impl<T: Bind> Bind for Option<T> {
    fn bind(&self, kind: &Type, out: &mut Vec<u8>) -> Result<CellContent, ValueMismatch> {
        self.as_ref().map_or(Ok(CellContent::Null), |value| value.bind(kind, out))
    }
}

impl<T: Bind> Bind for Vec<T> {
    fn bind(&self, kind: &Type, out: &mut Vec<u8>) -> Result<CellContent, ValueMismatch> {
        match kind {
            Type::List(of) | Type::Set(of) => elements(of, self.iter(), out),
            Type::Vector(of, count) => vector(of, *count, self, kind, out),
            _ => Err(ValueMismatch::kind("a list", kind)),
        }
    }
}

impl<K: Bind, V: Bind> Bind for BTreeMap<K, V> {
    fn bind(&self, kind: &Type, out: &mut Vec<u8>) -> Result<CellContent, ValueMismatch> {
        pairs(self.len(), self.iter(), kind, out)
    }
}

impl<K: Bind, V: Bind, S> Bind for HashMap<K, V, S> {
    fn bind(&self, kind: &Type, out: &mut Vec<u8>) -> Result<CellContent, ValueMismatch> {
        pairs(self.len(), self.iter(), kind, out)
    }
}

impl Bind for Value {
    fn bind(&self, kind: &Type, out: &mut Vec<u8>) -> Result<CellContent, ValueMismatch> {
        match (self, kind) {
            (Self::Null, _) => return Ok(CellContent::Null),
            (Self::Unset, _) => return Ok(CellContent::Unset),
            (Self::Text(text), _) => return text.bind(kind, out),
            (Self::Blob(bytes), _) => return bytes.bind(kind, out),
            (Self::Boolean(value), _) => return value.bind(kind, out),
            (Self::Double(number), _) => return number.bind(kind, out),
            (Self::Float(number), _) => return number.bind(kind, out),
            (Self::Int(number), _) => return number.bind(kind, out),
            (Self::Smallint(number), _) => return number.bind(kind, out),
            (Self::Tinyint(number), _) => return number.bind(kind, out),
            (Self::Uuid(uuid), _) => return uuid.bind(kind, out),
            (Self::Inet(address), _) => return address.bind(kind, out),
            (Self::Bigint(number), Type::Bigint)
            | (Self::Counter(number), Type::Counter)
            | (Self::Timestamp(number), Type::Timestamp)
            | (Self::Time(number), Type::Time) => return number.bind(kind, out),
            (Self::Decimal(decimal), Type::Decimal) => {
                out.extend_from_slice(&decimal.scale.to_be_bytes());
                out.extend_from_slice(&decimal.unscaled.0);
            }
            (Self::Varint(number), Type::Varint) => out.extend_from_slice(&number.0),
            (Self::Date(days), Type::Date) => {
                out.extend_from_slice(&days.cast_unsigned().wrapping_add(DATE_MIDDLE).to_be_bytes());
            }
            (Self::Duration(duration), Type::Duration) => {
                vint::write(duration.months.into(), out);
                vint::write(duration.days.into(), out);
                vint::write(duration.nanoseconds, out);
            }
            (Self::List(values), Type::List(of)) | (Self::Set(values), Type::Set(of)) => {
                return elements(of, values.iter(), out);
            }
            (Self::Map(values), Type::Map(_)) => {
                return pairs(values.len(), values.iter().map(|(key, value)| (key, value)), kind, out);
            }
            (Self::Vector(values), Type::Vector(of, count)) => return vector(of, *count, values, kind, out),
            (Self::Tuple(values), Type::Tuple(kinds)) => {
                if values.len() > kinds.len() {
                    return Err(ValueMismatch::Count { wanted: kinds.len(), given: values.len() });
                }
                // Reading leaves out the parts that a cell does not contain: they are null.
                let values = values.iter().map(Some).chain(std::iter::repeat(None));
                values.zip(kinds).try_for_each(|(value, kind)| with_length(&value, kind, out, true))?;
            }
            (Self::User(values), Type::User(of)) => {
                if let Some((name, _)) = values.iter().find(|(name, _)| !of.fields.iter().any(|f| f.name == *name)) {
                    return Err(ValueMismatch::NoColumn(name.to_string()));
                }
                for field in &of.fields {
                    let given = values.iter().find(|(name, _)| *name == field.name).map(|(_, value)| value);
                    with_length(&given, &field.kind, out, true).map_err(|why| why.in_column(&field.name))?;
                }
            }
            (Self::Custom(bytes), Type::Custom(_)) => out.extend_from_slice(bytes),
            _ => return Err(ValueMismatch::kind("the value", kind)),
        }
        Ok(CellContent::Bytes)
    }
}

fn elements<'v, T: Bind + 'v>(
    of: &Type,
    values: impl ExactSizeIterator<Item = &'v T>,
    out: &mut Vec<u8>,
) -> Result<CellContent, ValueMismatch> {
    out.extend_from_slice(&length("a collection", values.len())?);
    values.into_iter().try_for_each(|value| with_length(value, of, out, false))?;
    Ok(CellContent::Bytes)
}

fn pairs<K: Bind, V: Bind>(
    count: usize,
    mut pairs: impl Iterator<Item = (K, V)>,
    kind: &Type,
    out: &mut Vec<u8>,
) -> Result<CellContent, ValueMismatch> {
    let Type::Map(of) = kind else { return Err(ValueMismatch::kind("a map", kind)) };
    out.extend_from_slice(&length("a map", count)?);
    pairs.try_for_each(|(key, value)| {
        with_length(&key, &of.0, out, false)?;
        with_length(&value, &of.1, out, false)
    })?;
    Ok(CellContent::Bytes)
}

fn vector<T: Bind>(
    of: &Type,
    count: usize,
    values: &[T],
    kind: &Type,
    out: &mut Vec<u8>,
) -> Result<CellContent, ValueMismatch> {
    if values.len() != count {
        return Err(ValueMismatch::Length { given: values.len(), kind: kind.to_string() });
    }
    for value in values {
        if value.bind(of, out)? != CellContent::Bytes {
            return Err(ValueMismatch::NullInside);
        }
    }
    Ok(CellContent::Bytes)
}

fn length(what: &'static str, length: usize) -> Result<[u8; 4], TooLong> {
    let fits = i32::try_from(length).map_err(|_| TooLong { what, length, max: i32::MAX as usize })?;
    Ok(fits.to_be_bytes())
}

/// Appends a value with its length in front: one inside another value, or a value of a statement.
fn with_length<T: Bind + ?Sized>(
    value: &T,
    kind: &Type,
    out: &mut Vec<u8>,
    may_be_null: bool,
) -> Result<(), ValueMismatch> {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    let length_bytes = match value.bind(kind, out)? {
        CellContent::Bytes => length("a value", out.len() - at - 4)?,
        CellContent::Null if may_be_null => (-1_i32).to_be_bytes(),
        _ => return Err(ValueMismatch::NullInside),
    };
    out[at..at + 4].copy_from_slice(&length_bytes);
    Ok(())
}

/// All values of a statement, in the order of its parameters.
pub trait BindAll {
    fn count(&self) -> usize;
    fn bind_at(&self, at: usize, kind: &Type, out: &mut Vec<u8>) -> Result<CellContent, ValueMismatch>;
}

/// Encodes the values as they are sent; the error names the column.
pub fn bind_all(values: &(impl BindAll + ?Sized), columns: &[Column]) -> Result<BoundValues, ValueMismatch> {
    let given = values.count();
    let count = u16::try_from(given).ok().filter(|_| given == columns.len());
    let count = count.ok_or(ValueMismatch::Count { wanted: columns.len(), given })?;
    let mut bytes = Vec::with_capacity(columns.len() * 12);
    for (at, column) in columns.iter().enumerate() {
        let start = bytes.len();
        bytes.extend_from_slice(&[0; 4]);
        let content = values.bind_at(at, &column.kind, &mut bytes).map_err(|why| why.in_column(&column.name))?;
        let length_bytes = match content {
            CellContent::Bytes => length("a value", bytes.len() - start - 4)?,
            CellContent::Null => (-1_i32).to_be_bytes(),
            CellContent::Unset => (-2_i32).to_be_bytes(),
        };
        bytes[start..start + 4].copy_from_slice(&length_bytes);
    }
    Ok(BoundValues { count, bytes })
}

impl<T: BindAll + ?Sized> BindAll for &T {
    fn count(&self) -> usize {
        (**self).count()
    }

    fn bind_at(&self, at: usize, kind: &Type, out: &mut Vec<u8>) -> Result<CellContent, ValueMismatch> {
        (**self).bind_at(at, kind, out)
    }
}

impl<T: Bind> BindAll for [T] {
    fn count(&self) -> usize {
        self.len()
    }

    fn bind_at(&self, at: usize, kind: &Type, out: &mut Vec<u8>) -> Result<CellContent, ValueMismatch> {
        self[at].bind(kind, out)
    }
}

impl<T: Bind> BindAll for Vec<T> {
    fn count(&self) -> usize {
        self.len()
    }

    fn bind_at(&self, at: usize, kind: &Type, out: &mut Vec<u8>) -> Result<CellContent, ValueMismatch> {
        self[at].bind(kind, out)
    }
}

macro_rules! bind_tuple {
    ($($name:ident $at:tt),*; $count:literal) => {
        impl<$($name: Bind),*> BindAll for ($($name,)*) {
            fn count(&self) -> usize {
                $count
            }

            #[allow(unused_variables, reason = "the empty tuple binds nothing")]
            fn bind_at(&self, at: usize, kind: &Type, out: &mut Vec<u8>) -> Result<CellContent, ValueMismatch> {
                match at {
                    $($at => self.$at.bind(kind, out),)*
                    _ => Err(ValueMismatch::Count { wanted: at + 1, given: $count }),
                }
            }
        }
    };
}

bind_tuple!(; 0);
bind_tuple!(A 0; 1);
bind_tuple!(A 0, B 1; 2);
bind_tuple!(A 0, B 1, C 2; 3);
bind_tuple!(A 0, B 1, C 2, D 3; 4);
bind_tuple!(A 0, B 1, C 2, D 3, E 4; 5);
bind_tuple!(A 0, B 1, C 2, D 3, E 4, F 5; 6);
bind_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6; 7);
bind_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7; 8);

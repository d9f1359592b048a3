//! Converts any cell to a [`Value`]. Its depth is that of the type, which is bounded, and its size is bounded by the
//! bytes.

use std::net::IpAddr;

use uuid::Uuid;

use super::{Decimal, Duration, Value, Varint, vint};
use crate::wire::{Field, Malformed, Reader, Type};

/// The encoded value of 1970-01-01: days are counted from the middle of their range.
pub const DATE_MIDDLE: u32 = 1 << 31;

impl Value {
    /// Reads a cell; `None` is null. An empty cell of a type without an empty value counts as null: old tables contain
    /// such cells.
    pub fn read(kind: &Type, cell: Option<&[u8]>) -> Result<Self, Malformed> {
        let Some(cell) = cell else { return Ok(Self::Null) };
        let may_be_empty = matches!(kind, Type::Text | Type::Ascii | Type::Blob | Type::Custom(_));
        if cell.is_empty() && !may_be_empty {
            return Ok(Self::Null);
        }
        Ok(match kind {
            Type::Ascii | Type::Text => Self::Text(text(cell)?.to_owned()),
            Type::Bigint => Self::Bigint(i64::from_be_bytes(exact(cell)?)),
            Type::Blob => Self::Blob(cell.to_vec()),
            Type::Boolean => Self::Boolean(exact::<1>(cell)? != [0]),
            Type::Counter => Self::Counter(i64::from_be_bytes(exact(cell)?)),
            Type::Decimal => Self::Decimal(decimal(cell)?),
            Type::Double => Self::Double(f64::from_be_bytes(exact(cell)?)),
            Type::Float => Self::Float(f32::from_be_bytes(exact(cell)?)),
            Type::Int => Self::Int(i32::from_be_bytes(exact(cell)?)),
            Type::Timestamp => Self::Timestamp(i64::from_be_bytes(exact(cell)?)),
            Type::Uuid | Type::Timeuuid => Self::Uuid(Uuid::from_bytes(exact(cell)?)),
            Type::Varint => Self::Varint(Varint(cell.to_vec())),
            Type::Inet => Self::Inet(address(cell)?),
            Type::Date => Self::Date(u32::from_be_bytes(exact(cell)?).wrapping_sub(DATE_MIDDLE).cast_signed()),
            Type::Time => Self::Time(i64::from_be_bytes(exact(cell)?)),
            Type::Smallint => Self::Smallint(i16::from_be_bytes(exact(cell)?)),
            Type::Tinyint => Self::Tinyint(i8::from_be_bytes(exact(cell)?)),
            Type::Duration => Self::Duration(duration(cell)?),
            Type::List(of) => Self::List(elements(of, cell)?),
            Type::Set(of) => Self::Set(elements(of, cell)?),
            Type::Map(of) => {
                let pair =
                    |(key, value): (Cell<'_>, Cell<'_>)| Ok((Self::read(&of.0, key)?, Self::read(&of.1, value)?));
                Self::Map(pairs(cell)?.map(|parts| parts.and_then(pair)).collect::<Result<_, _>>()?)
            }
            Type::Tuple(kinds) => {
                let from = &mut Reader::new(cell);
                Self::Tuple(kinds.iter().map_while(|kind| part(kind, from)).collect::<Result<_, _>>()?)
            }
            Type::User(of) => {
                let from = &mut Reader::new(cell);
                let mut field = |field: &Field| Some(part(&field.kind, from)?.map(|value| (field.name.clone(), value)));
                Self::User(of.fields.iter().map_while(&mut field).collect::<Result<_, _>>()?)
            }
            Type::Vector(of, count) => {
                let parts = vector(of, *count, cell)?;
                Self::Vector(parts.map(|part| Self::read(of, Some(part))).collect::<Result<_, _>>()?)
            }
            Type::Custom(_) => Self::Custom(cell.to_vec()),
        })
    }
}

fn elements(of: &Type, cell: &[u8]) -> Result<Vec<Value>, Malformed> {
    list(cell)?.map(|element| Value::read(of, element?)).collect()
}

/// Reads the next part of a tuple; `None` if the cell has no more. Fields that were added to a type later are missing
/// in older cells, and no null is created for them: a type has up to 65,535 parts, so a few bytes could stand for any
/// number of nulls.
fn part(kind: &Type, from: &mut Reader<'_>) -> Option<Result<Value, Malformed>> {
    let part = from.left() > 0;
    part.then(|| Value::read(kind, from.bytes("a part of a tuple")?))
}

pub type Cell<'r> = Option<&'r [u8]>;

pub fn list(cell: &[u8]) -> Result<impl Iterator<Item = Result<Cell<'_>, Malformed>>, Malformed> {
    let mut from = Reader::new(cell);
    let count = from.count("elements of a collection", 4)?;
    Ok((0..count).map(move |_| from.bytes("an element of a collection")))
}

pub fn pairs(cell: &[u8]) -> Result<impl Iterator<Item = Result<(Cell<'_>, Cell<'_>), Malformed>>, Malformed> {
    let mut from = Reader::new(cell);
    let count = from.count("pairs of a map", 8)?;
    Ok((0..count).map(move |_| Ok((from.bytes("a key of a map")?, from.bytes("a value of a map")?))))
}

/// Splits a vector into its elements, which all have the same length.
pub fn vector<'r>(of: &Type, count: usize, cell: &'r [u8]) -> Result<impl Iterator<Item = &'r [u8]>, Malformed> {
    let each = of.fixed_bytes().unwrap_or_default();
    let wanted = (each as u64).saturating_mul(count as u64);
    if each == 0 || wanted != cell.len() as u64 {
        return Err(Malformed::Short { what: "a vector", wanted, left: cell.len() });
    }
    Ok(cell.chunks_exact(each))
}

pub fn exact<const N: usize>(cell: &[u8]) -> Result<[u8; N], Malformed> {
    cell.try_into().map_err(|_| Malformed::Short { what: "a value", wanted: N as u64, left: cell.len() })
}

pub fn text(cell: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(cell).map_err(|_| Malformed::Text { what: "a text" })
}

pub fn address(cell: &[u8]) -> Result<IpAddr, Malformed> {
    match cell.len() {
        4 => exact::<4>(cell).map(IpAddr::from),
        _ => exact::<16>(cell).map(IpAddr::from),
    }
}

fn decimal(cell: &[u8]) -> Result<Decimal, Malformed> {
    let from = &mut Reader::new(cell);
    let scale = from.i32("the scale of a decimal")?;
    let unscaled = from.rest();
    if unscaled.is_empty() {
        return Err(Malformed::Short { what: "a decimal", wanted: 5, left: cell.len() });
    }
    Ok(Decimal { scale, unscaled: Varint(unscaled.to_vec()) })
}

fn duration(cell: &[u8]) -> Result<Duration, Malformed> {
    let from = &mut Reader::new(cell);
    let small = |number: i64| {
        i32::try_from(number).map_err(|_| Malformed::Value { what: "a part of a duration", value: number })
    };
    let (months, days) = (small(vint::read(from)?)?, small(vint::read(from)?)?);
    Ok(Duration { months, days, nanoseconds: vint::read(from)? })
}

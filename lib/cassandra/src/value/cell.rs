//! Converts cells to Rust values; text and bytes are not copied.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};
use std::net::IpAddr;

use uuid::Uuid;

use super::decode::{Cell, address, exact, list, pairs, text, vector};
use super::{Value, ValueMismatch};
use crate::wire::Type;

/// A value that can be read from a cell. Only an `Option` or a [`Value`] can be null.
pub trait FromCell<'r>: Sized {
    fn read(kind: &Type, cell: Cell<'r>) -> Result<Self, ValueMismatch>;
}

macro_rules! read_fixed {
    ($($value:ty, $given:literal: $($kind:ident)|+ => $read:expr;)*) => {$(
        impl<'r> FromCell<'r> for $value {
            fn read(kind: &Type, cell: Cell<'r>) -> Result<Self, ValueMismatch> {
                if !matches!(kind, $(Type::$kind)|+) {
                    return Err(ValueMismatch::kind($given, kind));
                }
                let read: fn(&'r [u8]) -> Result<Self, crate::wire::Malformed> = $read;
                Ok(read(cell.ok_or(ValueMismatch::Null)?)?)
            }
        }
    )*};
}

read_fixed! {
    i8, "i8": Tinyint => |cell| exact(cell).map(i8::from_be_bytes);
    i16, "i16": Smallint => |cell| exact(cell).map(i16::from_be_bytes);
    i32, "i32": Int => |cell| exact(cell).map(i32::from_be_bytes);
    i64, "i64": Bigint | Counter | Timestamp | Time => |cell| exact(cell).map(i64::from_be_bytes);
    f32, "f32": Float => |cell| exact(cell).map(f32::from_be_bytes);
    f64, "f64": Double => |cell| exact(cell).map(f64::from_be_bytes);
    bool, "bool": Boolean => |cell| exact::<1>(cell).map(|byte| byte != [0]);
    Uuid, "uuid": Uuid | Timeuuid => |cell| exact(cell).map(Uuid::from_bytes);
    IpAddr, "address": Inet => |cell| address(cell);
    &'r str, "text": Text | Ascii => |cell| text(cell);
    String, "text": Text | Ascii => |cell| text(cell).map(str::to_owned);
    &'r [u8], "bytes": Blob => |cell| Ok(cell);
    Vec<u8>, "bytes": Blob => |cell| Ok(cell.to_vec());
}

impl<'r> FromCell<'r> for Value {
    fn read(kind: &Type, cell: Cell<'r>) -> Result<Self, ValueMismatch> {
        Ok(Value::read(kind, cell)?)
    }
}

impl<'r, T: FromCell<'r>> FromCell<'r> for Option<T> {
    fn read(kind: &Type, cell: Cell<'r>) -> Result<Self, ValueMismatch> {
        cell.map(|cell| T::read(kind, Some(cell))).transpose()
    }
}

/// An empty collection is null at the server: null is read as an empty one.
impl<'r, T: FromCell<'r>> FromCell<'r> for Vec<T> {
    fn read(kind: &Type, cell: Cell<'r>) -> Result<Self, ValueMismatch> {
        match (kind, cell) {
            (Type::List(_) | Type::Set(_), None) => Ok(Vec::new()),
            (Type::List(of) | Type::Set(of), Some(cell)) => list(cell)?.map(|element| T::read(of, element?)).collect(),
            (Type::Vector(..), None) => Err(ValueMismatch::Null),
            (Type::Vector(of, count), Some(cell)) => {
                vector(of, *count, cell)?.map(|part| T::read(of, Some(part))).collect()
            }
            _ => Err(ValueMismatch::kind("a list", kind)),
        }
    }
}

fn map<'r, K: FromCell<'r>, V: FromCell<'r>, M: FromIterator<(K, V)>>(
    kind: &Type,
    cell: Cell<'r>,
) -> Result<M, ValueMismatch> {
    let Type::Map(of) = kind else { return Err(ValueMismatch::kind("a map", kind)) };
    let Some(cell) = cell else { return Ok(M::from_iter([])) };
    let pair = |parts: Result<(Cell<'r>, Cell<'r>), _>| {
        let (key, value) = parts?;
        Ok((K::read(&of.0, key)?, V::read(&of.1, value)?))
    };
    pairs(cell)?.map(pair).collect()
}

impl<'r, K: FromCell<'r> + Ord, V: FromCell<'r>> FromCell<'r> for BTreeMap<K, V> {
    fn read(kind: &Type, cell: Cell<'r>) -> Result<Self, ValueMismatch> {
        map(kind, cell)
    }
}

impl<'r, K: FromCell<'r> + Eq + Hash, V: FromCell<'r>, S: BuildHasher + Default> FromCell<'r> for HashMap<K, V, S> {
    fn read(kind: &Type, cell: Cell<'r>) -> Result<Self, ValueMismatch> {
        map(kind, cell)
    }
}

//! Converts JSON to cells of the column's type. A value that does not fit rejects its document alone; the failure names
//! the field.

use honeyflow_cassandra::{
    Type, Value,
    value::{Decimal, Varint},
};
use serde_json::Value as Json;
use uuid::Uuid;

use crate::moment;

/// Returns the cell, or `None` if the value does not fit the type.
pub fn cell(value: &Json, kind: &Type) -> Option<Value> {
    if value.is_null() {
        return Some(Value::Null);
    }
    Some(match kind {
        Type::Text => Value::Text(value.as_str()?.to_owned()),
        Type::Ascii => Value::Text(value.as_str().filter(|text| text.is_ascii())?.to_owned()),
        Type::Boolean => Value::Boolean(boolean(value)?),
        Type::Tinyint => Value::Tinyint(integer(value)?.try_into().ok()?),
        Type::Smallint => Value::Smallint(integer(value)?.try_into().ok()?),
        Type::Int => Value::Int(integer(value)?.try_into().ok()?),
        Type::Bigint => Value::Bigint(integer(value)?),
        Type::Varint => Value::Varint(varint(digits(value)?.parse().ok()?)),
        Type::Decimal => Value::Decimal(decimal(&digits(value)?)?),
        Type::Double => Value::Double(real(value)?),
        #[expect(clippy::cast_possible_truncation, reason = "a float is what the column holds")]
        Type::Float => Value::Float(Some(real(value)? as f32).filter(|float| float.is_finite())?),
        Type::Uuid => Value::Uuid(value.as_str()?.parse::<Uuid>().ok()?),
        Type::Timeuuid => Value::Uuid(value.as_str()?.parse::<Uuid>().ok().filter(|uuid| uuid.get_version_num() == 1)?),
        Type::Inet => Value::Inet(value.as_str()?.parse().ok()?),
        Type::Date => Value::Date(moment::date(value.as_str()?)?),
        Type::Time => Value::Time(moment::time(value.as_str()?)?),
        // A number is milliseconds since 1970, as the cluster itself reads it.
        Type::Timestamp => Value::Timestamp(match value.as_str() {
            Some(text) => moment::timestamp(text)?,
            None => integer(value)?,
        }),
        Type::Blob => Value::Blob(from_base64(value.as_str()?)?),
        Type::List(of) => list(value, of)?.map_or(Value::Null, Value::List),
        Type::Set(of) => list(value, of)?.map_or(Value::Null, Value::Set),
        Type::Vector(of, count) => Value::Vector(list(value, of)?.filter(|elements| elements.len() == *count)?),
        Type::Map(of) => {
            let pair =
                |(name, element): (&String, &Json)| Some((cell_from_text(name, &of.0)?, element_of(element, &of.1)?));
            let pairs: Vec<_> = value.as_object()?.iter().map(pair).collect::<Option<_>>()?;
            if pairs.is_empty() { Value::Null } else { Value::Map(pairs) }
        }
        Type::Tuple(kinds) => {
            // Parts at the end may be missing, as `decode` leaves null parts out.
            let parts = value.as_array().filter(|parts| parts.len() <= kinds.len())?;
            Value::Tuple(parts.iter().zip(kinds).map(|(part, kind)| cell(part, kind)).collect::<Option<_>>()?)
        }
        Type::User(of) => {
            let given = value.as_object()?;
            let known = |name: &String| of.fields.iter().any(|field| *field.name == **name);
            if !given.keys().all(known) {
                return None;
            }
            let field = |field: &honeyflow_cassandra::wire::Field| {
                Some((field.name.clone(), cell(given.get(&*field.name).unwrap_or(&Json::Null), &field.kind)?))
            };
            Value::User(of.fields.iter().map(field).collect::<Option<_>>()?)
        }
        Type::Counter | Type::Duration | Type::Custom(_) => return None,
    })
}

/// Whether any JSON value can be written into a column of this type.
pub fn is_writable(kind: &Type) -> bool {
    match kind {
        Type::Counter | Type::Duration | Type::Custom(_) => false,
        Type::List(of) | Type::Set(of) | Type::Vector(of, _) => is_writable(of),
        Type::Map(of) => is_writable(&of.0) && is_writable(&of.1),
        Type::Tuple(kinds) => kinds.iter().all(is_writable),
        Type::User(of) => of.fields.iter().all(|field| is_writable(&field.kind)),
        _ => true,
    }
}

/// The name of a value's JSON type, for messages.
pub fn type_name(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "text",
        Json::Array(_) => "an array",
        Json::Object(_) => "an object",
    }
}

/// Returns the cell of a key part, or of a map's key: both are text in JSON, with any type of the column.
pub fn cell_from_text(text: &str, kind: &Type) -> Option<Value> {
    match kind {
        Type::Blob => from_hex(text).map(Value::Blob),
        Type::Boolean => text.parse().ok().map(Value::Boolean),
        Type::Tinyint | Type::Smallint | Type::Int | Type::Bigint | Type::Varint => {
            // Accept only the text that `decode` writes: two different texts must not name the same row.
            let number: i128 = text.parse().ok().filter(|number: &i128| number.to_string() == text)?;
            if *kind == Type::Varint {
                return Some(Value::Varint(varint(number)));
            }
            cell(&Json::from(i64::try_from(number).ok()?), kind)
        }
        Type::Uuid | Type::Timeuuid => {
            let uuid: Uuid = text.parse().ok().filter(|uuid: &Uuid| uuid.to_string() == text)?;
            cell(&Json::from(uuid.to_string()), kind)
        }
        _ => cell(&Json::from(text), kind),
    }
}

/// Reads the elements of a collection; `Some(None)` if it is empty, which is null at the server.
fn list(value: &Json, of: &Type) -> Option<Option<Vec<Value>>> {
    let elements: Vec<_> = value.as_array()?.iter().map(|element| element_of(element, of)).collect::<Option<_>>()?;
    Some(Some(elements).filter(|elements| !elements.is_empty()))
}

/// Reads one element of a collection; null does not fit.
fn element_of(element: &Json, of: &Type) -> Option<Value> {
    cell(element, of).filter(|element| *element != Value::Null)
}

/// Reads a boolean. SQLite and MySQL have no boolean type and use 0 and 1.
fn boolean(value: &Json) -> Option<bool> {
    match value {
        Json::Bool(truth) => Some(*truth),
        _ => match integer(value)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
    }
}

fn integer(value: &Json) -> Option<i64> {
    match value {
        Json::Number(number) if number.is_f64() => {
            honeyflow_event::document::canonical_number(number.as_f64()?)?.as_i64()
        }
        Json::Number(number) => number.as_i64(),
        _ => None,
    }
}

fn real(value: &Json) -> Option<f64> {
    match value {
        Json::Number(number) => number.as_f64(),
        // Databases give exact decimals as text.
        Json::String(text) if looks_like_number(text) => text.parse().ok(),
        _ => None,
    }
    .filter(|real: &f64| real.is_finite())
}

/// The text of a number, for columns of any precision.
fn digits(value: &Json) -> Option<String> {
    match value {
        Json::Number(number) => Some(number.to_string()),
        Json::String(text) if looks_like_number(text) => Some(text.clone()),
        _ => None,
    }
}

fn looks_like_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
}

/// Encodes in two's complement, without leading bytes that only repeat the sign.
pub fn varint(number: i128) -> Varint {
    let bytes = number.to_be_bytes();
    let repeats = |pair: &[u8]| pair[0] == if pair[1] & 0x80 == 0 { 0 } else { 0xff };
    let from = bytes.windows(2).take_while(|pair| repeats(pair)).count();
    Varint(bytes[from..].to_vec())
}

/// Parses a decimal: `12.50` is 1250 with two places; `1.5e3` is 1500. Zeros at the end are dropped, so that equal
/// numbers become equal cells.
pub fn decimal(text: &str) -> Option<Decimal> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, places) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{places}");
    if places.contains(['-', '+']) {
        return None;
    }
    let mut unscaled: i128 = digits.parse().ok()?;
    let mut scale = i32::try_from(places.len()).ok()?.checked_sub(exponent)?;
    if unscaled == 0 {
        scale = 0;
    }
    while scale > 0 && unscaled % 10 == 0 {
        (unscaled, scale) = (unscaled / 10, scale - 1);
    }
    while scale < 0 {
        (unscaled, scale) = (unscaled.checked_mul(10)?, scale + 1);
    }
    Some(Decimal { scale, unscaled: varint(unscaled) })
}

pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect()
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let signs = text.trim_end_matches('=');
    if text.len() - signs.len() > 2 {
        return None;
    }
    for four in signs.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for sign in four {
            bits = bits << 6 | u32::from(value(*sign)?);
        }
        bits <<= 6 * (4 - four.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_that_fit_are_taken() {
        for (value, kind, cell_of) in [
            (json!("a"), Type::Text, Value::Text("a".into())),
            (json!(3.0), Type::Int, Value::Int(3)),
            (json!(1), Type::Boolean, Value::Boolean(true)),
            (json!("12.50"), Type::Decimal, Value::Decimal(Decimal { scale: 1, unscaled: 125.into() })),
            (json!(-1500), Type::Decimal, Value::Decimal(Decimal { scale: 0, unscaled: (-1500).into() })),
            (json!(1.5e3), Type::Decimal, Value::Decimal(Decimal { scale: 0, unscaled: 1500.into() })),
            (
                json!("-79228162514264337593543950335"),
                Type::Varint,
                Value::Varint(varint(-79_228_162_514_264_337_593_543_950_335)),
            ),
            (json!(5), Type::Timestamp, Value::Timestamp(5)),
            (json!("//79"), Type::Blob, Value::Blob(vec![0xff, 0xfe, 0xfd])),
            (json!("aGk="), Type::Blob, Value::Blob(b"hi".to_vec())),
            (json!([]), Type::List(Box::new(Type::Int)), Value::Null),
            (
                json!({"1": "a"}),
                Type::Map(Box::new((Type::Int, Type::Text))),
                Value::Map(vec![(Value::Int(1), Value::Text("a".into()))]),
            ),
            (json!(null), Type::Uuid, Value::Null),
        ] {
            assert_eq!(cell(&value, &kind), Some(cell_of), "{value} as {kind}");
        }
    }

    #[test]
    fn rl_15_values_that_do_not_fit_are_refused() {
        for (value, kind) in [
            (json!(1), Type::Text),
            (json!("ä"), Type::Ascii),
            (json!(128), Type::Tinyint),
            (json!(1.5), Type::Int),
            (json!("3"), Type::Int),
            (json!(2), Type::Boolean),
            (json!("cheap"), Type::Decimal),
            (json!("1.-5"), Type::Decimal),
            (json!("inf"), Type::Double),
            (json!(1e300), Type::Float),
            (json!("4"), Type::Uuid),
            (json!("2024-13-01"), Type::Date),
            (json!("a b="), Type::Blob),
            (json!([1, null]), Type::List(Box::new(Type::Int))),
            (json!([1.0]), Type::Vector(Box::new(Type::Float), 2)),
            (json!(1), Type::Counter),
        ] {
            assert_eq!(cell(&value, &kind), None, "{value} as {kind}");
        }
    }

    #[test]
    fn a_key_has_one_text() {
        assert_eq!(cell_from_text("42", &Type::Int), Some(Value::Int(42)));
        for (text, kind) in [("042", Type::Int), ("+4", Type::Bigint), ("A0", Type::Blob), ("a", Type::Blob)] {
            assert_eq!(cell_from_text(text, &kind), None, "{text}");
        }
        assert_eq!(cell_from_text("00ff", &Type::Blob), Some(Value::Blob(vec![0, 255])));
        assert_eq!(cell_from_text("67E55044-10B1-426F-9247-BB680E5FE0C8", &Type::Uuid), None);
    }
}

//! Converts JSON values to values of the evaluator and back. Results are bounded: 16 MiB, 64 levels.

use jaq_json::{Num, Val};
use serde_json::{Map, Number, Value};

const RESULT_BYTES_MAX: usize = 16 << 20;
const NESTING_MAX: usize = 64;

pub(super) fn from_json(value: &Value) -> Val {
    match value {
        Value::Null => Val::Null,
        Value::Bool(boolean) => Val::Bool(*boolean),
        Value::Number(number) => Val::Num(match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(integer), _, _) => Num::from_integral(integer),
            (None, Some(integer), _) => Num::from_integral(integer),
            (None, None, real) => Num::Float(real.unwrap_or(f64::NAN)),
        }),
        Value::String(text) => Val::from(text.clone()),
        Value::Array(items) => items.iter().map(from_json).collect(),
        Value::Object(fields) => {
            Val::obj(fields.iter().map(|(name, field)| (Val::from(name.clone()), from_json(field))).collect())
        }
    }
}

/// Converts a result; the error says whether it is too large, too deep, or not JSON.
pub(super) fn to_json(value: &Val) -> Result<Value, String> {
    let mut bytes_left = RESULT_BYTES_MAX;
    convert(value, NESTING_MAX, &mut bytes_left)
}

fn convert(value: &Val, levels_left: usize, bytes_left: &mut usize) -> Result<Value, String> {
    // each value counts a few bytes, so that a list of a million nulls is not free
    spend(8, bytes_left)?;
    let inside = || levels_left.checked_sub(1).ok_or_else(|| format!("the result nests deeper than {NESTING_MAX}"));
    Ok(match value {
        Val::Null => Value::Null,
        Val::Bool(boolean) => Value::Bool(*boolean),
        Val::Num(number) => Value::Number(convert_number(number)?),
        Val::TStr(bytes) | Val::BStr(bytes) => {
            spend(bytes.len(), bytes_left)?;
            Value::String(String::from_utf8_lossy(bytes).into_owned())
        }
        Val::Arr(items) => {
            let levels_left = inside()?;
            let items = items.iter().map(|item| convert(item, levels_left, bytes_left));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Val::Obj(fields) => {
            let levels_left = inside()?;
            let mut converted = Map::new();
            for (name, field) in fields.iter() {
                let (Val::TStr(name) | Val::BStr(name)) = name else {
                    return Err("a key of an object is not a text".to_owned());
                };
                spend(name.len(), bytes_left)?;
                let field = convert(field, levels_left, bytes_left)?;
                converted.insert(String::from_utf8_lossy(name).into_owned(), field);
            }
            Value::Object(converted)
        }
    })
}

fn spend(bytes: usize, bytes_left: &mut usize) -> Result<(), String> {
    *bytes_left = bytes_left
        .checked_sub(bytes)
        .ok_or_else(|| format!("the result is larger than {} MiB", RESULT_BYTES_MAX >> 20))?;
    Ok(())
}

fn convert_number(number: &Num) -> Result<Number, String> {
    let real = match number {
        Num::Int(integer) => return Ok(Number::from(*integer as i64)),
        Num::Float(real) => *real,
        Num::BigInt(integer) => match u64::try_from(&**integer) {
            Ok(integer) => return Ok(integer.into()),
            Err(_) => integer.to_string().parse().unwrap_or(f64::NAN),
        },
        Num::Dec(text) => text.parse().unwrap_or(f64::NAN),
    };
    honeyflow_event::document::canonical_number(real)
        .ok_or_else(|| "the result has a number that JSON has not".to_owned())
}

//! Converts cells to JSON. Encoding a document and decoding it again gives the form that the table stores, so that a
//! document can be compared with a row.

use honeyflow_cassandra::{
    Value,
    value::{Decimal, Varint},
};
use honeyflow_event::document;
use serde_json::{Map, Value as Json};

use crate::moment;

pub fn json(cell: &Value) -> Json {
    match cell {
        Value::Null | Value::Unset | Value::Custom(_) | Value::Duration(_) => Json::Null,
        Value::Text(text) => text.as_str().into(),
        Value::Bigint(number) | Value::Counter(number) => (*number).into(),
        Value::Int(number) => (*number).into(),
        Value::Smallint(number) => (*number).into(),
        Value::Tinyint(number) => (*number).into(),
        Value::Boolean(truth) => (*truth).into(),
        Value::Double(real) => document::canonical_number(*real).map_or(Json::Null, Json::Number),
        Value::Float(real) => document::canonical_number((*real).into()).map_or(Json::Null, Json::Number),
        // As text: JSON readers would round a JSON number to a 64-bit float.
        Value::Varint(number) => whole(number).map_or(Json::Null, |number| number.to_string().into()),
        Value::Decimal(decimal) => decimal_text(decimal).map_or(Json::Null, Json::String),
        Value::Timestamp(millis) => moment::timestamp_text(*millis).into(),
        Value::Date(days) => moment::date_text(*days).into(),
        Value::Time(nanos) => moment::time_text(*nanos).into(),
        Value::Uuid(uuid) => uuid.to_string().into(),
        Value::Inet(address) => address.to_string().into(),
        Value::Blob(bytes) => base64(bytes).into(),
        Value::List(elements) | Value::Vector(elements) => elements.iter().map(json).collect(),
        // Null parts at the end and missing parts are the same.
        Value::Tuple(parts) => {
            let mut parts: Vec<Json> = parts.iter().map(json).collect();
            parts.truncate(parts.iter().rposition(|part| !part.is_null()).map_or(0, |last| last + 1));
            parts.into()
        }
        Value::Set(elements) => set(elements),
        Value::Map(pairs) => {
            pairs.iter().filter_map(|(name, element)| Some((text(name)?, json(element)))).collect::<Map<_, _>>().into()
        }
        // A null field, and a field that was added to the type after the cell was written, are the same.
        Value::User(fields) => {
            let fields = fields.iter().map(|(name, field)| (name.to_string(), json(field)));
            fields.filter(|(_, field)| !field.is_null()).collect::<Map<_, _>>().into()
        }
    }
}

/// Sorts the elements, so that the result does not depend on the order in the document or at the server.
fn set(elements: &[Value]) -> Json {
    let mut elements: Vec<Json> = elements.iter().map(json).collect();
    elements.sort_by_cached_key(ToString::to_string);
    elements.dedup();
    elements.into()
}

/// The text of a cell as a part of a key, or as a map's key.
pub fn text(cell: &Value) -> Option<String> {
    Some(match cell {
        Value::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Value::Boolean(truth) => truth.to_string(),
        Value::Varint(number) => whole(number)?.to_string(),
        other => match json(other) {
            Json::String(text) => text,
            Json::Number(number) => number.to_string(),
            _ => return None,
        },
    })
}

/// Reads a whole number; `None` beyond 128 bits, which this sink never writes.
fn whole(number: &Varint) -> Option<i128> {
    let (first, rest) = number.0.split_first()?;
    let fits = rest.len() < 16;
    fits.then(|| rest.iter().fold(i128::from(first.cast_signed()), |whole, byte| whole << 8 | i128::from(*byte)))
}

/// The largest number of decimal places that is written out: more than a 128-bit number can need.
const PLACES_MAX: usize = 400;

fn decimal_text(decimal: &Decimal) -> Option<String> {
    let unscaled = whole(&decimal.unscaled)?;
    let places = match usize::try_from(decimal.scale) {
        Ok(places) if places <= PLACES_MAX => places,
        // Otherwise a number in the cell would decide how long the text becomes.
        _ => return Some(format!("{unscaled}e{}", -i64::from(decimal.scale))),
    };
    if places == 0 {
        return Some(unscaled.to_string());
    }
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    Some(format!("{}{whole}.{fraction}", if unscaled < 0 { "-" } else { "" }))
}

fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let sign = SIGNS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() { sign.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use honeyflow_cassandra::Type;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::encode;

    fn as_stored(value: &Json, kind: &Type) -> Json {
        json_of(&encode::cell(value, kind).unwrap_or_else(|| panic!("{value} as {kind}")))
    }

    fn json_of(cell: &Value) -> Json {
        super::json(cell)
    }

    #[test]
    fn a_document_is_stored_in_its_canonical_form() {
        for (value, kind, expected) in [
            (json!("12.50"), Type::Decimal, json!("12.5")),
            (json!(-0.05), Type::Decimal, json!("-0.05")),
            (json!("2024-02-29 12:30"), Type::Timestamp, json!("2024-02-29T12:30:00.000Z")),
            (json!("12:30"), Type::Time, json!("12:30:00.000000000")),
            (json!(["b", "a", "b"]), Type::Set(Box::new(Type::Text)), json!(["a", "b"])),
            (json!(["b", "a"]), Type::List(Box::new(Type::Text)), json!(["b", "a"])),
            (json!([]), Type::Set(Box::new(Type::Text)), json!(null)),
            (json!({"7": 1.5}), Type::Map(Box::new((Type::Int, Type::Double))), json!({"7": 1.5})),
            (json!("aGk="), Type::Blob, json!("aGk=")),
            (json!(2.0), Type::Double, json!(2)),
        ] {
            assert_eq!(as_stored(&value, &kind), expected);
        }
    }

    /// A cell that was written before its type got another field decodes like one written since.
    #[test]
    fn a_null_field_is_equal_to_a_missing_field() {
        let field = |name: &str| honeyflow_cassandra::wire::Field { name: name.into(), kind: Type::Int };
        let fields = vec![field("a"), field("b")];
        let user_type = honeyflow_cassandra::wire::UserType { keyspace: "k".to_owned(), name: "u".to_owned(), fields };
        let older = Value::User(vec![("a".into(), Value::Int(7))]);
        assert_eq!(as_stored(&json!({"a": 7}), &Type::User(std::sync::Arc::new(user_type))), json_of(&older));
        assert_eq!(json_of(&older), json!({"a": 7}));
    }

    #[test]
    fn null_parts_at_the_end_are_equal_to_missing_parts() {
        let kind = Type::Tuple(vec![Type::Int; 3]);
        let shorter = Value::Tuple(vec![Value::Null, Value::Int(7)]);
        assert_eq!(as_stored(&json!([null, 7, null]), &kind), json_of(&shorter));
        assert_eq!(as_stored(&json!([null, 7]), &kind), json!([null, 7]), "the stored form can be written again");
        assert_eq!(as_stored(&json!([null, null, null]), &kind), json!([]));
        assert_eq!(encode::cell(&json!([1, 2, 3, 4]), &kind), None);
    }

    #[test]
    fn decimals_of_any_scale_have_a_text() {
        let text = |scale| decimal_text(&Decimal { scale, unscaled: encode::varint(-15) }).unwrap();
        assert_eq!((text(1), text(0), text(-2)), ("-1.5".into(), "-15".into(), "-15e2".into()));
        assert_eq!((text(70_000), text(i32::MAX)), ("-15e-70000".into(), format!("-15e-{}", i32::MAX)));
        assert_eq!(text(i32::MIN), "-15e2147483648");
        for text in ["0e2000000000", "0e-2000000000", "1e-2000000000"] {
            let decimal = encode::decimal(text).unwrap();
            assert!(decimal_text(&decimal).is_some_and(|text| text.len() < 20));
        }
        assert!(encode::decimal("1e2000000000").is_none(), "beyond 128 bits");
    }

    proptest! {
        /// Storing the stored form changes nothing: otherwise a comparison would always find a difference.
        #[test]
        fn ob_80_the_stored_form_is_stable(real in any::<f64>(), whole in any::<i64>(), bytes in any::<Vec<u8>>(), text in ".{0,12}") {
            let cells = [
                Value::Double(real), Value::Bigint(whole), Value::Blob(bytes), Value::Text(text),
                Value::Decimal(encode::decimal(&format!("{whole}e-5")).unwrap()), Value::Varint(whole.into()),
            ];
            let kinds = [Type::Double, Type::Bigint, Type::Blob, Type::Text, Type::Decimal, Type::Varint];
            for (cell, kind) in cells.iter().zip(&kinds) {
                let once = json_of(cell);
                if !once.is_null() {
                    prop_assert_eq!(as_stored(&once, kind), once);
                }
            }
        }
    }
}

//! Converts the result of `row_to_json` to the JSON of a document, which is the same on every database.

use honeyflow_event::document::canonical_number;
use serde_json::Value;

use crate::codes;

/// Why a value cannot be JSON: a code and a message.
pub(crate) type ValueError = (&'static str, String);

/// Returns the value as it stands in a document. `kind` is the column's type, as the server names it.
pub(crate) fn to_document_value(value: Value, kind: &str, is_json: bool) -> Result<Value, ValueError> {
    match (value, kind) {
        // JSON cannot represent NaN and infinity, so the server writes them as text.
        (Value::String(text), "double precision" | "real" | "numeric") => {
            Err((codes::NOT_A_NUMBER, format!("{text} has no JSON")))
        }
        (Value::String(text), "bytea") => match text.strip_prefix("\\x").and_then(unhex) {
            Some(bytes) => Ok(Value::String(base64(&bytes))),
            None => Ok(Value::String(text)),
        },
        (Value::String(text), _) if is_json => {
            serde_json::from_str(&text).map_err(|error| (codes::BAD_JSON, format!("no JSON: {error}")))
        }
        (Value::Number(number), _) if number.is_f64() => match number.as_f64().and_then(canonical_number) {
            Some(number) => Ok(Value::Number(number)),
            None => Err((codes::NOT_A_NUMBER, format!("{number} has no JSON"))),
        },
        (value, _) => Ok(value),
    }
}

/// Returns a value of type `numeric` as a JSON number, if the number keeps all of its digits, else as a text.
pub(crate) fn decimal(text: &str) -> Result<Value, ValueError> {
    if let Ok(number) = text.parse::<i64>() {
        return Ok(number.into());
    }
    let Some(number) = text.parse::<f64>().ok().filter(|number| number.is_finite()).and_then(canonical_number) else {
        // NaN and infinity parse as numbers, but are none.
        let is_large = text.bytes().any(|byte| byte.is_ascii_digit());
        return if is_large { Ok(text.into()) } else { Err((codes::NOT_A_NUMBER, format!("{text} has no JSON"))) };
    };
    let digits = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
    let kept = number.as_f64().is_some_and(|number| number.to_string() == digits);
    Ok(if kept { Value::Number(number) } else { text.into() })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    if !odd.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// Encodes with padding, as in RFC 4648.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_usize, |word, byte| word << 8 | usize::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[word >> (18 - 6 * place) & 63];
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_the_same_json_as_on_other_databases() {
        assert_eq!(to_document_value(json!("\\x666f6f"), "bytea", false), Ok(json!("Zm9v")));
        assert_eq!(to_document_value(json!("\\xfffefd66"), "bytea", false), Ok(json!("//79Zg==")));
        assert_eq!(to_document_value(json!(3.0), "double precision", false), Ok(json!(3)));
        assert_eq!(to_document_value(json!("NaN"), "double precision", false).unwrap_err().0, "not-a-number");
        assert_eq!(to_document_value(json!("NaN"), "text", false), Ok(json!("NaN")));
        assert_eq!(to_document_value(json!("[1]"), "text", true), Ok(json!([1])));
        assert_eq!(to_document_value(json!("{"), "text", true).unwrap_err().0, "bad-json");
    }

    #[test]
    fn ob_24_a_decimal_keeps_all_its_digits() {
        for (text, value) in [
            ("19.90", json!(19.9)),
            ("3.00", json!(3)),
            ("-0.5", json!(-0.5)),
            ("9007199254740993", json!(9_007_199_254_740_993_i64)),
            ("0.1234567890123456789", json!("0.1234567890123456789")),
            ("123456789012345678901234567890", json!("123456789012345678901234567890")),
            ("12345678901234567.25", json!("12345678901234567.25")),
            ("0.30000000000000004", json!(0.300_000_000_000_000_04)),
        ] {
            assert_eq!(decimal(text), Ok(value), "{text}");
        }
        for text in ["NaN", "Infinity", "-Infinity"] {
            assert_eq!(decimal(text).unwrap_err().0, "not-a-number");
        }
    }
}

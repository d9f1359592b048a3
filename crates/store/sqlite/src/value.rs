//! Converts SQL values to JSON and to key text, the same on every database: integers exact, reals in one canonical
//! form, blobs in base64. A value that JSON cannot represent is refused for its row alone.

use honeyflow_event::document::canonical_number;
use rusqlite::types::ValueRef;
use serde_json::Value;

use crate::codes;

/// Why a value cannot be JSON: a code and a message.
pub(crate) type ValueError = (&'static str, String);

pub(crate) fn to_json(value: ValueRef<'_>) -> Result<Value, ValueError> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(integer) => integer.into(),
        ValueRef::Real(real) => match canonical_number(real) {
            Some(number) => Value::Number(number),
            None => return Err((codes::NOT_A_NUMBER, format!("{real} has no JSON"))),
        },
        ValueRef::Text(bytes) => Value::String(text(bytes)?.to_owned()),
        ValueRef::Blob(bytes) => Value::String(base64(bytes)),
    })
}

/// Returns the number of bytes of a text or blob; 0 for other values.
pub(crate) fn bytes(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 0,
    }
}

/// Parses the value of a column that holds JSON text.
pub(crate) fn parse_json(value: ValueRef<'_>) -> Result<Value, ValueError> {
    match value {
        ValueRef::Text(bytes) => {
            serde_json::from_str(text(bytes)?).map_err(|error| (codes::BAD_JSON, format!("no JSON: {error}")))
        }
        // A number or null is JSON by itself; SQLite's `json(…)` may also return a blob, which is not text.
        ValueRef::Blob(_) => Err((codes::BAD_JSON, "no JSON: a blob".to_owned())),
        plain => to_json(plain),
    }
}

fn text(bytes: &[u8]) -> Result<&str, ValueError> {
    std::str::from_utf8(bytes).map_err(|error| (codes::INVALID_UTF8, format!("no UTF-8: {error}")))
}

/// Adds the key text of one part; returns false if the value has none (NULL: no row has that key; REAL: the check of
/// the key's type refuses it).
pub(crate) fn push_key_text(key: &mut String, value: ValueRef<'_>) -> bool {
    use std::fmt::Write;
    match value {
        ValueRef::Integer(integer) => write!(key, "{integer}").is_ok(),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => {
                key.push_str(text);
                true
            }
            Err(_) => false,
        },
        ValueRef::Blob(bytes) => {
            push_hex(key, bytes);
            true
        }
        ValueRef::Null | ValueRef::Real(_) => false,
    }
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    if !odd.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// Encodes with padding, as in RFC 4648.
pub(crate) fn base64(bytes: &[u8]) -> String {
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
    use super::*;

    #[test]
    fn blobs_are_base64_as_the_rfc_says() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn a_value_that_json_cannot_represent_is_refused() {
        assert_eq!(to_json(ValueRef::Integer(i64::MIN)).unwrap().to_string(), "-9223372036854775808");
        assert_eq!(to_json(ValueRef::Real(3.0)).unwrap().to_string(), "3");
        assert_eq!(to_json(ValueRef::Real(f64::INFINITY)).unwrap_err().0, "not-a-number");
        assert_eq!(to_json(ValueRef::Text(b"\xff")).unwrap_err().0, "invalid-utf8");
        assert_eq!(parse_json(ValueRef::Text(b"{")).unwrap_err().0, "bad-json");
        assert_eq!(parse_json(ValueRef::Text(b"[1]")).unwrap(), serde_json::json!([1]));
        assert_eq!(parse_json(ValueRef::Null).unwrap(), Value::Null);
    }
}

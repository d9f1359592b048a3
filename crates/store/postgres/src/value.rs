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

/// Returns the key text of one part; none for NULL (no row has that key) and for a value that cannot be a key.
pub(crate) fn key_text(value: &Value, kind: &str) -> Option<String> {
    match value {
        Value::String(text) if kind == "bytea" => text.strip_prefix("\\x").map(str::to_owned),
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    }
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
        assert_eq!(key_text(&json!("\\x0aff"), "bytea").as_deref(), Some("0aff"));
        assert_eq!(key_text(&json!(-5), "bigint").as_deref(), Some("-5"));
        assert_eq!(key_text(&json!(null), "bigint"), None);
    }
}

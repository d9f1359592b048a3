//! Documents: immutable JSON, shared, with a content hash that is the same on every database and sink.

use std::sync::Arc;

use serde_json::Value;
use xxhash_rust::xxh3::Xxh3Default;

/// The JSON that is made of an entity for a sink, or the output of a step. `None` is JSON `null`: the row is gone.
pub type Document = Option<Arc<Value>>;

/// XXH3-64 over the canonical form: object keys sorted by bytes, numbers as [`canonical_number`] gives them.
pub fn hash(value: &Value) -> u64 {
    let mut hasher = Xxh3Default::new();
    feed(value, &mut hasher);
    hasher.digest()
}

/// Returns a REAL as a JSON number: the shortest text that reads back equal; an integral value below 2^53 as an
/// integer, −0 as 0. Infinity and NaN have no JSON number.
pub fn canonical_number(real: f64) -> Option<serde_json::Number> {
    const INTEGRAL_MAX: f64 = 9_007_199_254_740_992.0;
    if real.fract() == 0.0 && real.abs() < INTEGRAL_MAX {
        #[expect(clippy::cast_possible_truncation, reason = "integral and below 2^53")]
        return Some((real as i64).into());
    }
    serde_json::Number::from_f64(real)
}

fn feed(value: &Value, hasher: &mut Xxh3Default) {
    match value {
        Value::Null => hasher.update(b"n"),
        Value::Bool(true) => hasher.update(b"t"),
        Value::Bool(false) => hasher.update(b"f"),
        Value::Number(number) => {
            hasher.update(b"#");
            let canonical = if number.is_f64() { number.as_f64().and_then(canonical_number) } else { None };
            hasher.update(canonical.as_ref().unwrap_or(number).to_string().as_bytes());
            hasher.update(b";");
        }
        Value::String(text) => {
            hasher.update(b"\"");
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        Value::Array(items) => {
            hasher.update(b"[");
            items.iter().for_each(|item| feed(item, hasher));
            hasher.update(b"]");
        }
        Value::Object(fields) => {
            hasher.update(b"{");
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| name.as_bytes());
            for (name, field) in sorted {
                hasher.update(&(name.len() as u64).to_le_bytes());
                hasher.update(name.as_bytes());
                feed(field, hasher);
            }
            hasher.update(b"}");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ob_80_equal_content_has_equal_hash() {
        assert_eq!(hash(&json!({"a": 1, "b": [1.0, -0.0]})), hash(&json!({"b": [1, 0], "a": 1.0})));
        assert_ne!(hash(&json!(["a", "b"])), hash(&json!(["ab"])));
        assert_ne!(hash(&json!("1")), hash(&json!(1)));
        assert_ne!(hash(&json!({"a": null})), hash(&json!({})));
    }

    #[test]
    fn reals_have_one_text() {
        assert_eq!(canonical_number(3.0).unwrap().to_string(), "3");
        assert_eq!(canonical_number(-0.0).unwrap().to_string(), "0");
        assert_eq!(canonical_number(0.1).unwrap().to_string(), "0.1");
        assert!(canonical_number(f64::NAN).is_none());
        assert!(canonical_number(f64::INFINITY).is_none());
    }
}

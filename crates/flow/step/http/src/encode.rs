//! Encodes event data for a URL, so that any value stays one path segment or one query value.

use std::fmt::Write;

use honeyflow_runtime::Failure;
use serde_json::Value;

use crate::codes;

/// Appends a path segment. It must not be empty: `/book/` is often another resource than `/book/7`, sometimes all
/// books.
pub fn segment(value: &Value, into: &mut String) -> Result<(), Failure> {
    let refuse = |what: &str| {
        Err(Failure::reject(
            codes::BAD_URL_VALUE,
            format!("a placeholder in the path gave {what}, which is no path segment"),
        ))
    };
    match value {
        Value::String(text) if text.is_empty() => refuse("an empty string"),
        Value::String(text) => {
            percent(text, into);
            Ok(())
        }
        Value::Number(number) => {
            percent(&number.to_string(), into);
            Ok(())
        }
        Value::Bool(truth) => {
            into.push_str(if *truth { "true" } else { "false" });
            Ok(())
        }
        Value::Null => refuse("null"),
        Value::Array(_) => refuse("an array"),
        Value::Object(_) => refuse("an object"),
    }
}

/// Appends a query value. Null is the empty value; arrays and objects are their JSON text.
pub fn query_value(value: &Value, into: &mut String) {
    match value {
        Value::Null => {}
        Value::String(text) => percent(text, into),
        other => percent(&other.to_string(), into),
    }
}

/// Percent-encodes all bytes except the unreserved characters of RFC 3986.
fn percent(text: &str, into: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            into.push(char::from(byte));
        } else {
            // writing to a string cannot fail
            let _ = write!(into, "%{byte:02X}");
        }
    }
}

/// Whether a segment of a URL is `.` or `..`, in any spelling that parsers accept.
pub fn is_dots(segment: &str) -> bool {
    let mut rest = segment;
    let mut dots = 0;
    while !rest.is_empty() {
        let escaped = rest.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("%2e"));
        rest = match rest.strip_prefix('.') {
            Some(after) => after,
            None if escaped => &rest[3..],
            None => return false,
        };
        dots += 1;
    }
    matches!(dots, 1 | 2)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn encoded(value: &Value) -> String {
        let mut text = String::new();
        segment(value, &mut text).unwrap();
        text
    }

    #[test]
    fn se_22_data_stays_one_segment() {
        assert_eq!(encoded(&json!("a/b?c=d#e&f")), "a%2Fb%3Fc%3Dd%23e%26f");
        assert_eq!(encoded(&json!("x\r\nHost: evil\0")), "x%0D%0AHost%3A%20evil%00");
        assert_eq!(encoded(&json!("\\@%2e+ü")), "%5C%40%252e%2B%C3%BC");
        assert_eq!(encoded(&json!(-1.5e300)), "-1.5e%2B300");
        for nothing in [json!(null), json!(""), json!([]), json!({})] {
            assert_eq!(segment(&nothing, &mut String::new()).unwrap_err().code, "bad-url-value");
        }
    }

    #[test]
    fn se_22_dots_are_found_in_every_spelling() {
        for dots in [".", "..", "%2e", "%2E%2e", ".%2e", "%2E."] {
            assert!(is_dots(dots), "{dots}");
        }
        for other in ["", "...", ".a", "%2", "%2f", "%é", "a.."] {
            assert!(!is_dots(other), "{other}");
        }
    }
}

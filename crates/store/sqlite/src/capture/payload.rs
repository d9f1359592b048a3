//! Payload format 2: `old|new.<column>:<typeof>:<hex>` joined by `;`. Triggers write it with only `typeof` and `hex`,
//! which every SQLite has; this file converts it to the JSON that the rest of Honeyflow reads.
//!
//! `{"old": {"book_id": 5}, "new": {"book_id": 7}}`; a side that the change does not have is left out. A BLOB is
//! `{"blob": "<lower-case hex>"}`, so that it is never confused with a text.

use std::borrow::Cow;

use honeyflow_event::document;
use honeyflow_runtime::Failure;
use serde_json::{Map, Value};

use crate::codes;

/// The format that triggers write.
pub const FORMAT: u16 = 2;

/// Returns the JSON text of a payload of format 2.
pub fn decode(text: &str) -> Result<String, Failure> {
    let mut old = Map::new();
    let mut new = Map::new();
    for item in text.split(';') {
        let (side, rest) = item.split_once('.').ok_or_else(|| unreadable(item, "no side"))?;
        let mut fields = rest.split(':');
        let (Some(column), Some(kind), Some(hex), None) = (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(unreadable(item, "not three fields"));
        };
        let side = match side {
            "old" => &mut old,
            "new" => &mut new,
            _ => return Err(unreadable(item, "neither old nor new")),
        };
        side.insert(unescape(column).ok_or_else(|| unreadable(item, "a bad escape"))?, value(kind, hex, item)?);
    }
    let mut payload = Map::new();
    for (name, side) in [("old", old), ("new", new)] {
        if !side.is_empty() {
            payload.insert(name.to_owned(), Value::Object(side));
        }
    }
    Ok(Value::Object(payload).to_string())
}

/// Returns a column's name as written in a payload: the separators `;` and `:`, and `%`, become `%` and two hex digits.
pub(super) fn escape(column: &str) -> Cow<'_, str> {
    if !column.contains([';', ':', '%']) {
        return Cow::Borrowed(column);
    }
    Cow::Owned(column.replace('%', "%25").replace(':', "%3A").replace(';', "%3B"))
}

fn unescape(column: &str) -> Option<String> {
    let mut parts = column.split('%');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let (character, rest) = match part.get(..2)? {
            "25" => ('%', &part[2..]),
            "3A" => (':', &part[2..]),
            "3B" => (';', &part[2..]),
            _ => return None,
        };
        name.push(character);
        name.push_str(rest);
    }
    Some(name)
}

fn value(kind: &str, hex: &str, item: &str) -> Result<Value, Failure> {
    let bytes = unhex(hex).ok_or_else(|| unreadable(item, "no hex"))?;
    if kind == "blob" {
        return Ok(serde_json::json!({ "blob": hex.to_ascii_lowercase() }));
    }
    let text = String::from_utf8(bytes).map_err(|_| unreadable(item, "no UTF-8"))?;
    match kind {
        "null" if text.is_empty() => Ok(Value::Null),
        "integer" => text.parse::<i64>().map(Value::from).map_err(|_| unreadable(item, "no integer")),
        "real" => {
            let number = text.parse().ok().and_then(document::canonical_number);
            number.map(Value::Number).ok_or_else(|| unreadable(item, "no number"))
        }
        "text" => Ok(Value::String(text)),
        _ => Err(unreadable(item, "an unknown type")),
    }
}

fn unhex(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| if let [high, low] = *pair { Some(digit(high)? << 4 | digit(low)?) } else { None }).collect()
}

fn unreadable(item: &str, why: &str) -> Failure {
    let head: String = item.chars().take(80).collect();
    Failure::reject(codes::UNREADABLE_PAYLOAD, format!("payload item `{head}` cannot be read: {why}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ob_8_every_type_is_decoded() {
        let text = "old.a:integer:39323233333732303336383534373735383037;old.b:text:C3A97C;new.a:null:;new.b:blob:00FF;\
                    new.c:real:312E35";
        assert_eq!(
            decode(text).unwrap(),
            r#"{"new":{"a":null,"b":{"blob":"00ff"},"c":1.5},"old":{"a":9223372036854775807,"b":"é|"}}"#
        );
    }

    #[test]
    fn ob_8_a_side_that_is_not_there_is_left_out() {
        assert_eq!(decode("new.id:integer:35").unwrap(), r#"{"new":{"id":5}}"#);
    }

    #[test]
    fn ob_23_an_invalid_payload_is_refused_and_never_panics() {
        for text in
            ["", ";", "old", "old.a", "old.a:text", "old.a:text:4", "old.a:text:ZZ", "mid.a:text:41", "old.a:text:FF"]
        {
            assert_eq!(decode(text).unwrap_err().code, "unreadable-payload", "{text}");
        }
        for text in ["old.a:integer:41", "old.a:thing:41", "old.a:text:41:", "old.a%:text:41", "old.%é:text:41"] {
            assert_eq!(decode(text).unwrap_err().code, "unreadable-payload", "{text}");
        }
    }

    proptest! {
        #[test]
        fn ob_8_names_survive(name in ".{1,12}") {
            prop_assert_eq!(unescape(&escape(&name)), Some(name));
        }

        #[test]
        fn ob_23_no_text_panics(text in "[a-z0-9.:;%é]{0,40}") {
            let _ = decode(&text);
        }
    }
}

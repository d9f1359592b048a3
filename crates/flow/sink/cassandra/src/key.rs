//! Converts the text of a key, part by part, to the cells of the primary key and back.

use honeyflow_cassandra::{Type, Value};
use honeyflow_event::key::{KEY_BYTES_MAX, join, split};
use honeyflow_runtime::Failure;

use crate::{codes, config::KeyKind, decode, encode};

/// Returns the cells in the order of the key's parts. A wrong key rejects that key's write alone.
pub fn cells(key: &str, kinds: &[Type]) -> Result<Vec<Value>, Failure> {
    if key.len() > KEY_BYTES_MAX {
        return Err(bad(format!("the key has {} bytes, {KEY_BYTES_MAX} is the most", key.len())));
    }
    let parts = split(key, kinds.len())
        .ok_or_else(|| bad(format!("the key `{key}` does not have the {} parts of the primary key", kinds.len())))?;
    let cell = |(part, kind): (&String, &Type)| {
        let cell = encode::cell_from_text(part, kind)
            .ok_or_else(|| bad(format!("`{part}` of the key `{key}` does not fit {kind}")))?;
        // Two different texts must not name the same row.
        match decode::text(&cell) {
            Some(text) if text == *part => Ok(cell),
            Some(text) => Err(bad(format!(
                "`{part}` of the key `{key}` would name the same row as `{text}`, since its column is {kind}"
            ))),
            None => Err(bad(format!("`{part}` of the key `{key}` cannot be a key, since its column is {kind}"))),
        }
    };
    parts.iter().zip(kinds).map(cell).collect()
}

/// Returns the text of a row's key; `None` = this sink cannot have written the row.
pub fn text(cells: &[Value]) -> Option<String> {
    let parts: Vec<String> = cells.iter().map(decode::text).collect::<Option<_>>()?;
    Some(join(&parts))
}

/// Whether a key part of this kind fits a column of this type.
pub fn fits(part: KeyKind, kind: &Type) -> bool {
    match part {
        KeyKind::Integer => {
            matches!(kind, Type::Tinyint | Type::Smallint | Type::Int | Type::Bigint | Type::Varint)
        }
        KeyKind::Text => matches!(kind, Type::Text | Type::Ascii | Type::Uuid | Type::Timeuuid),
        KeyKind::Blob => matches!(kind, Type::Blob),
    }
}

fn bad(message: String) -> Failure {
    Failure::reject(codes::BAD_KEY, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_3_a_key_survives_the_conversion_to_cells_and_back() {
        let kinds = [Type::Int, Type::Text, Type::Blob];
        let row = cells(r"7|a\|b|00ff", &kinds).unwrap();
        assert_eq!(row, [Value::Int(7), Value::Text("a|b".into()), Value::Blob(vec![0, 255])]);
        assert_eq!(text(&row).unwrap(), r"7|a\|b|00ff");
        for wrong in ["7|a", "x|a|00", "7|a|0", "7|a|00|1", "07|a|00", "7|a|FF"] {
            assert_eq!(cells(wrong, &kinds).unwrap_err().code, "bad-key", "{wrong}");
        }
        let moment = [Type::Timestamp];
        assert!(cells("2024-01-01T00:00:00.000Z", &moment).is_ok());
        assert!(cells("2024-01-01", &moment).unwrap_err().message.contains("2024-01-01T00:00:00.000Z"));
    }
}

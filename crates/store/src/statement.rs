//! The SQL statements of the configuration. `$keys` stands for the row set of the batch's keys: one column per key
//! part, named like the key's columns. Each adapter rewrites it for its database.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Document, Key, key};
use honeyflow_runtime::Failure;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// The statement's path in the configuration, for messages: `entity.book.document`.
    pub place: String,
    /// The text as written, with `$keys`.
    pub text: String,
    /// The columns of `$keys`: names and types of the key columns that the statement reads.
    pub key: Vec<KeyColumn>,
    /// Document statements: the result columns that form the key (they are fields too). Edge statements: empty, because
    /// every result column is a part of the container's key, in order.
    pub result_key: Vec<KeyColumn>,
    /// Result columns that hold JSON text.
    pub json: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeyColumn {
    pub name: String,
    pub kind: KeyType,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyType {
    Integer,
    Text,
    /// Bytes; the key text contains them as lower-case hex.
    Blob,
    Uuid,
    /// A type of the database, by its name there: the database reads and writes the key text.
    Named(&'static str),
}

impl KeyType {
    /// Whether a row can have this text as the part of its key.
    pub fn can_be(self, text: &str) -> bool {
        match self {
            KeyType::Integer => text.parse::<i64>().is_ok_and(|number| number.to_string() == text),
            KeyType::Text | KeyType::Named(_) => true,
            KeyType::Uuid => is_uuid(text),
            KeyType::Blob => {
                text.len().is_multiple_of(2) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            }
        }
    }
}

/// Returns why no row can have this key; none if one can.
pub fn impossible_key(parts: &[KeyType], key: &str) -> Option<String> {
    let Some(texts) = key::split(key, parts.len()) else {
        return Some(format!("its key has {} parts, joined by `|`", parts.len()));
    };
    let (text, part) = texts.iter().zip(parts).find(|(text, part)| !part.can_be(text))?;
    let wanted = match part {
        KeyType::Blob => "lower-case hex",
        KeyType::Uuid => "UUID in lower case",
        _ => "integer as the database writes it",
    };
    Some(format!("`{text}` is no {wanted}"))
}

/// Whether the text is a UUID as databases write it: in lower case, with four hyphens.
fn is_uuid(text: &str) -> bool {
    let fits = |(place, byte): (usize, u8)| match place {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    text.len() == 36 && text.bytes().enumerate().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_3_a_key_that_no_row_can_have_is_told_from_others() {
        use KeyType::{Blob, Integer, Text, Uuid};
        for (parts, key) in [
            (&[Integer][..], "-7"),
            (&[Text], "a|b"),
            (&[Blob], "00ff"),
            (&[Integer, Text], r"1|a\|b"),
            (&[Text], ""),
            (&[Uuid], "6f1c2a00-0000-4000-8000-00000000000a"),
        ] {
            assert_eq!(impossible_key(parts, key), None, "{parts:?} {key}");
        }
        for (parts, key) in [
            (&[Integer][..], "1|2"),
            (&[Integer], "042"),
            (&[Integer], "9223372036854775808"),
            (&[Blob], "0F"),
            (&[Uuid], "6F1C2A00-0000-4000-8000-00000000000A"),
            (&[Uuid], "6f1c2a000000400080000000000000000a00"),
            (&[Blob], "0"),
            (&[Integer, Integer], "1"),
            (&[Integer, Integer], "1|2|3"),
            (&[Integer, Integer], "1|x"),
        ] {
            assert!(impossible_key(parts, key).is_some(), "{parts:?} {key}");
        }
    }
}

#[derive(Clone, Debug)]
pub struct Load {
    pub statement: Arc<Statement>,
    pub keys: Vec<Key>,
    /// Edge statements only: reply `Reply::Keys` with at most `limit` distinct keys above `after`, sorted by the bytes
    /// of the key text.
    pub expand: Option<Expand>,
    pub timeout: Duration,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expand {
    pub after: Option<Key>,
    pub limit: u32,
}

/// The result of a document statement for one key, in the order of `Load::keys`.
#[derive(Clone, PartialEq, Debug)]
pub enum LoadResult {
    /// None: there is no such row, or the statement's condition excludes it.
    Document(Document),
    /// Only this key failed: two rows, invalid UTF-8, or a value that JSON cannot represent.
    Rejected(Failure),
}

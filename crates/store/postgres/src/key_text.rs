//! The text of a key part. It is the same whatever the session's settings are, so that a key written by a trigger equals
//! the key of the same row when it is loaded.

use honeyflow_store::KeyType;

/// Returns the expression for the key text of a value of this type, as `pg_typeof` names it.
pub(crate) fn of_type(value: &str, kind: &str) -> String {
    match kind {
        "bytea" => format!("encode({value}, 'hex')"),
        // ISO, whatever DateStyle is.
        "date" | "timestamp without time zone" => format!("(to_json({value}) #>> '{{}}')"),
        "timestamp with time zone" => format!("(to_json({value} at time zone 'UTC') #>> '{{}}')"),
        "numeric" => format!("trim_scale({value})::text"),
        "citext" => format!("lower({value}::text)"),
        _ => format!("{value}::text"),
    }
}

/// Returns the expression for the key text of a column of this type.
pub(crate) fn of_column(value: &str, kind: KeyType) -> String {
    match kind {
        KeyType::Blob => of_type(value, "bytea"),
        KeyType::Named("timestamp") => of_type(value, "timestamp without time zone"),
        KeyType::Named("timestamptz") => of_type(value, "timestamp with time zone"),
        KeyType::Named(name) => of_type(value, name),
        KeyType::Integer | KeyType::Text | KeyType::Uuid => format!("{value}::text"),
    }
}

/// Returns the expression that reads a key text as a value of this type.
pub(crate) fn value(text: &str, kind: KeyType) -> String {
    match kind {
        KeyType::Integer => format!("{text}::bigint"),
        KeyType::Text => text.to_owned(),
        KeyType::Blob => format!("decode({text}, 'hex')"),
        KeyType::Uuid => format!("{text}::uuid"),
        KeyType::Named(name) => format!("{text}::{name}"),
    }
}

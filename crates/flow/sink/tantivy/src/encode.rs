//! Prepares a write for the index: checks the values of the configured fields and takes them out of the document, which
//! is itself stored whole in `_source`. A value that does not fit its field rejects that document alone; if the fields
//! are outdated, the value is only left out of the field.

use std::sync::Arc;

use honeyflow_event::{Key, Stamp, document, key::KEY_BYTES_MAX};
use honeyflow_runtime::Failure;
use honeyflow_sink::Write;
use serde_json::Value;
use tantivy::{
    DateTime, TantivyDocument,
    schema::Field as Column,
    time::{OffsetDateTime, format_description::well_known::Rfc3339},
};

use crate::{
    codes,
    config::{Field, FieldKind},
    schema::Layout,
};

/// A term of Tantivy has less than 64 KiB; half of that is enough for a keyword.
pub(crate) const KEYWORD_BYTES_MAX: usize = 32 * 1024;
/// serde_json reads `_source` and refuses more than 128 levels.
const DEPTH_MAX: u32 = 120;

pub(crate) struct PreparedWrite {
    pub key: Key,
    pub stamp: Stamp,
    pub change: Change,
}

pub(crate) enum Change {
    Put { document: TantivyDocument, hash: u64 },
    Delete,
    Rejected(Failure),
}

impl Change {
    /// The hash of the document; `None` = delete.
    pub fn hash(&self) -> Option<u64> {
        match self {
            Change::Put { hash, .. } => Some(*hash),
            Change::Delete | Change::Rejected(_) => None,
        }
    }
}

pub(crate) fn prepare(layout: &Layout, write: Write) -> PreparedWrite {
    let change = change_of(layout, &write).unwrap_or_else(Change::Rejected);
    PreparedWrite { key: write.key, stamp: write.stamp, change }
}

/// Fails if the index cannot hold the document.
pub(crate) fn check(layout: &Layout, document: &Arc<Value>) -> Result<(), Failure> {
    let write = Write { key: "".into(), stamp: Stamp::default(), document: Some(document.clone()) };
    change_of(layout, &write).map(drop)
}

fn change_of(layout: &Layout, write: &Write) -> Result<Change, Failure> {
    if write.key.len() > KEY_BYTES_MAX {
        let bytes = write.key.len();
        return Err(Failure::reject(codes::BAD_KEY, format!("the key has {bytes} bytes, {KEY_BYTES_MAX} is the most")));
    }
    let Some(value) = write.document.as_deref() else { return Ok(Change::Delete) };
    if !within_depth(value, DEPTH_MAX) {
        return Err(Failure::reject(
            codes::BAD_DOCUMENT,
            format!("the document is nested deeper than {DEPTH_MAX} levels"),
        ));
    }
    let hash = document::hash(value);
    let source = serde_json::to_string(value)
        .map_err(|error| Failure::reject(codes::BAD_DOCUMENT, format!("no JSON: {error}")))?;
    let mut document = TantivyDocument::default();
    document.add_text(layout.key, &write.key);
    document.add_u64(layout.version, write.stamp.0);
    document.add_u64(layout.hash, hash);
    document.add_text(layout.source, source);
    for (field, column) in &layout.fields {
        if let Some(value) = value.get(&field.name) {
            let added = add(&mut document, field, *column, value);
            if !layout.outdated {
                added?;
            }
        }
    }
    Ok(Change::Put { document, hash })
}

fn within_depth(value: &Value, left: u32) -> bool {
    match value {
        Value::Array(items) => left > 0 && items.iter().all(|item| within_depth(item, left - 1)),
        Value::Object(fields) => left > 0 && fields.values().all(|field| within_depth(field, left - 1)),
        _ => true,
    }
}

/// Adds the value to the field: nothing for null, and each item of an array.
fn add(document: &mut TantivyDocument, field: &Field, column: Column, value: &Value) -> Result<(), Failure> {
    match value {
        Value::Null => return Ok(()),
        Value::Array(items) => return items.iter().try_for_each(|item| add(document, field, column, item)),
        _ => {}
    }
    let misfit = || misfit(field, value);
    match &field.kind {
        FieldKind::Text { .. } => {
            let mut text = String::new();
            join(value, &mut text);
            document.add_text(column, text);
        }
        FieldKind::Keyword => match scalar(value) {
            Some(text) => document.add_text(column, cut(&text, KEYWORD_BYTES_MAX)),
            None => return Err(misfit()),
        },
        FieldKind::Decimal => document.add_f64(column, decimal(value).ok_or_else(misfit)?),
        FieldKind::Integer => document.add_i64(column, integer(value).ok_or_else(misfit)?),
        FieldKind::Boolean => document.add_bool(column, boolean(value).ok_or_else(misfit)?),
        FieldKind::Date => document.add_date(column, date(value).ok_or_else(misfit)?),
    }
    Ok(())
}

fn misfit(field: &Field, value: &Value) -> Failure {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    let (name, kind) = (&field.name, field.kind.name());
    Failure::reject(codes::BAD_FIELD, format!("field `{name}` is {kind}, the document has {found} that does not fit"))
}

/// Appends all scalars inside the value, separated by spaces.
fn join(value: &Value, text: &mut String) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| join(item, text)),
        Value::Object(fields) => fields.values().for_each(|field| join(field, text)),
        _ => {
            if let Some(word) = scalar(value) {
                if !text.is_empty() {
                    text.push(' ');
                }
                text.push_str(&word);
            }
        }
    }
}

fn scalar(value: &Value) -> Option<std::borrow::Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.as_str().into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Bool(truth) => Some(if *truth { "true" } else { "false" }.into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Reads a decimal. Databases give exact decimals as text, so text that is a number fits too.
fn decimal(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) if text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) => {
            text.parse().ok()
        }
        _ => None,
    }
    .filter(|real: &f64| real.is_finite())
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) if number.is_f64() => document::canonical_number(number.as_f64()?)?.as_i64(),
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// Reads a boolean. SQLite and MySQL have no boolean type and use 0 and 1.
fn boolean(value: &Value) -> Option<bool> {
    match (value, integer(value)) {
        (Value::Bool(truth), _) => Some(*truth),
        (Value::Number(_), Some(0)) => Some(false),
        (Value::Number(_), Some(1)) => Some(true),
        _ => None,
    }
}

fn date(value: &Value) -> Option<DateTime> {
    let text = value.as_str()?.trim();
    let (day, time) = match text.split_at_checked(10)? {
        (day, "") => (day, "00:00:00"),
        (day, rest) => (day, rest.strip_prefix(['T', 't', ' '])?),
    };
    let seconds = if time.len() == 5 { ":00" } else { "" };
    let has_offset = time.ends_with(['Z', 'z']) || time.contains(['+', '-']);
    let zone = if has_offset { "" } else { "Z" };
    let full = format!("{day}T{time}{seconds}{zone}");
    OffsetDateTime::parse(&full, &Rfc3339).ok().map(DateTime::from_utc)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn layout() -> Layout {
        Layout::new(&[
            Field::new("text", FieldKind::Text { language: None }),
            Field::new("keyword", FieldKind::Keyword),
            Field::new("decimal", FieldKind::Decimal),
            Field::new("integer", FieldKind::Integer),
            Field::new("boolean", FieldKind::Boolean),
            Field::new("date", FieldKind::Date),
        ])
    }

    fn write(document: Value) -> PreparedWrite {
        prepare(&layout(), Write { key: "k".into(), stamp: Stamp(1), document: Some(Arc::new(document)) })
    }

    fn rejected(document: Value) -> Option<Failure> {
        match write(document).change {
            Change::Rejected(failure) => Some(failure),
            _ => None,
        }
    }

    #[test]
    fn values_that_fit_are_taken() {
        for document in [
            json!({"text": ["a", {"b": ["c", 1]}], "keyword": [1, true, "x"], "decimal": "12.50"}),
            json!({"integer": 3.0, "boolean": 1, "date": "2024-02-29 12:30:00"}),
            json!({"integer": i64::MIN, "boolean": false, "date": "9999-12-31"}),
            json!({"date": ["2024-02-29T12:30:00.5+02:00", "2024-02-29 12:30"], "decimal": [1, 2.5, null]}),
            json!({"integer": null, "other": {"any": "thing"}}),
            json!([1, 2]),
            json!("a document need not be an object"),
        ] {
            assert_eq!(rejected(document.clone()), None, "{document}");
        }
    }

    #[test]
    fn rl_15_a_value_that_does_not_fit_names_field_and_kind() {
        for (document, words) in [
            (json!({"decimal": "cheap"}), ["`decimal`", "text"]),
            (json!({"decimal": "inf"}), ["`decimal`", "text"]),
            (json!({"decimal": [1, {}]}), ["`decimal`", "an object"]),
            (json!({"integer": 1.5}), ["`integer`", "a number"]),
            (json!({"integer": u64::MAX}), ["`integer`", "a number"]),
            (json!({"boolean": 2}), ["`boolean`", "a number"]),
            (json!({"date": 17}), ["`date`", "a number"]),
            (json!({"date": "2024-13-01"}), ["`date`", "text"]),
            (json!({"date": "äöüäöüäöü"}), ["`date`", "text"]),
            (json!({"keyword": {"a": 1}}), ["`keyword`", "an object"]),
        ] {
            let failure = rejected(document.clone()).unwrap_or_else(|| panic!("{document} was taken"));
            assert_eq!(failure.code, "bad-field");
            assert!(words.iter().all(|word| failure.message.contains(word)), "{}", failure.message);
        }
    }

    #[test]
    fn a_document_too_deep_to_read_back_is_rejected() {
        let deep = (0..130).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(rejected(json!({"x": deep})).unwrap().code, "bad-document");
    }

    #[test]
    fn a_long_keyword_is_cut_between_characters() {
        let long = "ä".repeat(KEYWORD_BYTES_MAX);
        assert_eq!(cut(&long, KEYWORD_BYTES_MAX - 1).len(), KEYWORD_BYTES_MAX - 2);
        assert_eq!(rejected(json!({"keyword": long})), None);
    }

    proptest! {
        /// `_source` is the document: reading it back gives the stored hash.
        #[test]
        fn ob_80_source_reads_back_with_the_same_hash(real in any::<f64>(), integer in any::<i64>(), text in ".{0,20}") {
            let value = json!({"r": real, "i": integer, "t": text, "a": [real / 3.0, integer as f64 * 1e-7]});
            let again: Value = serde_json::from_str(&serde_json::to_string(&value).unwrap()).unwrap();
            prop_assert_eq!(document::hash(&again), document::hash(&value));
        }

        #[test]
        fn no_date_text_panics(text in "\\PC{0,24}") {
            let _ = date(&Value::String(text));
        }
    }
}

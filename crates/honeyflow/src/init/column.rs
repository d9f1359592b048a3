//! Determines the class of a column from its declared type, its name and, because SQLite does not enforce types, its
//! rows.

use honeyflow_store::catalogue::{Column, Table};

use super::{RowInspector, names};
use crate::config::FieldType;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Field(FieldType),
    /// A text that contains JSON.
    Json,
    Blob,
}

pub fn class(table: &Table, column: &Column, rows: &dyn RowInspector) -> Class {
    let declared = declared(column);
    match declared {
        // Every value fits these classes.
        Class::Blob | Class::Field(FieldType::Text | FieldType::Keyword) => declared,
        _ if rows.fits(table, &column.name, declared) => declared,
        Class::Json => Class::Field(FieldType::Text),
        Class::Field(_) => Class::Field(FieldType::Keyword),
    }
}

pub fn is_text(column: &Column) -> bool {
    matches!(declared(column), Class::Field(FieldType::Text | FieldType::Keyword)) && !column.declared_type.is_empty()
}

fn declared(column: &Column) -> Class {
    let declared = column.declared_type.to_ascii_uppercase();
    let has = |words: &[&str]| words.iter().any(|word| declared.contains(word));
    if has(&["JSON"]) {
        Class::Json
    } else if has(&["BLOB", "BINARY", "BYTEA", "IMAGE"]) {
        Class::Blob
    } else if has(&["BOOL"]) {
        Class::Field(FieldType::Boolean)
    } else if has(&["POINT", "INTERVAL", "UUID", "GUID", "ENUM"]) {
        Class::Field(FieldType::Keyword)
    } else if has(&["DATE", "TIME"]) {
        Class::Field(FieldType::Date)
    } else if has(&["INT", "SERIAL"]) {
        Class::Field(FieldType::Integer)
    } else if has(&["CHAR", "CLOB", "TEXT", "STRING"]) {
        let whole = column.key_position.is_some() || names::is_code(&column.name);
        Class::Field(if whole { FieldType::Keyword } else { FieldType::Text })
    } else if has(&["REAL", "FLOA", "DOUB", "DEC", "NUM", "MONEY"]) {
        Class::Field(FieldType::Decimal)
    } else {
        Class::Field(FieldType::Keyword)
    }
}

//! Expressions that stand in triggers. They run inside the *application's* SQLite: only syntax and functions of a
//! default 3.35 build.

use honeyflow_store::{
    CaptureTable, Columns, KeyColumn, KeyType,
    catalogue::{Column, Table},
};

use super::{
    payload,
    quote::{identifier, literal},
};

/// A chain of OR nests as deep as it is long, and SQLite allows 1,000 levels.
const TERMS_MAX: usize = 64;

/// The name under which the rowid can be had, if a column does not hide it.
pub fn rowid_name(table: &Table) -> Option<&'static str> {
    if !table.rowid || table.view {
        return None;
    }
    ["rowid", "_rowid_", "oid"].into_iter().find(|name| table.column(name).is_none())
}

/// The column that *is* the rowid: the only one of the primary key, declared as exactly INTEGER.
pub fn rowid_alias(table: &Table) -> Option<&Column> {
    match table.primary_key()[..] {
        // A key declared INTEGER … DESC is not the rowid; then it has an index of its own.
        [only] if table.rowid && only.declared_type.eq_ignore_ascii_case("integer") => {
            (!table.unique.iter().any(|unique| unique.primary)).then_some(only)
        }
        _ => None,
    }
}

/// The key text of the row called `row` (`NEW`, `OLD` or an alias).
pub fn key_text(row: &str, key: &[KeyColumn], rowid: &str) -> String {
    match key {
        [] => format!("CAST({row}.{rowid} AS TEXT)"),
        [only] => part_text(row, only),
        parts => {
            let parts: Vec<_> = parts
                .iter()
                .map(|part| match part.kind {
                    // Digits and hex have nothing to escape.
                    KeyType::Integer | KeyType::Blob => part_text(row, part),
                    KeyType::Text => format!(r"replace(replace({}, '\', '\\'), '|', '\|')", part_text(row, part)),
                })
                .collect();
            parts.join(" || '|' || ")
        }
    }
}

fn part_text(row: &str, part: &KeyColumn) -> String {
    let column = identifier(&part.name);
    match part.kind {
        KeyType::Integer | KeyType::Text => format!("CAST({row}.{column} AS TEXT)"),
        KeyType::Blob => format!("lower(hex({row}.{column}))"),
    }
}

/// Conditions under which the row's key is whole; none where it always is.
pub fn key_present(row: &str, key: &[KeyColumn], table: &Table) -> Vec<String> {
    let alias = rowid_alias(table).map(|column| column.name.as_str());
    key.iter()
        .filter(|part| {
            table.column(&part.name).is_none_or(|column| {
                let never_null = column.not_null
                    || alias == Some(column.name.as_str())
                    || (!table.rowid && column.key_position.is_some());
                !never_null
            })
        })
        .map(|part| format!("{row}.{} IS NOT NULL", identifier(&part.name)))
        .collect()
}

/// OLD and NEW differ in the column, byte by byte: a NOCASE column must not hide `'Foo'` → `'foo'`.
pub fn changed(column: &str, table: &Table) -> String {
    let name = identifier(column);
    let bytes = format!("OLD.{name} COLLATE BINARY IS NOT NEW.{name}");
    let untyped = table.column(column).is_some_and(|column| holds_any_type(column, table));
    // Where 1 and 1.0 may both stand, they are equal and yet read differently.
    if untyped { format!("{bytes} OR typeof(OLD.{name}) IS NOT typeof(NEW.{name})") } else { bytes }
}

fn holds_any_type(column: &Column, table: &Table) -> bool {
    let declared = column.declared_type.to_ascii_uppercase();
    let kept = declared.is_empty() || declared.contains("BLOB") || (table.strict && declared == "ANY");
    let strict_blob = table.strict && declared == "BLOB";
    // Rules of affinity: INT, CHAR, CLOB and TEXT come before BLOB.
    kept && !strict_blob && !["INT", "CHAR", "CLOB", "TEXT"].iter().any(|word| declared.contains(word))
}

/// Terms for every column whose change makes an event.
pub fn changed_terms(capture: &CaptureTable, table: &Table) -> Vec<String> {
    let mut columns: Vec<&str> = capture.key.iter().map(|part| part.name.as_str()).collect();
    columns.extend(capture.carried.iter().map(String::as_str));
    match &capture.watched {
        // A generated column changes only with those it is made of.
        Columns::All => columns.extend(table.columns.iter().filter(|c| !c.generated).map(|c| c.name.as_str())),
        Columns::Some(names) => columns.extend(names.iter().map(String::as_str)),
    }
    let mut seen: Vec<&str> = Vec::with_capacity(columns.len());
    for column in columns {
        if !seen.iter().any(|earlier| earlier.eq_ignore_ascii_case(column)) {
            seen.push(column);
        }
    }
    seen.into_iter().map(|column| changed(column, table)).collect()
}

/// `a OR b OR …`, in groups.
pub fn any_of(terms: &[String]) -> String {
    if terms.len() <= TERMS_MAX {
        return terms.join("\n  OR ");
    }
    let groups: Vec<_> = terms.chunks(TERMS_MAX).map(|group| format!("({})", group.join("\n  OR "))).collect();
    any_of(&groups)
}

/// The payload's items for the carried columns of `row`, as `side`; none where nothing is carried.
pub fn payload_items(side: &str, row: &str, carried: &[String]) -> Vec<String> {
    let items = carried.iter().map(|column| {
        let head = literal(&format!("{side}.{}:", payload::escape(column)));
        let name = identifier(column);
        format!("{head} || typeof({row}.{name}) || ':' || hex({row}.{name})")
    });
    items.collect()
}

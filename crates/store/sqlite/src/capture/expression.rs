//! SQL expressions of the triggers. The *application's* SQLite executes them: only syntax and functions of a default
//! 3.35 build are allowed.

use honeyflow_store::{
    CaptureTable, Columns, KeyColumn, KeyType,
    catalogue::{Column, Table},
};

use super::{
    payload,
    quote::{identifier, literal},
};

/// The maximum length of one OR chain: a chain nests as deep as it is long, and SQLite allows 1,000 levels.
const TERMS_MAX: usize = 64;

/// Returns a name of the rowid that no column hides.
pub fn rowid_name(table: &Table) -> Option<&'static str> {
    if !table.rowid || table.view {
        return None;
    }
    ["rowid", "_rowid_", "oid"].into_iter().find(|name| table.column(name).is_none())
}

/// Returns the column that *is* the rowid: the only column of the primary key, declared as exactly INTEGER.
pub fn rowid_alias(table: &Table) -> Option<&Column> {
    match table.primary_key()[..] {
        // A key declared INTEGER … DESC is not the rowid; such a key has its own index.
        [only] if table.rowid && only.declared_type.eq_ignore_ascii_case("integer") => {
            (!table.unique.iter().any(|unique| unique.primary)).then_some(only)
        }
        _ => None,
    }
}

/// Returns the expression for the key text of the row called `row` (`NEW`, `OLD` or an alias).
pub fn key_text(row: &str, key: &[KeyColumn], rowid: &str) -> String {
    match key {
        [] => format!("CAST({row}.{rowid} AS TEXT)"),
        [only] => part_text(row, only),
        parts => {
            let parts: Vec<_> = parts
                .iter()
                .map(|part| match part.kind {
                    // Digits and hex need no escaping.
                    KeyType::Integer | KeyType::Blob => part_text(row, part),
                    KeyType::Text | KeyType::Uuid | KeyType::Named(_) => {
                        format!(r"replace(replace({}, '\', '\\'), '|', '\|')", part_text(row, part))
                    }
                })
                .collect();
            parts.join(" || '|' || ")
        }
    }
}

fn part_text(row: &str, part: &KeyColumn) -> String {
    let column = identifier(&part.name);
    match part.kind {
        KeyType::Integer | KeyType::Text | KeyType::Uuid | KeyType::Named(_) => format!("CAST({row}.{column} AS TEXT)"),
        KeyType::Blob => format!("lower(hex({row}.{column}))"),
    }
}

/// Returns the conditions under which no part of the row's key is NULL; an empty list if none can be.
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

/// Returns the condition that OLD and NEW differ in the column, byte by byte: a NOCASE column must not hide
/// `'Foo'` → `'foo'`.
pub fn changed(column: &str, table: &Table) -> String {
    let name = identifier(column);
    let bytes = format!("OLD.{name} COLLATE BINARY IS NOT NEW.{name}");
    let untyped = table.column(column).is_some_and(|column| holds_any_type(column, table));
    // In a column without a type, 1 and 1.0 are equal but are read as different values.
    if untyped { format!("{bytes} OR typeof(OLD.{name}) IS NOT typeof(NEW.{name})") } else { bytes }
}

fn holds_any_type(column: &Column, table: &Table) -> bool {
    let declared = column.declared_type.to_ascii_uppercase();
    let kept = declared.is_empty() || declared.contains("BLOB") || (table.strict && declared == "ANY");
    let strict_blob = table.strict && declared == "BLOB";
    // In SQLite's rules of affinity, INT, CHAR, CLOB and TEXT take precedence over BLOB.
    kept && !strict_blob && !["INT", "CHAR", "CLOB", "TEXT"].iter().any(|word| declared.contains(word))
}

/// Returns one condition per column whose change creates an event.
pub fn changed_terms(capture: &CaptureTable, table: &Table) -> Vec<String> {
    let mut columns: Vec<&str> = capture.key.iter().map(|part| part.name.as_str()).collect();
    columns.extend(capture.carried.iter().map(String::as_str));
    match &capture.watched {
        // A generated column changes only together with the columns it is computed from.
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

/// Returns `a OR b OR …`, in groups of at most [`TERMS_MAX`].
pub fn any_of(terms: &[String]) -> String {
    if terms.len() <= TERMS_MAX {
        return terms.join("\n  OR ");
    }
    let groups: Vec<_> = terms.chunks(TERMS_MAX).map(|group| format!("({})", group.join("\n  OR "))).collect();
    any_of(&groups)
}

/// Returns the payload's items for the carried columns of `row`, as `side`; an empty list if nothing is carried.
pub fn payload_items(side: &str, row: &str, carried: &[String]) -> Vec<String> {
    let items = carried.iter().map(|column| {
        let head = literal(&format!("{side}.{}:", payload::escape(column)));
        let name = identifier(column);
        format!("{head} || typeof({row}.{name}) || ':' || hex({row}.{name})")
    });
    items.collect()
}

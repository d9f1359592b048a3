//! Rewrites `$keys` for SQLite: a parenthesised select over `json_each(?1)`, so `in $keys` and `join $keys k` both
//! work, and any number of keys needs one bound value.

use honeyflow_event::key;
use honeyflow_runtime::Failure;
use honeyflow_store::{KeyColumn, KeyType, Statement, keys};

/// Returns the document statement with `$keys` rewritten, ready to be prepared.
pub(crate) fn document(statement: &Statement) -> Result<String, Failure> {
    keys::rewrite(statement, &row_set(&statement.key))
}

/// Returns the edge statement for one page: the distinct key texts above `?2`, in the order of their bytes.
/// `columns` is the number of the statement's columns; each column is a part of the container's key.
pub(crate) fn expansion(statement: &Statement, columns: usize) -> Result<String, Failure> {
    let reached = keys::rewrite(statement, &row_set(&statement.key))?;
    let names: Vec<String> = (1..=columns).map(|n| format!("part{n}")).collect();
    let part_text = |name: &String| {
        let plain = format!(
            "case typeof({name}) when 'blob' then lower(hex({name})) when 'real' then cast(cast({name} as integer) as text)
             else cast({name} as text) end"
        );
        if columns == 1 { plain } else { format!(r"replace(replace({plain}, '\', '\\'), '|', '\|')") }
    };
    let key_text = names.iter().map(part_text).collect::<Vec<_>>().join(" || '|' || ");
    let present = names.iter().map(|name| format!("{name} is not null")).collect::<Vec<_>>().join(" and ");
    let names = names.join(", ");
    // The collation is explicit, because a cast keeps that of its column.
    Ok(format!(
        "with reached({names}) as ({reached}\n), keyed(key) as (select ({key_text}) collate binary from reached where {present})
         select distinct key collate binary from keyed where ?2 is null or key collate binary > ?2
         order by 1 collate binary limit ?3"
    ))
}

fn row_set(columns: &[KeyColumn]) -> String {
    let part = |value: String, kind: KeyType| match kind {
        KeyType::Integer | KeyType::Text | KeyType::Uuid | KeyType::Named(_) => value,
        KeyType::Blob => format!("unhex({value})"),
    };
    let selected: Vec<String> = match columns {
        [only] => vec![format!("{} as {}", part("value".to_owned(), only.kind), quote(&only.name))],
        several => several
            .iter()
            .enumerate()
            .map(|(n, column)| {
                format!("{} as {}", part(format!("json_extract(value, '$[{n}]')"), column.kind), quote(&column.name))
            })
            .collect(),
    };
    format!("(select {} from json_each(?1))", selected.join(", "))
}

pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The keys of a batch as the JSON that `json_each` reads: integers as integers, text as text, blobs as hex.
#[derive(Default)]
pub(crate) struct Batch {
    json: String,
}

impl Batch {
    pub fn new() -> Batch {
        Batch { json: "[".to_owned() }
    }

    /// Adds a key, or adds nothing and returns what is wrong with it.
    pub fn push(&mut self, columns: &[KeyColumn], key: &str) -> Result<(), String> {
        let mark = self.json.len();
        if mark > 1 {
            self.json.push(',');
        }
        let pushed = if let [only] = columns { self.part(only, key) } else { self.parts(columns, key) };
        if pushed.is_err() {
            self.json.truncate(mark);
        }
        pushed
    }

    pub fn finish(mut self) -> String {
        self.json.push(']');
        self.json
    }

    fn parts(&mut self, columns: &[KeyColumn], key: &str) -> Result<(), String> {
        let parts =
            key::split(key, columns.len()).ok_or_else(|| format!("it does not have {} parts", columns.len()))?;
        for (n, (column, part)) in columns.iter().zip(&parts).enumerate() {
            self.json.push(if n == 0 { '[' } else { ',' });
            self.part(column, part)?;
        }
        self.json.push(']');
        Ok(())
    }

    fn part(&mut self, column: &KeyColumn, part: &str) -> Result<(), String> {
        match column.kind {
            // The number is formatted again and compared: `042` and `+42` are other texts of 42, and no row has them.
            KeyType::Integer => match part.parse::<i64>() {
                Ok(integer) if part == integer.to_string() => self.json.push_str(part),
                _ => return Err(format!("`{part}` is not an integer in decimal, as {} has", column.name)),
            },
            KeyType::Text | KeyType::Uuid | KeyType::Named(_) => {
                self.json.push_str(&serde_json::Value::from(part).to_string());
            }
            KeyType::Blob => {
                let hex = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
                if !hex || !part.len().is_multiple_of(2) {
                    return Err(format!("`{part}` is not lower-case hex, as {} has", column.name));
                }
                self.json.push('"');
                self.json.push_str(part);
                self.json.push('"');
            }
        }
        Ok(())
    }
}

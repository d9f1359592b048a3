//! Writes the SQL statements of a proposal.

use honeyflow_store::catalogue::Table;

use super::Draft;

/// The identifier, quoted only where needed, so that the statement stays readable.
pub fn identifier(name: &str) -> String {
    let plain = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain && !is_keyword(name) { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Whether the name is a keyword of SQLite, PostgreSQL or MySQL.
pub fn is_keyword(name: &str) -> bool {
    KEYWORDS.contains(&name.to_ascii_lowercase().as_str())
}

const KEYWORDS: &[&str] = &[
    "abort",
    "action",
    "add",
    "after",
    "all",
    "alter",
    "always",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "attach",
    "autoincrement",
    "before",
    "begin",
    "between",
    "both",
    "by",
    "cascade",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "commit",
    "condition",
    "conflict",
    "constraint",
    "create",
    "cross",
    "current",
    "current_date",
    "current_time",
    "current_timestamp",
    "current_user",
    "database",
    "default",
    "deferrable",
    "deferred",
    "delete",
    "desc",
    "describe",
    "detach",
    "distinct",
    "div",
    "do",
    "drop",
    "each",
    "else",
    "end",
    "escape",
    "except",
    "exclude",
    "exclusive",
    "exists",
    "explain",
    "fail",
    "false",
    "fetch",
    "filter",
    "first",
    "following",
    "for",
    "foreign",
    "from",
    "full",
    "generated",
    "glob",
    "grant",
    "group",
    "groups",
    "having",
    "if",
    "ignore",
    "immediate",
    "in",
    "index",
    "indexed",
    "initially",
    "inner",
    "insert",
    "instead",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "key",
    "keys",
    "last",
    "lateral",
    "leading",
    "left",
    "like",
    "limit",
    "lock",
    "match",
    "materialized",
    "mod",
    "natural",
    "no",
    "not",
    "nothing",
    "notnull",
    "null",
    "nulls",
    "of",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "others",
    "outer",
    "over",
    "partition",
    "plan",
    "pragma",
    "preceding",
    "primary",
    "procedure",
    "query",
    "raise",
    "range",
    "rank",
    "read",
    "recursive",
    "references",
    "regexp",
    "reindex",
    "release",
    "rename",
    "replace",
    "restrict",
    "returning",
    "right",
    "rollback",
    "row",
    "rows",
    "savepoint",
    "select",
    "set",
    "some",
    "system",
    "table",
    "temp",
    "temporary",
    "then",
    "ties",
    "to",
    "trailing",
    "transaction",
    "trigger",
    "true",
    "unbounded",
    "union",
    "unique",
    "update",
    "usage",
    "user",
    "using",
    "vacuum",
    "values",
    "view",
    "virtual",
    "when",
    "where",
    "window",
    "with",
    "without",
    "write",
    "xor",
];

/// `alias.a = other.b and …`
pub fn equal(left: &str, left_columns: &[String], right: &str, right_columns: &[String]) -> String {
    let pairs = left_columns.iter().zip(right_columns);
    let pairs = pairs.map(|(one, other)| format!("{left}.{} = {right}.{}", identifier(one), identifier(other)));
    pairs.collect::<Vec<_>>().join(" and ")
}

pub fn list(prefix: &str, columns: &[String]) -> String {
    columns.iter().map(|column| format!("{prefix}{}", identifier(column))).collect::<Vec<_>>().join(", ")
}

/// The statement that returns the columns `result` of `table` for the rows whose columns `by` are among `$keys`. The
/// parts of `$keys` have the names `keys`.
pub fn reached(table: &str, result: &[String], by: &[String], keys: &[String]) -> String {
    let name = identifier(table);
    match by {
        [only] => format!("select {} from {name} where {} in $keys", list("", result), identifier(only)),
        _ => {
            let alias = super::Aliases::new(table).own;
            format!(
                "select {} from {name} {alias} join $keys k on {}",
                list(&format!("{alias}."), result),
                equal("k", keys, &alias, by)
            )
        }
    }
}

pub(crate) fn document(table: &Table, draft: &Draft) -> String {
    let key: Vec<String> = table.primary_key().iter().map(|column| column.name.clone()).collect();
    let own = &draft.aliases.own;
    let mut text = format!("  select {}", wrapped(&draft.select));
    text.push_str(&format!("\n  from {} {own}", identifier(&table.name)));
    if key.len() > 1 {
        // A row value with `in` would use only the first column of the index.
        text.push_str(&format!("\n  join $keys k on {}", equal("k", &key, own, &key)));
    }
    for join in &draft.joins {
        text.push_str(&format!("\n  {join}"));
    }
    if let [only] = &key[..] {
        text.push_str(&format!("\n  where {own}.{} in $keys", identifier(only)));
    }
    text
}

/// The select list, wrapped at 110 columns.
fn wrapped(items: &[String]) -> String {
    const LINE_MAX: usize = 110;
    let mut text = String::new();
    let mut line = 9;
    for (n, item) in items.iter().enumerate() {
        let comma = if n + 1 < items.len() { "," } else { "" };
        if n > 0 && (line + item.len() > LINE_MAX || item.starts_with('(')) {
            text.push_str("\n         ");
            line = 9;
        } else if n > 0 {
            text.push(' ');
        }
        text.push_str(item);
        text.push_str(comma);
        line += item.len() + 2;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_only_where_needed() {
        assert_eq!(identifier("book"), "book");
        assert_eq!(identifier("order"), "\"order\"");
        assert_eq!(identifier("order line"), "\"order line\"");
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
        assert_eq!(identifier("2nd"), "\"2nd\"");
        assert_eq!(identifier("Größe"), "\"Größe\"");
    }
}

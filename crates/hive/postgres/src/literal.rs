//! Writes values as SQL literals. A hive writes numbers, UUIDs, and names from configuration and code.

use std::fmt::{Display, Write};

use honeyflow_hive::NodeId;

/// A text literal that has the same meaning under all settings of the server.
pub(crate) fn text(value: &str) -> String {
    let mut literal = String::with_capacity(value.len() + 4);
    literal.push_str("E'");
    for character in value.chars() {
        if matches!(character, '\'' | '\\') {
            literal.push(character);
        }
        literal.push(character);
    }
    literal.push('\'');
    literal
}

pub(crate) fn text_or_null(value: Option<&str>) -> String {
    value.map_or_else(|| "null::text".to_owned(), text)
}

pub(crate) fn node(node: NodeId) -> String {
    format!("'{node}'::uuid")
}

/// A number as a literal. One that is too large for the column becomes nearly the largest that fits.
pub(crate) fn number(value: u64) -> String {
    format!("{}::bigint", i64::try_from(value).unwrap_or(i64::MAX - 1))
}

pub(crate) fn number_or_null(value: Option<u64>) -> String {
    value.map_or_else(|| "null::bigint".to_owned(), number)
}

/// `(a), (b)`, with at least one row. Every value carries its type, so that the server need not infer it.
pub(crate) fn rows<T: Display>(rows: impl IntoIterator<Item = T>) -> String {
    let mut list = String::new();
    for row in rows {
        let comma = if list.is_empty() { "" } else { ", " };
        let _ = write!(list, "{comma}({row})");
    }
    list
}

/// The quoted name of a role.
pub(crate) fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_a_literal_but_its_own_quote() {
        assert_eq!(text("queen"), "E'queen'");
        assert_eq!(text(r"'; drop table hive_lease; --\"), r"E'''; drop table hive_lease; --\\'");
        assert_eq!(text_or_null(None), "null::text");
        assert_eq!(name("a\"b"), "\"a\"\"b\"");
    }

    #[test]
    fn a_number_fits_its_column() {
        assert_eq!(number(7), "7::bigint");
        assert_eq!(number(u64::MAX), format!("{}::bigint", i64::MAX - 1), "one more can still be added");
        assert_eq!(rows(["1", "2"]), "(1), (2)");
    }
}

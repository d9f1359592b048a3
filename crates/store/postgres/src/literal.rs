//! SQL literals for numbers, UUIDs and names of the configuration. Users' data is never written into a statement's
//! text, it is bound.

use std::fmt::{Display, Write};

/// Returns a text constant that has the same meaning under all server settings.
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

/// Returns `'{1,2}'`; the statement casts it to an array of integers.
pub(crate) fn integers<T: Display>(values: impl IntoIterator<Item = T>) -> String {
    let mut literal = "'{".to_owned();
    for (n, value) in values.into_iter().enumerate() {
        let comma = if n > 0 { "," } else { "" };
        let _ = write!(literal, "{comma}{value}");
    }
    literal.push_str("}'");
    literal
}

/// Returns a quoted name of a table or column.
pub(crate) fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_a_literal_but_its_own_quote() {
        assert_eq!(text("book"), "E'book'");
        assert_eq!(text(r"'; drop table book; --\"), r"E'''; drop table book; --\\'");
        assert_eq!(name("a\"b"), "\"a\"\"b\"");
        assert_eq!(integers([1, -2]), "'{1,-2}'");
        assert_eq!(integers::<i64>([]), "'{}'");
    }
}

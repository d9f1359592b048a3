//! Quotes names and texts for SQL; no other place does.

/// Quotes a name: `order line` → `"order line"`.
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes a text: `it's` → `'it''s'`.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_6_odd_names_are_quoted() {
        assert_eq!(identifier(r#"a "b" c"#), r#""a ""b"" c""#);
        assert_eq!(literal("it's"), "'it''s'");
    }
}

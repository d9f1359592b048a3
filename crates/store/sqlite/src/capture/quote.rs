//! The one place where names and texts become SQL.

/// `order line` → `"order line"`.
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `it's` → `'it''s'`.
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

//! Writes values as SQL literals. Text is sent as hexadecimal digits, so that it has the same meaning under every
//! `sql_mode` and character set, and nothing in it can end the literal.

use std::fmt::Write;

use honeyflow_hive::NodeId;

pub(crate) fn text(value: &str) -> String {
    let mut literal = String::with_capacity(2 * value.len() + 12);
    literal.push_str("_utf8mb4 x'");
    for byte in value.bytes() {
        let _ = write!(literal, "{byte:02x}");
    }
    literal.push('\'');
    literal
}

pub(crate) fn texts<'t>(values: impl IntoIterator<Item = &'t str>) -> String {
    values.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

pub(crate) fn text_or_null(value: Option<&str>) -> String {
    value.map_or_else(null, text)
}

/// The id of a node. It consists of hexadecimal digits and hyphens, so it needs no escaping.
pub(crate) fn id(node: NodeId) -> String {
    format!("'{node}'")
}

pub(crate) fn ids(nodes: impl IntoIterator<Item = NodeId>) -> String {
    nodes.into_iter().map(id).collect::<Vec<_>>().join(", ")
}

pub(crate) fn id_or_null(node: Option<NodeId>) -> String {
    node.map_or_else(null, id)
}

/// Converts a number for a signed column. The cap is far above every number that the hive writes.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

/// The quoted name of a database, a table or an account.
pub(crate) fn name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn null() -> String {
    "null".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_can_end_its_literal() {
        assert_eq!(text("ab"), "_utf8mb4 x'6162'");
        assert_eq!(text(""), "_utf8mb4 x''");
        assert_eq!(text(r"\'"), "_utf8mb4 x'5c27'");
        assert_eq!(texts(["ü", "x"]), "_utf8mb4 x'c3bc', _utf8mb4 x'78'");
        assert_eq!(text_or_null(None), "null");
        assert_eq!(name("a`b"), "`a``b`");
        assert_eq!(signed(u64::MAX), i64::MAX / 4, "sums of two stay within the column");
    }
}

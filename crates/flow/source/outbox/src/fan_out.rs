//! The rows by which a fan-out above one page continues: which edge of which entity, and its position.

use std::sync::Arc;

use honeyflow_event::document;
use honeyflow_runtime::Failure;
use honeyflow_store::Statement;
use serde_json::{Value, json};

use crate::codes;

#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Position {
    pub entity: String,
    /// The id that [`edge_id`] returns.
    pub edge: String,
    pub after: Option<String>,
}

/// Returns an id made from the edge's content, so that a row written under another configuration matches no other edge.
pub(crate) fn edge_id(statement: &Statement) -> String {
    let columns: Vec<&str> = statement.key.iter().map(|column| column.name.as_str()).collect();
    format!("{:016x}", document::hash(&json!([statement.text, columns])))
}

/// Returns the payload of a fan-out's first row. The store advances `after` with every page.
pub(crate) fn begin(entity: &str, edge: &str) -> Arc<str> {
    json!({ "entity": entity, "edge": edge, "after": null }).to_string().into()
}

pub(crate) fn read(payload: Option<&str>) -> Result<Position, Failure> {
    let unreadable = || Failure::reject(codes::UNREADABLE_PAYLOAD, "the payload is no position of a fan-out");
    let value: Value = payload.and_then(|text| serde_json::from_str(text).ok()).ok_or_else(unreadable)?;
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let (Some(entity), Some(edge)) = (text("entity"), text("edge")) else { return Err(unreadable()) };
    Ok(Position { entity, edge, after: text("after") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_29_a_position_is_read_as_it_was_written() {
        let begun = Position { entity: "book".into(), edge: "e".into(), after: None };
        assert_eq!(read(Some(&begin("book", "e"))), Ok(begun));
        let moved = r#"{"after":"42","edge":"e","entity":"book"}"#;
        assert_eq!(read(Some(moved)).unwrap().after.as_deref(), Some("42"));
        for payload in [None, Some("x"), Some("{}"), Some(r#"{"entity":"book","edge":1}"#)] {
            assert_eq!(read(payload).unwrap_err().code, "unreadable-payload");
        }
    }
}

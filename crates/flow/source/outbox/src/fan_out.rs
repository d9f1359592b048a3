//! The rows by which a fan-out above one page goes on: which edge of which entity, and how far it has come.

use std::sync::Arc;

use honeyflow_event::document;
use honeyflow_runtime::Failure;
use honeyflow_store::Statement;
use serde_json::{Value, json};

#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Position {
    pub entity: String,
    /// As [`edge_id`] gives it.
    pub edge: String,
    pub after: Option<String>,
}

/// Names an edge by what it says, so that a row written under another configuration is not taken for its neighbour's.
pub(crate) fn edge_id(statement: &Statement) -> String {
    let columns: Vec<&str> = statement.key.iter().map(|column| column.name.as_str()).collect();
    format!("{:016x}", document::hash(&json!([statement.text, columns])))
}

/// The payload of a fan-out's first row. The store moves `after` on with every page.
pub(crate) fn begin(entity: &str, edge: &str) -> Arc<str> {
    json!({ "entity": entity, "edge": edge, "after": null }).to_string().into()
}

pub(crate) fn read(payload: Option<&str>) -> Result<Position, Failure> {
    let unreadable = || Failure::reject("unreadable-payload", "the payload is no position of a fan-out");
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

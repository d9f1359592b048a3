//! Which tables must be captured, and how, so that every change of a document's data writes an event.

use honeyflow_event::Priority;
use honeyflow_store::{CaptureTable, Columns, KeyColumn};

use crate::entity::{Edge, EdgeBy, Entity, FanOutMode};

/// Returns one entry per table, even if several entities use it. Every adapter generates its triggers from these, and
/// [`crate::OutboxSource`] expects rows as they are described here.
pub fn capture_tables(entities: &[Entity]) -> Vec<CaptureTable> {
    let mut tables: Vec<TableCapture> = Vec::new();
    for entity in entities {
        for edge in entity.edges.iter().filter(|edge| edge.fan_out != FanOutMode::None) {
            let capture = table_capture(&mut tables, &edge.table, key_of(entities, &edge.table));
            // A shallow edge follows only the link itself: changes of its other columns need no event.
            if edge.fan_out == FanOutMode::All {
                capture.watch(&edge.columns);
            }
            capture.carry(&carried_by(edge, &capture.capture.key));
            capture.reached_at(entity.priority);
        }
        let capture = table_capture(&mut tables, &entity.table, key_of(entities, &entity.table));
        capture.watch(&entity.columns);
        capture.report(&entity.reported);
        if !same_columns(&entity.key, &capture.capture.key) {
            capture.carry(&names(&entity.key));
        }
        capture.owned_at(entity.priority);
    }
    tables.into_iter().map(TableCapture::finish).collect()
}

/// Returns the key that a table's rows are written under: the key that statements of edges use, else that of its
/// entity.
pub(crate) fn key_of(entities: &[Entity], table: &str) -> Vec<KeyColumn> {
    let edges = || entities.iter().flat_map(|entity| &entity.edges).filter(|edge| same_table(&edge.table, table));
    let queried = edges().find(|edge| matches!(edge.by, EdgeBy::Statement(_)) && !edge.table_key.is_empty());
    let owner = entities.iter().find(|entity| same_table(&entity.table, table));
    let linked = edges().find(|edge| !edge.table_key.is_empty());
    let key = queried.map(|edge| &edge.table_key);
    let key = key.or(owner.map(|entity| &entity.key)).or(linked.map(|edge| &edge.table_key));
    key.cloned().unwrap_or_default()
}

/// Returns the columns that an edge needs in the payload. A shallow edge by statement needs the key, since OLD and NEW
/// distinguish an update of other columns from a row that was inserted, deleted or got another key.
fn carried_by(edge: &Edge, key: &[KeyColumn]) -> Vec<String> {
    match &edge.by {
        EdgeBy::Key(columns) => columns.clone(),
        EdgeBy::Statement(_) if edge.fan_out == FanOutMode::Shallow || !same_columns(&edge.table_key, key) => {
            names(&edge.table_key)
        }
        EdgeBy::Statement(_) => Vec::new(),
    }
}

pub(crate) fn same_table(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

pub(crate) fn same_columns(one: &[KeyColumn], other: &[KeyColumn]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.name.eq_ignore_ascii_case(&other.name))
}

pub(crate) fn names(key: &[KeyColumn]) -> Vec<String> {
    key.iter().map(|column| column.name.clone()).collect()
}

fn add_names(names: &mut Vec<String>, more: &[String]) {
    for name in more {
        if !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            names.push(name.clone());
        }
    }
}

/// The capture of one table while it is assembled, with the best priority of the entities that own or use the table.
struct TableCapture {
    capture: CaptureTable,
    owned_at: Option<Priority>,
    reached_at: Option<Priority>,
}

fn table_capture<'a>(tables: &'a mut Vec<TableCapture>, table: &str, key: Vec<KeyColumn>) -> &'a mut TableCapture {
    let at = tables.iter().position(|capture| same_table(&capture.capture.table, table)).unwrap_or_else(|| {
        let capture = CaptureTable {
            table: table.to_owned(),
            key,
            watched: Columns::NONE,
            carried: Vec::new(),
            reported: Vec::new(),
            priority: 0,
        };
        tables.push(TableCapture { capture, owned_at: None, reached_at: None });
        tables.len() - 1
    });
    &mut tables[at]
}

impl TableCapture {
    fn watch(&mut self, columns: &Columns) {
        let watched = std::mem::replace(&mut self.capture.watched, Columns::NONE);
        self.capture.watched = watched.union(columns);
    }

    fn carry(&mut self, columns: &[String]) {
        add_names(&mut self.capture.carried, columns);
    }

    fn report(&mut self, columns: &[String]) {
        add_names(&mut self.capture.reported, columns);
    }

    fn owned_at(&mut self, priority: Priority) {
        self.owned_at = Some(self.owned_at.map_or(priority, |other| other.min(priority)));
    }

    fn reached_at(&mut self, priority: Priority) {
        self.reached_at = Some(self.reached_at.map_or(priority, |other| other.min(priority)));
    }

    /// Sets the priority: that of the table's own entity; for a table that has none, that of the entities it leads to.
    fn finish(self) -> CaptureTable {
        let priority = self.owned_at.or(self.reached_at).unwrap_or(honeyflow_event::PRIORITY_DEFAULT);
        CaptureTable { priority, ..self.capture }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use honeyflow_store::{KeyType, Statement};

    use super::*;

    fn key(names: &[&str]) -> Vec<KeyColumn> {
        names.iter().map(|name| KeyColumn { name: (*name).to_owned(), kind: KeyType::Integer }).collect()
    }

    fn some(names: &[&str]) -> Columns {
        Columns::Some(names.iter().map(ToString::to_string).collect())
    }

    fn entity(name: &str, columns: &[&str], edges: Vec<Edge>) -> Entity {
        let priority = honeyflow_event::PRIORITY_DEFAULT;
        let (table, reported) = (name.to_owned(), Vec::new());
        Entity { name: name.into(), table, key: key(&["id"]), columns: some(columns), reported, edges, priority }
    }

    fn by_statement(table: &str, columns: &[&str]) -> Edge {
        let statement = Statement {
            place: "entity.book.edge".into(),
            text: "select id from book where x in $keys".into(),
            key: key(&["id"]),
            result_key: Vec::new(),
            json: Vec::new(),
        };
        let by = EdgeBy::Statement(Arc::new(statement));
        Edge { table: table.into(), table_key: key(&["id"]), columns: some(columns), by, fan_out: FanOutMode::All }
    }

    fn by_key(table: &str, column: &str) -> Edge {
        let by = EdgeBy::Key(vec![column.to_owned()]);
        Edge { table: table.into(), table_key: Vec::new(), columns: some(&["author_id"]), by, fan_out: FanOutMode::All }
    }

    #[test]
    fn ob_6_every_table_a_document_reads_is_captured_once() {
        let entities = [
            entity("book", &["title"], vec![by_statement("author", &["name"]), by_key("book_author", "book_id")]),
            Entity { priority: 2, ..entity("Author", &["name", "born"], vec![]) },
        ];
        let tables = capture_tables(&entities);
        let expected = |table: &str, key, watched: &[&str], carried: &[&str], priority| CaptureTable {
            table: table.into(),
            key,
            watched: some(watched),
            carried: carried.iter().map(ToString::to_string).collect(),
            reported: Vec::new(),
            priority,
        };
        assert_eq!(
            tables,
            [
                expected("author", key(&["id"]), &["name", "born"], &[], 2),
                expected("book_author", vec![], &["author_id"], &["book_id"], 4),
                expected("book", key(&["id"]), &["title"], &[], 4),
            ]
        );
    }

    #[test]
    fn ob_28_a_shallow_edge_watches_only_the_link_and_mode_none_no_column() {
        let shallow = Edge { fan_out: FanOutMode::Shallow, ..by_statement("author", &["name"]) };
        let tables = capture_tables(&[entity("book", &["title"], vec![shallow])]);
        assert_eq!((&tables[0].watched, &tables[0].carried[..]), (&Columns::NONE, &["id".to_owned()][..]));
        let none = Edge { fan_out: FanOutMode::None, ..by_statement("author", &["name"]) };
        assert_eq!(capture_tables(&[entity("book", &["title"], vec![none])]).len(), 1);
    }

    #[test]
    fn ob_9_columns_that_a_workflow_names_are_reported_once() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let of = |name: &str, reported: &[&str]| Entity {
            table: "book".into(),
            reported: names(reported),
            ..entity(name, &["title"], vec![])
        };
        let tables = capture_tables(&[of("book", &["state", "title"]), of("offer", &["State"])]);
        assert_eq!(tables[0].reported, names(&["state", "title"]));
    }

    #[test]
    fn ob_6_the_payload_carries_the_key_of_a_second_entity() {
        let by_isbn = Entity { table: "book".into(), key: key(&["isbn"]), ..entity("isbn", &["price"], vec![]) };
        let tables = capture_tables(&[entity("book", &["title"], vec![]), by_isbn]);
        assert_eq!(tables.len(), 1);
        assert_eq!((&tables[0].key, &tables[0].carried[..]), (&key(&["id"]), &["isbn".to_owned()][..]));
    }
}

//! Which tables must be captured, and how, so that every change a document could see makes an event.

use honeyflow_event::Priority;
use honeyflow_store::{CaptureTable, Columns, KeyColumn};

use crate::entity::{Edge, EdgeBy, Entity, FanOutMode};

/// One entry per table, whoever reads it. Every adapter generates its triggers from these, and [`crate::OutboxSource`]
/// expects rows as they are described here.
pub fn capture_tables(entities: &[Entity]) -> Vec<CaptureTable> {
    let mut tables: Vec<Wish> = Vec::new();
    for entity in entities {
        for edge in entity.edges.iter().filter(|edge| edge.fan_out != FanOutMode::None) {
            let wish = wish(&mut tables, &edge.table, key_of(entities, &edge.table));
            // A shallow edge follows only the link itself: its other columns are nobody's business.
            if edge.fan_out == FanOutMode::All {
                wish.watch(&edge.columns);
            }
            wish.carry(&carried_by(edge, &wish.capture.key));
            wish.reached_at(entity.priority);
        }
        let wish = wish(&mut tables, &entity.table, key_of(entities, &entity.table));
        wish.watch(&entity.columns);
        if !same_columns(&entity.key, &wish.capture.key) {
            wish.carry(&names(&entity.key));
        }
        wish.owned_at(entity.priority);
    }
    tables.into_iter().map(Wish::finish).collect()
}

/// The key that a table's rows are written under: that by which statements of edges ask, else that of its entity.
pub(crate) fn key_of(entities: &[Entity], table: &str) -> Vec<KeyColumn> {
    let edges = || entities.iter().flat_map(|entity| &entity.edges).filter(|edge| same_table(&edge.table, table));
    let asked = edges().find(|edge| matches!(edge.by, EdgeBy::Statement(_)) && !edge.table_key.is_empty());
    let owner = entities.iter().find(|entity| same_table(&entity.table, table));
    let linked = edges().find(|edge| !edge.table_key.is_empty());
    let key = asked.map(|edge| &edge.table_key);
    let key = key.or(owner.map(|entity| &entity.key)).or(linked.map(|edge| &edge.table_key));
    key.cloned().unwrap_or_default()
}

/// What an edge needs to find in the payload. A shallow edge by statement takes the key along, since OLD and NEW tell an
/// update of other columns from a row that came, went or changed its name.
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

struct Wish {
    capture: CaptureTable,
    owned_at: Option<Priority>,
    reached_at: Option<Priority>,
}

fn wish<'a>(tables: &'a mut Vec<Wish>, table: &str, key: Vec<KeyColumn>) -> &'a mut Wish {
    let at = tables.iter().position(|wish| same_table(&wish.capture.table, table)).unwrap_or_else(|| {
        let capture =
            CaptureTable { table: table.to_owned(), key, watched: Columns::NONE, carried: Vec::new(), priority: 0 };
        tables.push(Wish { capture, owned_at: None, reached_at: None });
        tables.len() - 1
    });
    &mut tables[at]
}

impl Wish {
    fn watch(&mut self, columns: &Columns) {
        let watched = std::mem::replace(&mut self.capture.watched, Columns::NONE);
        self.capture.watched = watched.union(columns);
    }

    fn carry(&mut self, columns: &[String]) {
        for column in columns {
            if !self.capture.carried.iter().any(|carried| carried.eq_ignore_ascii_case(column)) {
                self.capture.carried.push(column.clone());
            }
        }
    }

    fn owned_at(&mut self, priority: Priority) {
        self.owned_at = Some(self.owned_at.map_or(priority, |other| other.min(priority)));
    }

    fn reached_at(&mut self, priority: Priority) {
        self.reached_at = Some(self.reached_at.map_or(priority, |other| other.min(priority)));
    }

    /// The table's own entity says how urgent its rows are; a table that is only read takes after those it leads to.
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
        Entity { name: name.into(), table: name.to_owned(), key: key(&["id"]), columns: some(columns), edges, priority }
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
        let wish = |table: &str, key, watched: &[&str], carried: &[&str], priority| CaptureTable {
            table: table.into(),
            key,
            watched: some(watched),
            carried: carried.iter().map(ToString::to_string).collect(),
            priority,
        };
        assert_eq!(
            tables,
            [
                wish("author", key(&["id"]), &["name", "born"], &[], 2),
                wish("book_author", vec![], &["author_id"], &["book_id"], 4),
                wish("book", key(&["id"]), &["title"], &[], 4),
            ]
        );
    }

    #[test]
    fn ob_28_shallow_edges_watch_the_link_alone_and_none_nothing() {
        let shallow = Edge { fan_out: FanOutMode::Shallow, ..by_statement("author", &["name"]) };
        let tables = capture_tables(&[entity("book", &["title"], vec![shallow])]);
        assert_eq!((&tables[0].watched, &tables[0].carried[..]), (&Columns::NONE, &["id".to_owned()][..]));
        let none = Edge { fan_out: FanOutMode::None, ..by_statement("author", &["name"]) };
        assert_eq!(capture_tables(&[entity("book", &["title"], vec![none])]).len(), 1);
    }

    #[test]
    fn ob_6_a_second_entity_with_another_key_finds_it_in_the_payload() {
        let by_isbn = Entity { table: "book".into(), key: key(&["isbn"]), ..entity("isbn", &["price"], vec![]) };
        let tables = capture_tables(&[entity("book", &["title"], vec![]), by_isbn]);
        assert_eq!(tables.len(), 1);
        assert_eq!((&tables[0].key, &tables[0].carried[..]), (&key(&["id"]), &["isbn".to_owned()][..]));
    }
}

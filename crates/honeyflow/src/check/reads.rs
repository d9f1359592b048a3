//! Finds the tables and columns that a statement reads, by parsing it. A column without a known table is assumed to be
//! in all of them: one event too many does no harm, a missing event does.

use std::{collections::BTreeSet, ops::ControlFlow};

use sqlparser::{
    ast::{Expr, Query, SelectItem, SetExpr, TableFactor, Visit, Visitor},
    dialect::SQLiteDialect,
    parser::Parser,
};

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Reads {
    /// The table names as written, each once.
    pub tables: Vec<String>,
    /// Pairs of a qualifier (a table's alias or name, or none) and a column.
    columns: BTreeSet<(Option<String>, String)>,
    /// Pairs of an alias or name and its table.
    names: Vec<(String, String)>,
    /// The statement contains `*`: all columns are read.
    everything: bool,
}

impl Reads {
    /// The alias of the table in the statement, if the table occurs exactly once.
    pub fn alias(&self, table: &str) -> Option<&str> {
        let mut found = self.names.iter().filter(|(_, of)| of.eq_ignore_ascii_case(table));
        let (alias, _) = found.next()?;
        found.next().is_none().then_some(alias)
    }

    /// Whether the statement may read this column.
    pub fn uses(&self, table: &str, column: &str) -> bool {
        let column = column.to_ascii_lowercase();
        let of_table = |qualifier: &str| {
            self.names.iter().any(|(name, of)| name.eq_ignore_ascii_case(qualifier) && of.eq_ignore_ascii_case(table))
        };
        self.everything
            || self.columns.iter().any(|(qualifier, name)| *name == column && qualifier.as_deref().is_none_or(of_table))
    }
}

pub fn reads(statement: &str) -> Result<Reads, String> {
    // Both `in $keys` and `join $keys k` accept a row set in parentheses.
    let mut sql = String::new();
    let mut from = 0;
    for place in honeyflow_store::keys::scan(statement).places {
        sql.push_str(&statement[from..place.start]);
        sql.push_str("(select null)");
        from = place.end;
    }
    sql.push_str(&statement[from..]);
    let parsed = Parser::parse_sql(&SQLiteDialect {}, &sql).map_err(|error| error.to_string())?;
    let mut finder = Finder::default();
    let _ = parsed.visit(&mut finder);
    let Finder { mut reads, defined } = finder;
    reads.names.retain(|(_, table)| !defined.contains(&table.to_ascii_lowercase()));
    for (_, table) in &reads.names {
        if !reads.tables.iter().any(|known| known.eq_ignore_ascii_case(table)) {
            reads.tables.push(table.clone());
        }
    }
    Ok(reads)
}

#[derive(Default)]
struct Finder {
    reads: Reads,
    /// Names that the statement itself defines with `with`.
    defined: BTreeSet<String>,
}

impl Visitor for Finder {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        for table in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.defined.insert(table.alias.name.value.to_ascii_lowercase());
        }
        if let SetExpr::Select(select) = &*query.body {
            let star = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
            self.reads.everything |= select.projection.iter().any(star);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, alias, args: None, .. } = factor
            && let Some(table) = name.0.last().and_then(|part| part.as_ident())
        {
            let called = alias.as_ref().map_or(&table.value, |alias| &alias.name.value);
            self.reads.names.push((called.clone(), table.value.clone()));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        match expression {
            Expr::Identifier(column) => {
                self.reads.columns.insert((None, column.value.to_ascii_lowercase()));
            }
            Expr::CompoundIdentifier(parts) => {
                if let [.., table, column] = &parts[..] {
                    self.reads.columns.insert((Some(table.value.clone()), column.value.to_ascii_lowercase()));
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_25_tables_and_columns_are_found() {
        let reads = reads(
            "select b.id, b.title, p.name as publisher,
               (select json_group_array(a.name order by a.name) from book_author ba join author a on a.id = ba.author_id where ba.book_id = b.id) as authors
             from book b left join publisher p on p.id = b.publisher_id where b.id in $keys",
        )
        .unwrap();
        let mut tables = reads.tables.clone();
        tables.sort();
        assert_eq!(tables, ["author", "book", "book_author", "publisher"]);
        assert!(reads.uses("book", "publisher_id") && reads.uses("publisher", "name") && reads.uses("author", "name"));
        assert!(!reads.uses("publisher", "city") && !reads.uses("book", "name"));
    }

    #[test]
    fn ob_25_hidden_tables_are_found() {
        let sql = "with recent as (select id from sale) select id, title, exists (select 1 from stock where stock.book = book.id)
                   from book join $keys k on k.id = book.id where id in (select id from recent)";
        let mut tables = reads(sql).unwrap().tables;
        tables.sort();
        assert_eq!(tables, ["book", "sale", "stock"]);
        assert!(reads("select * from book where id in $keys").unwrap().uses("book", "anything"));
        assert!(reads("selec").is_err());
    }
}

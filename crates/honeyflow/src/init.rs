//! `init`: proposes a configuration from the schema of a database. Every table with a key becomes an entity. Parents
//! are embedded over one foreign key, link tables as lists. Skipped tables and columns are listed with the reason.
//!
//! Pure, except for [`RowInspector`]: it turns a catalogue into a proposal. [`write`] writes the file.

mod column;
mod embed;
mod names;
mod sql;
#[cfg(test)]
mod tests;
pub mod write;

use honeyflow_store::{
    Catalogue,
    catalogue::{Column, Table},
};

use crate::config::FieldType;
pub use column::Class;
use embed::{Link, links_of, parents_of};
use names::{Aliases, FieldNames};

/// Inspects rows, because SQLite does not enforce declared types.
pub trait RowInspector {
    /// Checks that the column can be part of a key; the error says why not.
    fn key(&self, table: &Table, column: &str) -> Result<(), String>;
    /// Whether the existing values are of this class.
    fn fits(&self, table: &Table, column: &str, class: Class) -> bool;
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Proposal {
    pub entities: Vec<Entity>,
    pub skipped: Vec<SkippedItem>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entity {
    pub name: String,
    pub table: String,
    pub key: Vec<String>,
    pub columns: Vec<String>,
    pub json: Vec<String>,
    pub document: String,
    pub fields: Vec<(String, FieldType)>,
    pub edges: Vec<Edge>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    pub table: String,
    pub columns: Vec<String>,
    pub by: EdgeBy,
    /// A short comment on its purpose.
    pub why: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EdgeBy {
    Key(Vec<String>),
    To(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SkippedItem {
    pub what: String,
    pub why: String,
}

/// Proposes entities for the tables of the catalogue.
pub fn propose(catalogue: &Catalogue, rows: &dyn RowInspector) -> Proposal {
    let mut proposal = Proposal::default();
    let schema = Schema { catalogue, rows, links: links_of(catalogue, rows) };
    let mut chosen: Vec<&Table> = Vec::new();
    for table in &catalogue.tables {
        match schema.refusal(table) {
            None => chosen.push(table),
            Some(why) => proposal.skipped.push(SkippedItem { what: table.name.clone(), why }),
        }
    }
    let named = names::of_tables(&chosen, catalogue);
    for (table, name) in chosen.into_iter().zip(named) {
        let entity = schema.entity(table, name, &mut proposal.skipped);
        proposal.entities.push(entity);
    }
    proposal
}

pub(crate) struct Schema<'a> {
    pub catalogue: &'a Catalogue,
    pub rows: &'a dyn RowInspector,
    pub links: Vec<Link<'a>>,
}

impl<'a> Schema<'a> {
    /// The reason why the table does not become an entity; none if it does.
    fn refusal(&self, table: &Table) -> Option<String> {
        if table.view {
            return Some("a view: only tables can be captured".into());
        }
        if names::is_bookkeeping(&table.name) {
            return Some("a table of a migration tool".into());
        }
        let link = self.links.iter().find(|link| link.table.name == table.name);
        if let Some(link) = link.filter(|link| link.bare) {
            let (one, other) = (&link.ends[0].table, &link.ends[1].table);
            return Some(if one == other {
                format!("a link table: its rows become a list in {one}")
            } else {
                format!("a link table: its rows become lists in {one} and {other}")
            });
        }
        if table.primary_key().is_empty() {
            return Some("no primary key".into());
        }
        unfit_key(table, self.rows)
    }

    fn entity(&self, table: &'a Table, name: String, skipped: &mut Vec<SkippedItem>) -> Entity {
        let key: Vec<String> = table.primary_key().iter().map(|column| column.name.clone()).collect();
        let mut draft = Draft {
            aliases: Aliases::new(&table.name),
            field_names: FieldNames::new(table.columns.iter().map(|column| column.name.as_str())),
            select: Vec::new(),
            joins: Vec::new(),
            columns: Vec::new(),
            json: Vec::new(),
            fields: Vec::new(),
            edges: Vec::new(),
        };
        for column in &table.columns {
            self.own_column(table, column, &mut draft, skipped);
        }
        for parent in parents_of(self, table, skipped) {
            parent.embed(table, &mut draft);
        }
        for link in self.links.iter().filter(|link| link.table.name != table.name) {
            link.embed(table, &mut draft);
        }
        Entity {
            name,
            table: table.name.clone(),
            document: sql::document(table, &draft),
            columns: draft.columns,
            json: draft.json,
            fields: draft.fields,
            edges: draft.edges,
            key,
        }
    }

    fn own_column(&self, table: &Table, column: &Column, draft: &mut Draft, skipped: &mut Vec<SkippedItem>) {
        let in_key = column.key_position.is_some();
        let place = format!("{}.{}", table.name, column.name);
        let class = column::class(table, column, self.rows);
        if !in_key && names::is_secret(&column.name) {
            skipped.push(SkippedItem { what: place, why: "it looks like a secret".into() });
            return;
        }
        if !in_key && class == Class::Blob {
            skipped.push(SkippedItem { what: place, why: "binary data is not searchable".into() });
            return;
        }
        let field = if in_key || names::is_plain(&column.name) {
            column.name.clone()
        } else {
            draft.field_names.reserve(&names::plain(&column.name))
        };
        let written = format!("{}.{}", draft.aliases.own, sql::identifier(&column.name));
        let shown = if field == column.name { written } else { format!("{written} as {}", sql::identifier(&field)) };
        draft.select.push(shown);
        if !in_key {
            draft.columns.push(column.name.clone());
        }
        match class {
            Class::Json => draft.json.push(field),
            Class::Field(kind) if !field.starts_with(['_', '-']) => draft.fields.push((field, kind)),
            Class::Field(_) | Class::Blob => {}
        }
    }
}

/// The reason why the table's primary key cannot be used; none if it can.
fn unfit_key(table: &Table, rows: &dyn RowInspector) -> Option<String> {
    table.primary_key().iter().find_map(|column| rows.key(table, &column.name).err())
}

/// An entity under construction.
pub(crate) struct Draft {
    pub aliases: Aliases,
    pub field_names: FieldNames,
    pub select: Vec<String>,
    pub joins: Vec<String>,
    pub columns: Vec<String>,
    pub json: Vec<String>,
    pub fields: Vec<(String, FieldType)>,
    pub edges: Vec<Edge>,
}

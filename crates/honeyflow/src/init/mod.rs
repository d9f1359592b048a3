//! `init`: a proposal made from what the database says about itself. Every table with a key becomes an entity; parents
//! are embedded one hop far, link tables as lists; what is left out is named with its reason.
//!
//! Pure but for [`Look`]: the catalogue in, a proposal out. [`write`] makes the file of it.

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
use names::{Aliases, Taken};

/// What only the rows can tell: SQLite's declared types promise nothing.
pub trait Look {
    /// Whether the column can be part of a key; else why not.
    fn key(&self, table: &Table, column: &str) -> Result<(), String>;
    /// Whether the values that are there fit.
    fn fits(&self, table: &Table, column: &str, class: Class) -> bool;
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Proposal {
    pub entities: Vec<Entity>,
    pub skipped: Vec<Skipped>,
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
    pub by: By,
    /// What it is for, in a few words.
    pub why: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum By {
    Key(Vec<String>),
    To(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skipped {
    pub what: String,
    pub why: String,
}

pub fn propose(catalogue: &Catalogue, look: &dyn Look) -> Proposal {
    let mut proposal = Proposal::default();
    let schema = Schema { catalogue, look, links: links_of(catalogue, look) };
    let mut chosen: Vec<&Table> = Vec::new();
    for table in &catalogue.tables {
        match schema.refusal(table) {
            None => chosen.push(table),
            Some(why) => proposal.skipped.push(Skipped { what: table.name.clone(), why }),
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
    pub look: &'a dyn Look,
    pub links: Vec<Link<'a>>,
}

impl<'a> Schema<'a> {
    /// Why the table is no entity.
    fn refusal(&self, table: &Table) -> Option<String> {
        if table.view {
            return Some("a view: it has no rows of its own that could be captured".into());
        }
        if names::is_bookkeeping(&table.name) {
            return Some("the bookkeeping of a migration tool".into());
        }
        let link = self.links.iter().find(|link| link.table.name == table.name);
        if let Some(link) = link.filter(|link| link.bare) {
            let (one, other) = (&link.ends[0].table, &link.ends[1].table);
            return Some(if one == other {
                format!("a link table: its rows stand as a list in {one}")
            } else {
                format!("a link table: its rows stand as lists in {one} and {other}")
            });
        }
        if table.primary_key().is_empty() {
            return Some("no primary key: nothing names a row".into());
        }
        unfit_key(table, self.look)
    }

    fn entity(&self, table: &'a Table, name: String, skipped: &mut Vec<Skipped>) -> Entity {
        let key: Vec<String> = table.primary_key().iter().map(|column| column.name.clone()).collect();
        let mut draft = Draft {
            aliases: Aliases::new(&table.name),
            taken: Taken::new(table.columns.iter().map(|column| column.name.as_str())),
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

    fn own_column(&self, table: &Table, column: &Column, draft: &mut Draft, skipped: &mut Vec<Skipped>) {
        let in_key = column.key_position.is_some();
        let place = format!("{}.{}", table.name, column.name);
        let class = column::class(table, column, self.look);
        if !in_key && names::is_secret(&column.name) {
            skipped.push(Skipped { what: place, why: "it looks like a secret".into() });
            return;
        }
        if !in_key && class == Class::Blob {
            skipped.push(Skipped { what: place, why: "binary data is not searched".into() });
            return;
        }
        let field = if in_key || names::is_plain(&column.name) {
            column.name.clone()
        } else {
            draft.taken.free(&names::plain(&column.name))
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

/// Why the table's key cannot be one.
fn unfit_key(table: &Table, look: &dyn Look) -> Option<String> {
    table.primary_key().iter().find_map(|column| look.key(table, &column.name).err())
}

/// A document being put together.
pub(crate) struct Draft {
    pub aliases: Aliases,
    pub taken: Taken,
    pub select: Vec<String>,
    pub joins: Vec<String>,
    pub columns: Vec<String>,
    pub json: Vec<String>,
    pub fields: Vec<(String, FieldType)>,
    pub edges: Vec<Edge>,
}

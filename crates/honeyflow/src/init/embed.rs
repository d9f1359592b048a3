//! Embeds other tables in a document: the names of its parents, and lists through link tables. Each embedded table gets
//! the edges by which its changes update the document.

use honeyflow_store::{
    Catalogue,
    catalogue::{Column, ForeignKey, Table},
};

use super::{Draft, Edge, EdgeBy, RowInspector, Schema, SkippedItem, names, names::Titles, sql, unfit_key};
use crate::config::FieldType;

/// A table to which a foreign key refers.
pub struct Parent<'a> {
    table: &'a Table,
    titles: Titles<'a>,
    /// The foreign key's columns in the child, in the order of the parent's key.
    columns: Vec<String>,
    base: String,
}

/// A link table: two foreign keys and at most two other columns.
pub struct Link<'a> {
    pub table: &'a Table,
    pub ends: [End<'a>; 2],
    /// The table contains only the link, so it does not become an entity.
    pub bare: bool,
    position: Option<&'a Column>,
}

pub struct End<'a> {
    pub table: String,
    titles: Titles<'a>,
    key: Vec<String>,
    /// The foreign key's columns in the link table, in the order of the key.
    columns: Vec<String>,
    base: String,
}

/// The columns of the foreign key in the order of the parent's primary key; none if it refers to other columns.
fn by_primary_key(key: &ForeignKey, parent: &Table) -> Option<Vec<String>> {
    let primary = parent.primary_key();
    if primary.is_empty() || primary.len() != key.columns.len() {
        return None;
    }
    primary
        .iter()
        .map(|column| {
            let at = key.references.iter().position(|name| name.eq_ignore_ascii_case(&column.name))?;
            key.columns.get(at).cloned()
        })
        .collect()
}

fn base(key: &ForeignKey, parent: &Table) -> String {
    match &key.columns[..] {
        [only] => names::base(only),
        _ => names::plain(&parent.name),
    }
}

pub(crate) fn parents_of<'a>(schema: &Schema<'a>, table: &Table, skipped: &mut Vec<SkippedItem>) -> Vec<Parent<'a>> {
    let mut parents = Vec::new();
    // In the order of the table's columns, because that order is familiar to its users.
    let place = |key: &&ForeignKey| table.columns.iter().position(|column| key.columns.contains(&column.name));
    let mut keys: Vec<&ForeignKey> = table.foreign_keys.iter().collect();
    keys.sort_by_key(place);
    for key in keys {
        let mut skip =
            |why: String| skipped.push(SkippedItem { what: format!("{}.{}", table.name, key.columns.join(", ")), why });
        let Some(parent) = schema.catalogue.table(&key.table) else {
            skip(format!("it refers to a table that does not exist: {}", key.table));
            continue;
        };
        let Some(columns) = by_primary_key(key, parent) else {
            skip(format!("it does not refer to the primary key of {}", parent.name));
            continue;
        };
        if let Some(why) = unfit_key(parent, schema.rows) {
            skip(why);
            continue;
        }
        let titles = names::titles(parent);
        // A parent without a name has nothing to embed; its key is already in the child.
        if !titles.columns.is_empty() {
            parents.push(Parent { table: parent, titles, columns, base: base(key, parent) });
        }
    }
    parents
}

impl Parent<'_> {
    pub fn embed(&self, child: &Table, draft: &mut Draft) {
        let alias = draft.aliases.next(&self.table.name);
        let key: Vec<String> = self.table.primary_key().iter().map(|column| column.name.clone()).collect();
        let own = draft.aliases.own.clone();
        let name = sql::identifier(&self.table.name);
        draft.joins.push(format!("left join {name} {alias} on {}", sql::equal(&alias, &key, &own, &self.columns)));
        for title in &self.titles.columns {
            let whole = self.titles.whole && draft.field_names.is_free(&self.base);
            let wanted = if whole { self.base.clone() } else { format!("{}_{}", self.base, names::plain(&title.name)) };
            let field = draft.field_names.reserve(&wanted);
            draft.select.push(format!("{alias}.{} as {}", sql::identifier(&title.name), sql::identifier(&field)));
            draft.fields.push((field, FieldType::Text));
        }
        let child_key: Vec<String> = child.primary_key().iter().map(|column| column.name.clone()).collect();
        draft.edges.push(Edge {
            table: self.table.name.clone(),
            columns: names_of(&self.titles.columns),
            by: EdgeBy::To(sql::reached(&child.name, &child_key, &self.columns, &key)),
            why: format!("its {} is part of these documents", names_of(&self.titles.columns).join(", ")),
        });
    }
}

pub fn links_of<'a>(catalogue: &'a Catalogue, rows: &dyn RowInspector) -> Vec<Link<'a>> {
    catalogue.tables.iter().filter_map(|table| link_of(catalogue, table, rows)).collect()
}

/// A link table may have a few columns besides the two foreign keys, such as a position or a role.
const OTHER_COLUMNS_MAX: usize = 2;

fn link_of<'a>(catalogue: &'a Catalogue, table: &'a Table, rows: &dyn RowInspector) -> Option<Link<'a>> {
    let [one, other] = &table.foreign_keys[..] else { return None };
    let linking: Vec<&String> = one.columns.iter().chain(&other.columns).collect();
    let key: Vec<&str> = table.primary_key().iter().map(|column| column.name.as_str()).collect();
    let same = |columns: &[&str]| {
        columns.len() == linking.len() && linking.iter().all(|name| columns.contains(&name.as_str()))
    };
    let own_number = key.len() == 1 && !linking.iter().any(|name| *name == key[0]);
    let unique =
        table.unique.iter().filter_map(honeyflow_store::catalogue::Unique::columns).any(|columns| same(&columns));
    let others: Vec<&Column> = table
        .columns
        .iter()
        .filter(|column| !linking.contains(&&column.name))
        .filter(|column| !own_number || column.key_position.is_none())
        .collect();
    let keyed = same(&key) || (own_number && (unique || others.is_empty())) || (key.is_empty() && others.is_empty());
    if table.view || !keyed || others.len() > OTHER_COLUMNS_MAX || unfit_key(table, rows).is_some() {
        return None;
    }
    let end = |key: &ForeignKey| {
        let end = catalogue.table(&key.table).filter(|end| unfit_key(end, rows).is_none())?;
        Some(End {
            table: end.name.clone(),
            titles: names::titles(end),
            key: end.primary_key().iter().map(|column| column.name.clone()).collect(),
            columns: by_primary_key(key, end)?,
            base: base(key, end),
        })
    };
    let ends = [end(one)?, end(other)?];
    let position = others.iter().find(|column| names::is_position(&column.name)).copied();
    let bare = others.iter().all(|column| names::is_position(&column.name));
    Some(Link { table, ends, bare, position })
}

impl Link<'_> {
    /// If `table` is at one end of the link, embeds a list of the rows at the other end.
    pub fn embed(&self, table: &Table, draft: &mut Draft) {
        for (here, there) in [(0, 1), (1, 0)] {
            let (here, there) = (&self.ends[here], &self.ends[there]);
            if here.table.eq_ignore_ascii_case(&table.name) && !there.titles.columns.is_empty() {
                self.embed_end(here, there, draft);
            }
        }
    }

    fn embed_end(&self, here: &End<'_>, there: &End<'_>, draft: &mut Draft) {
        let own = draft.aliases.own.clone();
        let link = draft.aliases.next(&self.table.name);
        let far = draft.aliases.next(&there.table);
        let titles: Vec<String> =
            there.titles.columns.iter().map(|title| format!("{far}.{}", sql::identifier(&title.name))).collect();
        let value = match &titles[..] {
            [only] => only.clone(),
            several => format!("concat_ws(' ', {})", several.join(", ")),
        };
        // The same rows must always give the same list.
        let order = match self.position {
            Some(position) => format!("{link}.{}, {value}", sql::identifier(&position.name)),
            None => value.clone(),
        };
        let field = draft.field_names.reserve(&names::plural(&there.base));
        draft.select.push(format!(
            "(select json_group_array({value} order by {order})\n          from {} {link} join {} {far} on {} where {}) as {}",
            sql::identifier(&self.table.name),
            sql::identifier(&there.table),
            sql::equal(&far, &there.key, &link, &there.columns),
            sql::equal(&link, &here.columns, &own, &here.key),
            sql::identifier(&field),
        ));
        draft.json.push(field.clone());
        draft.fields.push((field.clone(), FieldType::Text));
        let used = there.columns.iter().cloned().chain(self.position.map(|column| column.name.clone()));
        draft.edges.push(Edge {
            table: self.table.name.clone(),
            columns: used.filter(|column| !here.columns.contains(column)).collect(),
            by: EdgeBy::Key(here.columns.clone()),
            why: format!("a row of this table adds to the list `{field}` and contains the key of the document"),
        });
        draft.edges.push(Edge {
            table: there.table.clone(),
            columns: names_of(&there.titles.columns),
            by: EdgeBy::To(sql::reached(&self.table.name, &here.columns, &there.columns, &there.key)),
            why: format!("its {} is part of the list `{field}`", names_of(&there.titles.columns).join(", ")),
        });
    }
}

fn names_of(columns: &[&Column]) -> Vec<String> {
    columns.iter().map(|column| column.name.clone()).collect()
}

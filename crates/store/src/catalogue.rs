//! The description of a database's tables: plain data that `init`, `check` and capture read. Each adapter fills it.
//!
//! It leaves out Honeyflow's own tables, the database's internal tables and virtual tables.

/// The tables of a database. Names are compared as in SQL: ASCII case does not matter.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Catalogue {
    pub tables: Vec<Table>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Table {
    pub name: String,
    /// All columns in the order of the table, generated columns included.
    pub columns: Vec<Column>,
    pub foreign_keys: Vec<ForeignKey>,
    /// Unique constraints and unique indexes, including that of the primary key unless the key is the rowid itself.
    pub unique: Vec<Unique>,
    /// SQLite: rows have a hidden number, the rowid.
    pub rowid: bool,
    pub view: bool,
    /// SQLite: the table is STRICT, so SQLite enforces the types of its columns.
    pub strict: bool,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Column {
    pub name: String,
    /// The type as declared; empty if the column declares none.
    pub declared_type: String,
    pub not_null: bool,
    /// The column's position within the primary key, counted from 0.
    pub key_position: Option<u16>,
    pub generated: bool,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ForeignKey {
    pub columns: Vec<String>,
    pub table: String,
    /// The referenced columns, in the same order; the other table's primary key if the constraint names no columns.
    pub references: Vec<String>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Unique {
    pub parts: Vec<UniquePart>,
    /// The condition of a partial index, as written.
    pub filter: Option<String>,
    /// True for the primary key.
    pub primary: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UniquePart {
    pub value: UniqueValue,
    /// The collation that compares texts; `BINARY` unless declared otherwise.
    pub collation: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UniqueValue {
    Column(String),
    /// The expression as written in the index.
    Expression(String),
}

impl Catalogue {
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name.eq_ignore_ascii_case(name))
    }

    /// Returns the foreign keys of all tables that reference `table`, each with the table that declares it.
    pub fn referring_to<'a>(&'a self, table: &'a str) -> impl Iterator<Item = (&'a Table, &'a ForeignKey)> {
        self.tables.iter().flat_map(move |from| {
            from.foreign_keys
                .iter()
                .filter(move |key| key.table.eq_ignore_ascii_case(table))
                .map(move |key| (from, key))
        })
    }
}

impl Table {
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name))
    }

    /// Returns the columns of the primary key, in key order; an empty list if the table has no primary key.
    pub fn primary_key(&self) -> Vec<&Column> {
        let mut key: Vec<_> = self.columns.iter().filter(|column| column.key_position.is_some()).collect();
        key.sort_by_key(|column| column.key_position);
        key
    }

    /// Returns the foreign key that consists of exactly these columns, in any order.
    pub fn foreign_key(&self, columns: &[String]) -> Option<&ForeignKey> {
        self.foreign_keys.iter().find(|key| {
            key.columns.len() == columns.len()
                && key.columns.iter().all(|mine| columns.iter().any(|column| column.eq_ignore_ascii_case(mine)))
        })
    }
}

impl Unique {
    /// Returns the columns, if the index contains only columns (no expression) and covers every row (no filter).
    pub fn columns(&self) -> Option<Vec<&str>> {
        if self.filter.is_some() {
            return None;
        }
        self.parts
            .iter()
            .map(|part| match &part.value {
                UniqueValue::Column(name) => Some(name.as_str()),
                UniqueValue::Expression(_) => None,
            })
            .collect()
    }
}

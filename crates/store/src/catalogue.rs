//! What a database says about its own tables: plain data that `init`, `check` and capture read. Each adapter fills it.
//!
//! Our own tables, the database's internal ones and virtual tables are not in it.

/// Names are compared as SQL does: without regard to ASCII case.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Catalogue {
    pub tables: Vec<Table>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Table {
    pub name: String,
    /// In the order of the table; generated columns are among them.
    pub columns: Vec<Column>,
    pub foreign_keys: Vec<ForeignKey>,
    /// Constraints and indexes that keep rows apart, that of the primary key too unless it is the rowid itself.
    pub unique: Vec<Unique>,
    /// SQLite: rows have a hidden number.
    pub rowid: bool,
    pub view: bool,
    /// SQLite: types of columns are enforced.
    pub strict: bool,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Column {
    pub name: String,
    /// As declared; empty where nothing is.
    pub declared_type: String,
    pub not_null: bool,
    /// From 0, within the primary key.
    pub key_position: Option<u16>,
    pub generated: bool,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ForeignKey {
    pub columns: Vec<String>,
    pub table: String,
    /// The other table's columns, in the same order; its primary key where none were named.
    pub references: Vec<String>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Unique {
    pub parts: Vec<UniquePart>,
    /// Condition of a partial index, as written.
    pub filter: Option<String>,
    /// It is the primary key.
    pub primary: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UniquePart {
    pub value: UniqueValue,
    /// How texts are compared; `BINARY` unless declared otherwise.
    pub collation: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UniqueValue {
    Column(String),
    /// As written in the index.
    Expression(String),
}

impl Catalogue {
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name.eq_ignore_ascii_case(name))
    }

    /// Foreign keys of any table that lead to `table`, with the table they stand in.
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

    /// Columns of the primary key, in its order; none where there is no key.
    pub fn primary_key(&self) -> Vec<&Column> {
        let mut key: Vec<_> = self.columns.iter().filter(|column| column.key_position.is_some()).collect();
        key.sort_by_key(|column| column.key_position);
        key
    }

    /// The foreign key made of exactly these columns, in any order.
    pub fn foreign_key(&self, columns: &[String]) -> Option<&ForeignKey> {
        self.foreign_keys.iter().find(|key| {
            key.columns.len() == columns.len()
                && key.columns.iter().all(|mine| columns.iter().any(|column| column.eq_ignore_ascii_case(mine)))
        })
    }
}

impl Unique {
    /// Its columns, if it is made of columns alone and holds for every row.
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

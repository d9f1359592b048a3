//! Chooses readable names for entities, fields and aliases, and guesses from a name what its column contains.

use std::collections::HashSet;

use honeyflow_store::{
    Catalogue,
    catalogue::{Column, Table},
};

use super::column::is_text;
use crate::config::name_of;

/// A name for each table, all different. No entity gets the name of another table, because events may name both.
pub fn of_tables(tables: &[&Table], catalogue: &Catalogue) -> Vec<String> {
    let foreign = |name: &str, own: &Table| {
        catalogue.table(name).is_some_and(|table| !table.name.eq_ignore_ascii_case(&own.name))
    };
    let mut taken: HashSet<String> = HashSet::new();
    let mut names = Vec::with_capacity(tables.len());
    for table in tables {
        let wanted = name_of(&table.name);
        let mut name = wanted.clone();
        let mut number = 2;
        while foreign(&name, table) || !taken.insert(name.clone()) {
            name = format!("{wanted}_{number}");
            number += 1;
        }
        names.push(name);
    }
    names
}

/// The names of a document's fields, which must be unique.
pub struct FieldNames(HashSet<String>);

impl FieldNames {
    pub fn new<'a>(names: impl Iterator<Item = &'a str>) -> FieldNames {
        FieldNames(names.map(str::to_ascii_lowercase).collect())
    }

    pub fn is_free(&self, name: &str) -> bool {
        !self.0.contains(&name.to_ascii_lowercase())
    }

    /// Reserves the name, or the name with a number if it is already in use.
    pub fn reserve(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        let mut number = 2;
        while !self.0.insert(name.to_ascii_lowercase()) {
            name = format!("{wanted}_{number}");
            number += 1;
        }
        name
    }
}

/// Short names of tables in a statement: initials, with a number if they are in use.
pub struct Aliases {
    pub own: String,
    used: HashSet<String>,
}

impl Aliases {
    pub fn new(table: &str) -> Aliases {
        // `k` is reserved for the row set of the keys.
        let mut aliases = Aliases { own: String::new(), used: HashSet::from(["k".to_owned()]) };
        aliases.own = aliases.next(table);
        aliases
    }

    pub fn next(&mut self, table: &str) -> String {
        let name = name_of(table);
        let initials: String = name.split('_').filter_map(|word| word.chars().next()).take(3).collect();
        let mut alias = initials.clone();
        let mut number = 2;
        while super::sql::is_keyword(&alias) || !self.used.insert(alias.clone()) {
            alias = format!("{initials}{number}");
            number += 1;
        }
        alias
    }
}

/// Whether the name can be used unchanged as a field name and in expressions.
pub fn is_plain(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

pub fn plain(name: &str) -> String {
    name_of(name)
}

/// `publisher_id` → `publisher`, `ArtistId` → `artist`.
pub fn base(column: &str) -> String {
    let stem = ["_id", "Id", "ID", "_uuid", "_key", "_fk"]
        .iter()
        .find_map(|suffix| column.strip_suffix(suffix).filter(|stem| !stem.is_empty()))
        .unwrap_or(column);
    name_of(stem)
}

pub fn plural(name: &str) -> String {
    let vowel_before_y = name.ends_with("ay") || name.ends_with("ey") || name.ends_with("oy") || name.ends_with("uy");
    match name {
        name if name.ends_with('y') && !vowel_before_y => format!("{}ies", &name[..name.len() - 1]),
        name if name.ends_with("ss") || name.ends_with('x') || name.ends_with("ch") || name.ends_with("sh") => {
            format!("{name}es")
        }
        name if name.ends_with('s') || name.ends_with("ed") => name.to_owned(),
        name => format!("{name}s"),
    }
}

/// Maximum number of text columns that describe a row without a name.
const TEXTS_MAX: usize = 3;

/// The columns that name a row for people.
pub struct Titles<'a> {
    pub columns: Vec<&'a Column>,
    /// There is one name, which can represent the row.
    pub whole: bool,
}

/// Finds the columns that name a row: its name or title, its first and last name, or its first text columns.
pub fn titles(table: &Table) -> Titles<'_> {
    const NAMES: [&str; 6] = ["name", "title", "label", "display_name", "full_name", "fullname"];
    const CALLED: [&str; 6] = ["username", "user_name", "subject", "email", "code", "sku"];
    let texts: Vec<&Column> = table
        .columns
        .iter()
        .filter(|column| is_text(column) && column.key_position.is_none() && !is_secret(&column.name))
        .filter(|column| !table.foreign_keys.iter().any(|key| key.columns.contains(&column.name)))
        .collect();
    let called = |wanted: &str| texts.iter().find(|column| column.name.eq_ignore_ascii_case(wanted)).copied();
    if let Some(name) = NAMES.iter().find_map(|name| called(name)) {
        return Titles { columns: vec![name], whole: true };
    }
    for [first, last] in [["first_name", "last_name"], ["firstname", "lastname"]] {
        if let (Some(first), Some(last)) = (called(first), called(last)) {
            return Titles { columns: vec![first, last], whole: false };
        }
    }
    let ends_well = |column: &&&Column| {
        let last = words(&column.name).pop().unwrap_or_default();
        last == "name" || last == "title"
    };
    if let Some(name) = CALLED.iter().find_map(|name| called(name)).or(texts.iter().find(ends_well).copied()) {
        return Titles { columns: vec![name], whole: true };
    }
    Titles { columns: texts.into_iter().take(TEXTS_MAX).collect(), whole: false }
}

/// The words of a name: `postalCode` and `postal_code` give the same words.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower_before = false;
    for character in name.chars() {
        if !character.is_ascii_alphanumeric() || (character.is_ascii_uppercase() && lower_before) {
            words.push(String::new());
        }
        lower_before = character.is_ascii_lowercase();
        if character.is_ascii_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.push(character.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether the column contains codes, which are searched as a whole, not by words.
pub fn is_code(name: &str) -> bool {
    const CODES: [&str; 28] = [
        "isbn", "issn", "ean", "sku", "code", "email", "mail", "status", "state", "type", "kind", "country",
        "currency", "uuid", "guid", "slug", "locale", "language", "lang", "phone", "fax", "zip", "postal", "postcode",
        "iso", "gender", "id", "url",
    ];
    words(name).last().is_some_and(|word| CODES.contains(&word.as_str()))
}

pub fn is_secret(name: &str) -> bool {
    const SECRETS: [&str; 7] = ["password", "passwd", "pwd", "passphrase", "secret", "token", "apikey"];
    let words = words(name);
    words.iter().any(|word| SECRETS.contains(&word.as_str()))
        || words.windows(2).any(|pair| matches!([&*pair[0], &*pair[1]], ["api" | "private", "key"]))
}

/// Whether the column orders the rows of a link table.
pub fn is_position(name: &str) -> bool {
    const POSITIONS: [&str; 9] = ["position", "pos", "sort", "order", "ordinal", "rank", "seq", "sequence", "idx"];
    words(name).iter().any(|word| POSITIONS.contains(&word.as_str()))
}

/// Whether the table belongs to a migration tool.
pub fn is_bookkeeping(name: &str) -> bool {
    const TABLES: [&str; 11] = [
        "schema_migrations",
        "ar_internal_metadata",
        "django_migrations",
        "alembic_version",
        "knex_migrations",
        "knex_migrations_lock",
        "flyway_schema_history",
        "_sqlx_migrations",
        "_prisma_migrations",
        "__diesel_schema_migrations",
        "__efmigrationshistory",
    ];
    TABLES.contains(&name.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_well() {
        assert_eq!(base("publisher_id"), "publisher");
        assert_eq!(base("ArtistId"), "artist");
        assert_eq!(base("id"), "id");
        assert_eq!(plural("author"), "authors");
        assert_eq!(plural("category"), "categories");
        assert_eq!(plural("class"), "classes");
        assert_eq!(plural("key"), "keys");
        assert!(is_code("postalCode") && is_code("ISBN") && is_code("order_status") && !is_code("title"));
        assert!(
            is_secret("password_hash") && is_secret("ApiKey") && is_secret("reset_token") && !is_secret("tokenizer")
        );
    }

    #[test]
    fn aliases_are_no_keywords_and_all_different() {
        let mut aliases = Aliases::new("book");
        assert_eq!(aliases.own, "b");
        assert_eq!(aliases.next("book_author"), "ba");
        assert_eq!(aliases.next("brand"), "b2");
        assert_eq!(aliases.next("order_note"), "on2", "`on` is a keyword");
        assert_eq!(aliases.next("keeper"), "k2", "`k` is the keys");
    }
}

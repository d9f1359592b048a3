//! Reads the catalogue from the database's pragmas.

mod index;

use honeyflow_runtime::Failure;
use honeyflow_store::{
    Catalogue, KeyType,
    catalogue::{Column, ForeignKey, Table, Unique, UniquePart, UniqueValue},
};
use rusqlite::{Connection, Row, params};

use crate::{capture::quote::identifier, codes, outcome};

/// Returns the tables and views of the application, ordered by name.
pub fn read(connection: &Connection) -> Result<Catalogue, Failure> {
    let listed = query(
        connection,
        "select name, type, wr, strict from pragma_table_list
         where schema = 'main' and type in ('table', 'view')
           and name not like 'sqlite\\_%' escape '\\' and name not like 'honeyflow\\_%' escape '\\'
           and name not like 'hive\\_%' escape '\\'
         order by name",
        "",
        |row| {
            let view = row.get::<_, String>(1)? == "view";
            let rowid = !view && !row.get::<_, bool>(2)?;
            Ok(Table { name: row.get(0)?, view, rowid, strict: row.get(3)?, ..Table::default() })
        },
    )?;
    let mut tables = Vec::with_capacity(listed.len());
    for table in listed {
        tables.push(fill(connection, table)?);
    }
    let mut catalogue = Catalogue { tables };
    name_referenced_keys(&mut catalogue);
    Ok(catalogue)
}

fn fill(connection: &Connection, mut table: Table) -> Result<Table, Failure> {
    table.columns = query(
        connection,
        "select name, type, \"notnull\", pk, hidden from pragma_table_xinfo(?1) where hidden <> 1 order by cid",
        &table.name,
        |row| {
            let position: u16 = row.get(3)?;
            Ok(Column {
                name: row.get(0)?,
                declared_type: row.get(1)?,
                not_null: row.get(2)?,
                key_position: position.checked_sub(1),
                generated: row.get::<_, i64>(4)? != 0,
            })
        },
    )?;
    if !table.view {
        table.foreign_keys = foreign_keys(connection, &table.name)?;
        table.unique = unique(connection, &table.name)?;
    }
    Ok(table)
}

fn foreign_keys(connection: &Connection, table: &str) -> Result<Vec<ForeignKey>, Failure> {
    let rows = query(
        connection,
        "select id, \"table\", \"from\", \"to\" from pragma_foreign_key_list(?1) order by id, seq",
        table,
        |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, Option<String>>(3)?,
            ))
        },
    )?;
    let mut keys: Vec<(i64, ForeignKey)> = Vec::new();
    for (id, other, from, to) in rows {
        if keys.last().is_none_or(|(last, _)| *last != id) {
            keys.push((id, ForeignKey { table: other, ..ForeignKey::default() }));
        }
        if let Some((_, key)) = keys.last_mut() {
            key.columns.push(from);
            key.references.extend(to);
        }
    }
    Ok(keys.into_iter().map(|(_, key)| key).collect())
}

/// Fills in the referenced columns: `references publisher` without columns means its primary key.
fn name_referenced_keys(catalogue: &mut Catalogue) {
    let keys: Vec<(String, Vec<String>)> = catalogue
        .tables
        .iter()
        .map(|table| (table.name.clone(), table.primary_key().iter().map(|column| column.name.clone()).collect()))
        .collect();
    for key in catalogue.tables.iter_mut().flat_map(|table| &mut table.foreign_keys) {
        if key.references.is_empty()
            && let Some((_, primary)) = keys.iter().find(|(name, _)| name.eq_ignore_ascii_case(&key.table))
        {
            key.references.clone_from(primary);
        }
    }
}

fn unique(connection: &Connection, table: &str) -> Result<Vec<Unique>, Failure> {
    let indexes = query(
        connection,
        "select l.name, l.origin, m.sql from pragma_index_list(?1) l
         left join sqlite_master m on m.type = 'index' and m.name = l.name
         where l.\"unique\" order by l.seq desc",
        table,
        |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, Option<String>>(2)?)),
    )?;
    let mut all = Vec::with_capacity(indexes.len());
    for (name, origin, sql) in indexes {
        let written = sql.as_deref().and_then(index::parse);
        let parts = query(
            connection,
            "select cid, name, coll, seqno from pragma_index_xinfo(?1) where key = 1 order by seqno",
            &name,
            |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, Option<String>>(1)?,
                    row.get::<_, Option<String>>(2)?,
                    usize::from(row.get::<_, u16>(3)?),
                ))
            },
        )?;
        let parts = parts.into_iter().filter_map(|(cid, column, collation, position)| {
            let value = match column {
                Some(column) => UniqueValue::Column(column),
                // -2 marks an expression.
                None if cid == -2 => UniqueValue::Expression(written.as_ref()?.parts.get(position)?.clone()),
                None => return None,
            };
            Some(UniquePart { value, collation: collation.unwrap_or_else(|| "BINARY".to_owned()) })
        });
        let parts: Vec<_> = parts.collect();
        if !parts.is_empty() {
            all.push(Unique { parts, filter: written.and_then(|index| index.filter), primary: origin == "pk" });
        }
    }
    Ok(all)
}

/// Returns the key type of a declared type, by SQLite's rules of affinity. None: REAL, or the declared type is unclear.
pub fn declared_key_type(column: &Column) -> Option<KeyType> {
    let declared = column.declared_type.to_ascii_uppercase();
    let has = |words: &[&str]| words.iter().any(|word| declared.contains(word));
    if has(&["INT"]) {
        Some(KeyType::Integer)
    } else if has(&["CHAR", "CLOB", "TEXT"]) {
        Some(KeyType::Text)
    } else if has(&["BLOB"]) {
        Some(KeyType::Blob)
    } else if has(&["UUID", "GUID"]) {
        // NUMERIC by SQLite's rules, but a UUID is never meant as a number.
        Some(KeyType::Text)
    } else {
        None
    }
}

/// Returns the type of a key column, from its declaration and from the values of its rows. It refuses a column that
/// holds several types, or REAL, because one key would then have two texts.
pub fn key_type(connection: &Connection, table: &Table, column: &str) -> Result<KeyType, Failure> {
    let Some(found) = table.column(column) else {
        return Err(refused(table, column, "there is no such column"));
    };
    let declared = declared_key_type(found);
    let is_rowid = crate::capture::rowid_alias(table).is_some_and(|alias| alias.name == found.name);
    if let (Some(kind), true) = (declared, table.strict || is_rowid) {
        return Ok(kind);
    }
    let name = identifier(&found.name);
    let sql =
        format!("select distinct typeof({name}) from {} where {name} is not null limit 3", identifier(&table.name));
    let types = query(connection, &sql, "", |row| row.get::<_, String>(0))?;
    let held = match types.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => declared,
        ["integer"] => Some(KeyType::Integer),
        ["text"] => Some(KeyType::Text),
        ["blob"] => Some(KeyType::Blob),
        ["real"] => return Err(refused(table, column, "it holds REAL values, which have more than one text")),
        _ => return Err(refused(table, column, &format!("its rows hold several types ({})", types.join(", ")))),
    };
    match (declared, held) {
        (_, None) => Err(refused(table, column, &format!("its declared type `{}` is unclear", found.declared_type))),
        (Some(declared), Some(held)) if declared != held => Err(refused(
            table,
            column,
            &format!("it is declared `{}` and holds {}", found.declared_type, types.join(", ")),
        )),
        (_, Some(kind)) => Ok(kind),
    }
}

fn refused(table: &Table, column: &str, why: &str) -> Failure {
    let table = &table.name;
    Failure::fatal(
        codes::KEY_TYPE,
        format!("`{table}.{column}` cannot be a key: {why}; name another key, or fix the column"),
    )
}

fn query<T>(
    connection: &Connection,
    sql: &str,
    name: &str,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Failure> {
    let rows = || -> rusqlite::Result<Vec<T>> {
        let mut statement = connection.prepare_cached(sql)?;
        if statement.parameter_count() == 0 {
            return statement.query_map([], read)?.collect();
        }
        statement.query_map(params![name], read)?.collect()
    };
    rows().map_err(|error| outcome::failure(&error, "read the catalogue"))
}

//! Checks whether the table fits the documents: when the sink is opened, and again when the cluster refuses a
//! statement. It reports all misfits together, each with the configuration key that it is about.

use std::time::Duration;

use honeyflow_cassandra::{Session, Type, Value, session};
use honeyflow_runtime::Failure;
use honeyflow_workflow::problem::nearest;
use serde_json::{Map, Value as Json};

use crate::{
    DELETED, VERSION, codes,
    config::Options,
    decode, encode, key, outcome,
    statement::{Statements, create_delete_table, quoted},
};

/// The checked table and the statements of the sink.
pub struct Table {
    /// The columns of the primary key, in the order of the key's parts.
    pub key: Vec<KeyColumn>,
    /// The other columns, without the stamp.
    pub columns: Vec<Column>,
    pub statements: Statements,
}

pub struct KeyColumn {
    pub name: String,
    pub field: String,
    pub kind: Type,
    pub in_partition: bool,
}

pub struct Column {
    pub name: String,
    pub kind: Type,
    pub content: ColumnContent,
}

#[derive(PartialEq, Eq, Debug)]
pub enum ColumnContent {
    Field(String),
    /// The whole document, as JSON text.
    Document,
}

/// A property of the table that does not fit the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misfit {
    /// The key of the sink's configuration section that it is about: `table`, `column.title`, `document`.
    pub at: String,
    pub code: &'static str,
    pub message: String,
    pub help: String,
}

impl Misfit {
    fn new(at: impl Into<String>, code: &'static str, message: String, help: impl Into<String>) -> Misfit {
        Misfit { at: at.into(), code, message, help: help.into() }
    }
}

/// Why a sink cannot be used.
#[derive(Debug)]
pub enum TableError {
    /// The cluster could not be asked about the table.
    NotChecked(Failure),
    Misfits(Vec<Misfit>),
}

impl TableError {
    pub fn failure(self) -> Failure {
        match self {
            TableError::NotChecked(failure) => failure,
            TableError::Misfits(misfits) => {
                let all: Vec<_> = misfits.iter().map(|misfit| format!("{}; {}", misfit.message, misfit.help)).collect();
                Failure::fatal(codes::CASSANDRA_TABLE, all.join(". "))
            }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn not_checked(error: session::Error) -> TableError {
    TableError::NotChecked(outcome::from_error(&error))
}

/// A column as the cluster describes it.
struct DescribedColumn {
    name: String,
    kind: Kind,
    position: i32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Partition,
    Clustering,
    Static,
    Regular,
}

impl Table {
    /// Compares the cluster's schema with the configuration; changes nothing.
    pub async fn look(session: &Session, options: &Options) -> Result<Shape, TableError> {
        let described = described(session, options).await?;
        if described.is_empty() {
            return Err(TableError::Misfits(vec![unknown_table(session, options).await?]));
        }
        let names = described.iter().map(|column| quoted(&column.name)).collect::<Vec<_>>().join(", ");
        let (keyspace, table) = (quoted(&options.keyspace), quoted(&options.table));
        let select = session.prepare(&format!("SELECT {names} FROM {keyspace}.{table}")).await.map_err(not_checked)?;
        let columns = select.anywhere().map(|prepared| prepared.result.columns.clone()).unwrap_or_default();
        let kind = |name: &str| columns.iter().find(|column| column.name == name).map(|column| column.kind.clone());
        let typed = described.iter().filter_map(|one| Some((one.name.as_str(), one.kind, kind(&one.name)?)));
        fit(options, &typed.collect::<Vec<_>>()).map_err(TableError::Misfits)
    }

    pub async fn open(session: &Session, options: &Options) -> Result<Table, TableError> {
        let Shape { key, columns } = Table::look(session, options).await?;
        ensure_delete_table(session, options).await?;
        let key_names: Vec<String> = key.iter().map(|column| column.name.clone()).collect();
        let column_names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        let by = tokio::time::Instant::now() + USABLE_WITHIN;
        loop {
            match Statements::prepare(session, options, &key_names, &column_names).await.map_err(not_checked) {
                Ok(statements) => return Ok(Table { key, columns, statements }),
                // Another node may be creating the table of deletes: the schema lists it before it can be used.
                Err(TableError::NotChecked(failure))
                    if failure.code == codes::CASSANDRA_REFUSED && tokio::time::Instant::now() < by =>
                {
                    tokio::time::sleep(USABLE_WITHIN / 50).await;
                }
                Err(refused) => return Err(refused),
            }
        }
    }
}

/// After this time a table that another node has just created can be used.
const USABLE_WITHIN: Duration = Duration::from_secs(5);

/// Creates the table of deletes, unless it exists: if this login may not create tables, the operator creates it.
async fn ensure_delete_table(session: &Session, options: &Options) -> Result<(), TableError> {
    let beside = Options { table: DELETED.to_owned(), ..options.clone() };
    if !described(session, &beside).await?.is_empty() {
        return Ok(());
    }
    let create = create_delete_table(&options.keyspace);
    let how = honeyflow_cassandra::Options::within(options.deadline).idempotent();
    session.query(&create, &how).await.map(|_| ()).map_err(|error| {
        let failure = outcome::from_error(&error);
        let message = format!("the stamps of deletes need a table; create it: {create}. {}", failure.message);
        TableError::NotChecked(Failure { message, ..failure })
    })
}

/// The key columns and other columns of a table that fits.
pub struct Shape {
    pub key: Vec<KeyColumn>,
    pub columns: Vec<Column>,
}

async fn described(session: &Session, options: &Options) -> Result<Vec<DescribedColumn>, TableError> {
    const COLUMNS: &str =
        "SELECT column_name, kind, position FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?";
    let how = honeyflow_cassandra::Options::within(options.deadline).idempotent();
    let ask = session.prepare(COLUMNS).await.map_err(not_checked)?;
    let rows = session.execute(&ask, (&options.keyspace, &options.table), &how).await;
    let rows = rows.map_err(not_checked)?.into_rows();
    let mut described = Vec::new();
    for row in rows.typed::<(String, String, i32)>() {
        let (name, kind, position) = row.map_err(|why| unreadable(&why))?;
        let kind = match kind.as_str() {
            "partition_key" => Kind::Partition,
            "clustering" => Kind::Clustering,
            "static" => Kind::Static,
            _ => Kind::Regular,
        };
        described.push(DescribedColumn { name, kind, position });
    }
    described.sort_by(|one, other| {
        (one.kind as u8, one.position, &one.name).cmp(&(other.kind as u8, other.position, &other.name))
    });
    Ok(described)
}

fn unreadable(why: &honeyflow_cassandra::ValueMismatch) -> TableError {
    TableError::NotChecked(Failure::retry(
        codes::CASSANDRA_ANSWER,
        format!("the cluster's schema cannot be read: {why}"),
    ))
}

async fn unknown_table(session: &Session, options: &Options) -> Result<Misfit, TableError> {
    const TABLES: &str = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
    const KEYSPACES: &str = "SELECT keyspace_name FROM system_schema.keyspaces";
    let how = honeyflow_cassandra::Options::within(options.deadline).idempotent();
    let ask = session.prepare(TABLES).await.map_err(not_checked)?;
    let tables = session.execute(&ask, (&options.keyspace,), &how).await.map_err(not_checked)?;
    let tables = names(&tables.into_rows())?;
    let Options { keyspace, table, .. } = options;
    let keyspaces = session.query(KEYSPACES, &how).await.map_err(not_checked)?;
    let keyspaces = names(&keyspaces.into_rows())?;
    let (message, wanted, known) = if keyspaces.contains(keyspace) {
        (format!("the keyspace `{keyspace}` has no table `{table}`"), table, tables)
    } else {
        (format!("the cluster has no keyspace `{keyspace}`"), keyspace, keyspaces)
    };
    let known: Vec<&str> = known.iter().map(String::as_str).filter(|name| !name.starts_with("system")).collect();
    let help = match nearest(wanted, known.iter().copied()) {
        Some(word) => format!("did you mean `{word}`?"),
        None if known.is_empty() => "create it first: Honeyflow does not create tables".to_owned(),
        None => {
            format!("there is {}", known.iter().take(12).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
        }
    };
    Ok(Misfit::new("table", codes::problem::UNKNOWN_TABLE, message, help))
}

fn names(rows: &honeyflow_cassandra::Rows) -> Result<Vec<String>, TableError> {
    rows.typed::<(String,)>().map(|row| row.map(|(name,)| name).map_err(|why| unreadable(&why))).collect()
}

/// Compares the table's columns with the configuration. Pure.
fn fit(options: &Options, table: &[(&str, Kind, Type)]) -> Result<Shape, Vec<Misfit>> {
    let mut misfits = Vec::new();
    let names = || table.iter().map(|(name, ..)| *name);
    let wanted = options.columns.keys().map(|column| (format!("column.{column}"), column));
    for (at, column) in wanted.chain(options.document.iter().map(|column| ("document".to_owned(), column))) {
        if !names().any(|name| name == column) {
            let message = format!("the table has no column `{column}`");
            let help = match nearest(column, names()) {
                Some(word) => format!("did you mean `{word}`?"),
                None => format!("it has {}", names().collect::<Vec<_>>().join(", ")),
            };
            misfits.push(Misfit::new(at, codes::problem::UNKNOWN_COLUMN, message, help));
        }
    }
    check_version(options, table, &mut misfits);
    let key = key_columns(options, table, &mut misfits);
    let mut columns = Vec::new();
    for (name, kind, of) in table.iter().filter(|(name, ..)| *name != VERSION) {
        let at = format!("column.{name}");
        let is_document = options.document.as_deref() == Some(*name);
        match kind {
            Kind::Partition | Kind::Clustering => continue,
            Kind::Static if options.columns.contains_key(*name) || is_document => {
                let message =
                    format!("`{name}` is a static column: all rows of a partition share it, but their stamps differ");
                misfits.push(Misfit::new(at, codes::problem::STATIC_COLUMN, message, "use a regular column"));
                continue;
            }
            Kind::Static => continue,
            Kind::Regular => {}
        }
        if is_document && *of != Type::Text {
            let message = format!("`{name}` is {of}, but a document is stored as text");
            misfits.push(Misfit::new("document", codes::problem::WRONG_TYPE, message, "name a column of type text"));
        } else if !encode::is_writable(of) {
            let message = format!("`{name}` is {of}, but no JSON value fits that type");
            misfits.push(Misfit::new(
                at,
                codes::problem::WRONG_TYPE,
                message,
                "drop the column, or give it another type",
            ));
        }
        let content =
            if is_document { ColumnContent::Document } else { ColumnContent::Field(options.field(name).to_owned()) };
        columns.push(Column { name: (*name).to_owned(), kind: of.clone(), content });
    }
    if misfits.is_empty() { Ok(Shape { key, columns }) } else { Err(misfits) }
}

fn check_version(options: &Options, table: &[(&str, Kind, Type)], misfits: &mut Vec<Misfit>) {
    let add = format!("ALTER TABLE {}.{} ADD {VERSION} bigint", options.keyspace, options.table);
    match table.iter().find(|(name, ..)| *name == VERSION) {
        Some((_, Kind::Regular, Type::Bigint)) => {}
        Some((_, _, of)) => {
            let message = format!("the column `{VERSION}` is {of}, but must be a regular bigint column");
            misfits.push(Misfit::new(
                "table",
                codes::problem::WRONG_TYPE,
                message,
                "drop it, and add it again as bigint",
            ));
        }
        None => {
            let message = format!("the table has no column `{VERSION}`, which holds the stamp of the row");
            misfits.push(Misfit::new("table", codes::problem::UNKNOWN_COLUMN, message, add));
        }
    }
}

/// Matches the primary key with the parts of the entity's key. They must be the same: otherwise a delete, which knows
/// only the key, could not name its row, or two keys would name the same row.
fn key_columns(options: &Options, table: &[(&str, Kind, Type)], misfits: &mut Vec<Misfit>) -> Vec<KeyColumn> {
    let of_key = |kind: Kind| matches!(kind, Kind::Partition | Kind::Clustering);
    let parts = || options.key.iter().map(|part| part.name.as_str());
    for (name, ..) in table.iter().filter(|(_, kind, _)| of_key(*kind)) {
        let field = options.field(name);
        if !parts().any(|part| part == field) {
            let message = format!("`{name}` belongs to the primary key, but `{field}` is not part of the entity's key");
            let help = format!(
                "the key is {}; name the part that it holds: column = {{ {name} = \"…\" }}",
                parts().collect::<Vec<_>>().join(", ")
            );
            misfits.push(Misfit::new(format!("column.{name}"), codes::problem::WRONG_KEY, message, help));
        }
    }
    let mut key = Vec::new();
    for part in &options.key {
        let found: Vec<_> =
            table.iter().filter(|(name, kind, _)| of_key(*kind) && options.field(name) == part.name).collect();
        let [(name, kind, of)] = &found[..] else {
            let message =
                format!("`{}` of the entity's key occurs {} times in the primary key", part.name, found.len());
            let help = "use every part exactly once: two rows of the entity must not become one row of the table";
            misfits.push(Misfit::new("table", codes::problem::WRONG_KEY, message, help));
            continue;
        };
        if let Some(kind) = part.kind.filter(|kind| !key::fits(*kind, of)) {
            let message = format!("`{name}` is {of}, but `{}` of the entity's key is {}", part.name, kind.word());
            misfits.push(Misfit::new(
                format!("column.{name}"),
                codes::problem::WRONG_TYPE,
                message,
                "give the column the key's type",
            ));
        }
        let (name, field) = ((*name).to_owned(), part.name.clone());
        key.push(KeyColumn { name, field, kind: of.clone(), in_partition: *kind == Kind::Partition });
    }
    key
}

/// Converts a document to cells, in the order of the columns.
pub fn cells(columns: &[Column], document: &Json) -> Result<Vec<Value>, Failure> {
    let fields = document.as_object();
    let of_fields = columns.iter().any(|column| matches!(column.content, ColumnContent::Field(_)));
    if fields.is_none() && of_fields && !columns.iter().any(|column| column.content == ColumnContent::Document) {
        let message = format!(
            "the document is {}, but the columns are filled from the fields of an object",
            encode::type_name(document)
        );
        return Err(Failure::reject(codes::BAD_DOCUMENT, message));
    }
    let cell = |column: &Column| match &column.content {
        ColumnContent::Document => Ok(Value::Text(document.to_string())),
        ColumnContent::Field(name) => {
            let value = fields.and_then(|fields| fields.get(name)).unwrap_or(&Json::Null);
            encode::cell(value, &column.kind).ok_or_else(|| {
                let (column, kind, found) = (&column.name, &column.kind, encode::type_name(value));
                let message =
                    format!("column `{column}` is {kind}, the document has {found} in `{name}` that does not fit");
                Failure::reject(codes::BAD_FIELD, message)
            })
        }
    };
    columns.iter().map(cell).collect()
}

/// Converts cells back to the document as the table stores it.
pub fn document_from(columns: &[Column], cells: &[Value]) -> Json {
    let whole = columns.iter().position(|column| column.content == ColumnContent::Document);
    if let Some(Value::Text(text)) = whole.and_then(|at| cells.get(at)) {
        return serde_json::from_str(text).unwrap_or(Json::Null);
    }
    let field = |(column, cell): (&Column, &Value)| match &column.content {
        ColumnContent::Field(name) => Some((name.clone(), decode::json(cell))),
        ColumnContent::Document => None,
    };
    columns.iter().zip(cells).filter_map(field).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{KeyKind, KeyPart};

    fn options() -> Options {
        let part = |name: &str, kind| KeyPart { name: name.into(), kind: Some(kind) };
        Options::new("shop", "line", vec![part("order_id", KeyKind::Integer), part("sku", KeyKind::Text)])
    }

    fn table() -> Vec<(&'static str, Kind, Type)> {
        vec![
            ("order_id", Kind::Partition, Type::Bigint),
            ("sku", Kind::Clustering, Type::Text),
            ("note", Kind::Static, Type::Text),
            (VERSION, Kind::Regular, Type::Bigint),
            ("amount", Kind::Regular, Type::Int),
            ("title", Kind::Regular, Type::Text),
        ]
    }

    fn codes(options: &Options, table: &[(&str, Kind, Type)]) -> Vec<(String, &'static str)> {
        let misfits = fit(options, table).err().unwrap_or_default();
        misfits.into_iter().map(|misfit| (misfit.at, misfit.code)).collect()
    }

    #[test]
    fn a_table_that_fits_gives_its_key_and_columns() {
        let shape = fit(&options(), &table()).unwrap_or_else(|misfits| panic!("{misfits:?}"));
        let key: Vec<_> = shape.key.iter().map(|column| (column.name.as_str(), column.in_partition)).collect();
        assert_eq!(key, [("order_id", true), ("sku", false)]);
        let columns: Vec<_> = shape.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(columns, ["amount", "title"]);
        let document = json!({"order_id": 1, "amount": 2, "title": "x", "else": true});
        let cells = cells(&shape.columns, &document).unwrap();
        assert_eq!(document_from(&shape.columns, &cells), json!({"amount": 2, "title": "x"}));
        assert_eq!(super::cells(&shape.columns, &json!({"amount": "x"})).unwrap_err().code, "bad-field");
        assert_eq!(super::cells(&shape.columns, &json!([1])).unwrap_err().code, "bad-document");
    }

    #[test]
    fn all_misfits_are_reported_together() {
        let mut wrong = table();
        wrong.retain(|(name, ..)| *name != VERSION);
        wrong[0].2 = Type::Uuid;
        wrong[3].2 = Type::Counter;
        let mut configured = Options { document: Some("titel".into()), ..options() };
        configured.columns.insert("note".into(), "note".into());
        let found = codes(&configured, &wrong);
        for expected in [
            ("document", "unknown-column"),
            ("table", "unknown-column"),
            ("column.order_id", "wrong-type"),
            ("column.note", "static-column"),
            ("column.amount", "wrong-type"),
        ] {
            assert!(found.contains(&(expected.0.to_owned(), expected.1)), "{expected:?} in {found:?}");
        }
    }

    #[test]
    fn the_primary_key_must_be_the_key_of_the_entity() {
        let mut further = table();
        further.push(("day", Kind::Clustering, Type::Date));
        assert_eq!(codes(&options(), &further), [("column.day".to_owned(), "wrong-key")]);
        let mut fewer = table();
        fewer.remove(1);
        assert_eq!(codes(&options(), &fewer), [("table".to_owned(), "wrong-key")]);
        let mut renamed = options();
        renamed.key[0].name = "id".into();
        assert_eq!(codes(&renamed, &table()).len(), 2);
        renamed.columns.insert("order_id".into(), "id".into());
        assert!(codes(&renamed, &table()).is_empty());
    }
}

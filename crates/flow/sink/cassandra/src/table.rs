//! Does the table fit the documents? Asked when the sink is opened, and again when the cluster refuses a statement: what
//! does not fit is told in one go, each with the place it is about.

use std::time::Duration;

use honeyflow_cassandra::{Session, Type, Value, session};
use honeyflow_runtime::Failure;
use honeyflow_workflow::problem::nearest;
use serde_json::{Map, Value as Json};

use crate::{
    DELETED, VERSION,
    config::Options,
    decode, encode, key, outcome,
    statement::{Statements, make_deleted, quoted},
};

/// What the sink knows of its table.
pub struct Table {
    /// In the order of the key's parts.
    pub key: Vec<KeyColumn>,
    /// Without the key and the stamp.
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
    pub filled: Filled,
}

#[derive(PartialEq, Eq, Debug)]
pub enum Filled {
    Field(String),
    /// With the whole document, as JSON text.
    Document,
}

/// Something about the table that does not go with the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misfit {
    /// The key of the sink's section that it is about: `table`, `column.title`, `document`.
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
pub enum Refused {
    /// The cluster could not be asked.
    Unasked(Failure),
    Unfit(Vec<Misfit>),
}

impl Refused {
    pub fn failure(self) -> Failure {
        match self {
            Refused::Unasked(failure) => failure,
            Refused::Unfit(misfits) => {
                let all: Vec<_> = misfits.iter().map(|misfit| format!("{}; {}", misfit.message, misfit.help)).collect();
                Failure::fatal("cassandra-table", all.join(". "))
            }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn unasked(error: session::Error) -> Refused {
    Refused::Unasked(outcome::failure(&error))
}

/// A column as the cluster describes it.
struct Described {
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
    /// Looks at the schema alone; changes nothing.
    pub async fn look(session: &Session, options: &Options) -> Result<Shape, Refused> {
        let described = described(session, options).await?;
        if described.is_empty() {
            return Err(Refused::Unfit(vec![unknown_table(session, options).await?]));
        }
        let names = described.iter().map(|column| quoted(&column.name)).collect::<Vec<_>>().join(", ");
        let (keyspace, table) = (quoted(&options.keyspace), quoted(&options.table));
        let select = session.prepare(&format!("SELECT {names} FROM {keyspace}.{table}")).await.map_err(unasked)?;
        let columns = select.anywhere().map(|prepared| prepared.result.columns.clone()).unwrap_or_default();
        let kind = |name: &str| columns.iter().find(|column| column.name == name).map(|column| column.kind.clone());
        let typed = described.iter().filter_map(|one| Some((one.name.as_str(), one.kind, kind(&one.name)?)));
        fit(options, &typed.collect::<Vec<_>>()).map_err(Refused::Unfit)
    }

    pub async fn open(session: &Session, options: &Options) -> Result<Table, Refused> {
        let Shape { key, columns } = Table::look(session, options).await?;
        make_memory(session, options).await?;
        let key_names: Vec<String> = key.iter().map(|column| column.name.clone()).collect();
        let column_names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        let by = tokio::time::Instant::now() + SEEN_WITHIN;
        loop {
            match Statements::prepare(session, options, &key_names, &column_names).await.map_err(unasked) {
                Ok(statements) => return Ok(Table { key, columns, statements }),
                // Another node may just be making the table of deletes: it is described before it can be used.
                Err(Refused::Unasked(failure))
                    if failure.code == outcome::REFUSED && tokio::time::Instant::now() < by =>
                {
                    tokio::time::sleep(SEEN_WITHIN / 50).await;
                }
                Err(refused) => return Err(refused),
            }
        }
    }
}

/// A table that somebody else has made can be used by then.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

/// The table of deletes, unless it is there: whoever may not make tables can have made it.
async fn make_memory(session: &Session, options: &Options) -> Result<(), Refused> {
    let beside = Options { table: DELETED.to_owned(), ..options.clone() };
    if !described(session, &beside).await?.is_empty() {
        return Ok(());
    }
    let make = make_deleted(&options.keyspace);
    let how = honeyflow_cassandra::Options::within(options.deadline).idempotent();
    session.query(&make, &how).await.map(|_| ()).map_err(|error| {
        let failure = outcome::failure(&error);
        let message = format!("versions of deletes need a table; make it: {make}. {}", failure.message);
        Refused::Unasked(Failure { message, ..failure })
    })
}

/// Key and columns that fit.
pub struct Shape {
    pub key: Vec<KeyColumn>,
    pub columns: Vec<Column>,
}

async fn described(session: &Session, options: &Options) -> Result<Vec<Described>, Refused> {
    const COLUMNS: &str =
        "SELECT column_name, kind, position FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?";
    let how = honeyflow_cassandra::Options::within(options.deadline).idempotent();
    let ask = session.prepare(COLUMNS).await.map_err(unasked)?;
    let rows = session.execute(&ask, (&options.keyspace, &options.table), &how).await;
    let rows = rows.map_err(unasked)?.into_rows();
    let mut described = Vec::new();
    for row in rows.typed::<(String, String, i32)>() {
        let (name, kind, position) = row.map_err(|why| unreadable(&why))?;
        let kind = match kind.as_str() {
            "partition_key" => Kind::Partition,
            "clustering" => Kind::Clustering,
            "static" => Kind::Static,
            _ => Kind::Regular,
        };
        described.push(Described { name, kind, position });
    }
    described.sort_by(|one, other| {
        (one.kind as u8, one.position, &one.name).cmp(&(other.kind as u8, other.position, &other.name))
    });
    Ok(described)
}

fn unreadable(why: &honeyflow_cassandra::Unfit) -> Refused {
    Refused::Unasked(Failure::retry("cassandra-answer", format!("the cluster's schema cannot be read: {why}")))
}

async fn unknown_table(session: &Session, options: &Options) -> Result<Misfit, Refused> {
    const TABLES: &str = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
    const KEYSPACES: &str = "SELECT keyspace_name FROM system_schema.keyspaces";
    let how = honeyflow_cassandra::Options::within(options.deadline).idempotent();
    let ask = session.prepare(TABLES).await.map_err(unasked)?;
    let tables = session.execute(&ask, (&options.keyspace,), &how).await.map_err(unasked)?;
    let tables = names(&tables.into_rows())?;
    let Options { keyspace, table, .. } = options;
    let keyspaces = session.query(KEYSPACES, &how).await.map_err(unasked)?;
    let keyspaces = names(&keyspaces.into_rows())?;
    let (message, wanted, known) = if keyspaces.contains(keyspace) {
        (format!("the keyspace `{keyspace}` has no table `{table}`"), table, tables)
    } else {
        (format!("the cluster has no keyspace `{keyspace}`"), keyspace, keyspaces)
    };
    let known: Vec<&str> = known.iter().map(String::as_str).filter(|name| !name.starts_with("system")).collect();
    let help = match nearest(wanted, known.iter().copied()) {
        Some(word) => format!("did you mean `{word}`?"),
        None if known.is_empty() => "make it first: tables are not made by Honeyflow".to_owned(),
        None => {
            format!("there is {}", known.iter().take(12).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
        }
    };
    Ok(Misfit::new("table", "unknown-table", message, help))
}

fn names(rows: &honeyflow_cassandra::Rows) -> Result<Vec<String>, Refused> {
    rows.typed::<(String,)>().map(|row| row.map(|(name,)| name).map_err(|why| unreadable(&why))).collect()
}

/// Pure: what the table looks like against what is wanted of it.
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
            misfits.push(Misfit::new(at, "unknown-column", message, help));
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
                    format!("`{name}` is a static column: all rows of a partition share it, and their versions differ");
                misfits.push(Misfit::new(at, "static-column", message, "use a column of the row"));
                continue;
            }
            Kind::Static => continue,
            Kind::Regular => {}
        }
        if is_document && *of != Type::Text {
            let message = format!("`{name}` is {of}, and a document is kept as text");
            misfits.push(Misfit::new("document", "wrong-type", message, "name a column of type text"));
        } else if !encode::is_writable(of) {
            let message = format!("`{name}` is {of}, and no JSON value fits that");
            misfits.push(Misfit::new(at, "wrong-type", message, "take it out of the table, or give it another type"));
        }
        let filled = if is_document { Filled::Document } else { Filled::Field(options.field(name).to_owned()) };
        columns.push(Column { name: (*name).to_owned(), kind: of.clone(), filled });
    }
    if misfits.is_empty() { Ok(Shape { key, columns }) } else { Err(misfits) }
}

fn check_version(options: &Options, table: &[(&str, Kind, Type)], misfits: &mut Vec<Misfit>) {
    let add = format!("ALTER TABLE {}.{} ADD {VERSION} bigint", options.keyspace, options.table);
    match table.iter().find(|(name, ..)| *name == VERSION) {
        Some((_, Kind::Regular, Type::Bigint)) => {}
        Some((_, _, of)) => {
            let message = format!("the column `{VERSION}` is {of}, and must be a bigint of the row");
            misfits.push(Misfit::new("table", "wrong-type", message, "drop it, and add it again as bigint"));
        }
        None => {
            let message = format!("the table has no column `{VERSION}`, which tells what a row was made of");
            misfits.push(Misfit::new("table", "unknown-column", message, add));
        }
    }
}

/// The primary key is made of the parts of the entity's key: otherwise a delete, which knows nothing else, could not name
/// its row, or two keys would be one row.
fn key_columns(options: &Options, table: &[(&str, Kind, Type)], misfits: &mut Vec<Misfit>) -> Vec<KeyColumn> {
    let of_key = |kind: Kind| matches!(kind, Kind::Partition | Kind::Clustering);
    let parts = || options.key.iter().map(|part| part.name.as_str());
    for (name, ..) in table.iter().filter(|(_, kind, _)| of_key(*kind)) {
        let field = options.field(name);
        if !parts().any(|part| part == field) {
            let message = format!("`{name}` belongs to the primary key, but `{field}` is no part of the entity's key");
            let help = format!(
                "the key is {}; name the part that it holds: column = {{ {name} = \"…\" }}",
                parts().collect::<Vec<_>>().join(", ")
            );
            misfits.push(Misfit::new(format!("column.{name}"), "wrong-key", message, help));
        }
    }
    let mut key = Vec::new();
    for part in &options.key {
        let found: Vec<_> =
            table.iter().filter(|(name, kind, _)| of_key(*kind) && options.field(name) == part.name).collect();
        let [(name, kind, of)] = &found[..] else {
            let message =
                format!("`{}` of the entity's key stands {} times in the primary key", part.name, found.len());
            let help = "every part once: two rows of the entity must not be one row of the table";
            misfits.push(Misfit::new("table", "wrong-key", message, help));
            continue;
        };
        if let Some(kind) = part.kind.filter(|kind| !key::fits(*kind, of)) {
            let message = format!("`{name}` is {of}, and `{}` of the entity's key is {}", part.name, kind.word());
            misfits.push(Misfit::new(
                format!("column.{name}"),
                "wrong-type",
                message,
                "give the column the key's type",
            ));
        }
        let (name, field) = ((*name).to_owned(), part.name.clone());
        key.push(KeyColumn { name, field, kind: of.clone(), in_partition: *kind == Kind::Partition });
    }
    key
}

/// The cells of a document, in the order of the columns.
pub fn cells(columns: &[Column], document: &Json) -> Result<Vec<Value>, Failure> {
    let fields = document.as_object();
    let of_fields = columns.iter().any(|column| matches!(column.filled, Filled::Field(_)));
    if fields.is_none() && of_fields && !columns.iter().any(|column| column.filled == Filled::Document) {
        let message =
            format!("the document is {}, and columns are filled with fields of an object", encode::found(document));
        return Err(Failure::reject("bad-document", message));
    }
    let cell = |column: &Column| match &column.filled {
        Filled::Document => Ok(Value::Text(document.to_string())),
        Filled::Field(name) => {
            let value = fields.and_then(|fields| fields.get(name)).unwrap_or(&Json::Null);
            encode::cell(value, &column.kind).ok_or_else(|| {
                let (column, kind, found) = (&column.name, &column.kind, encode::found(value));
                let message =
                    format!("column `{column}` is {kind}, the document has {found} in `{name}` that does not fit");
                Failure::reject("bad-field", message)
            })
        }
    };
    columns.iter().map(cell).collect()
}

/// What such cells hold of a document.
pub fn held(columns: &[Column], cells: &[Value]) -> Json {
    let whole = columns.iter().position(|column| column.filled == Filled::Document);
    if let Some(Value::Text(text)) = whole.and_then(|at| cells.get(at)) {
        return serde_json::from_str(text).unwrap_or(Json::Null);
    }
    let field = |(column, cell): (&Column, &Value)| match &column.filled {
        Filled::Field(name) => Some((name.clone(), decode::json(cell))),
        Filled::Document => None,
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
    fn a_table_that_fits_says_how() {
        let shape = fit(&options(), &table()).unwrap_or_else(|misfits| panic!("{misfits:?}"));
        let key: Vec<_> = shape.key.iter().map(|column| (column.name.as_str(), column.in_partition)).collect();
        assert_eq!(key, [("order_id", true), ("sku", false)]);
        let columns: Vec<_> = shape.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(columns, ["amount", "title"]);
        let document = json!({"order_id": 1, "amount": 2, "title": "x", "else": true});
        let cells = cells(&shape.columns, &document).unwrap();
        assert_eq!(held(&shape.columns, &cells), json!({"amount": 2, "title": "x"}));
        assert_eq!(super::cells(&shape.columns, &json!({"amount": "x"})).unwrap_err().code, "bad-field");
        assert_eq!(super::cells(&shape.columns, &json!([1])).unwrap_err().code, "bad-document");
    }

    #[test]
    fn everything_that_does_not_fit_is_told_at_once() {
        let mut wrong = table();
        wrong.retain(|(name, ..)| *name != VERSION);
        wrong[0].2 = Type::Uuid;
        wrong[3].2 = Type::Counter;
        let told = options();
        let mut told = Options { document: Some("titel".into()), ..told };
        told.columns.insert("note".into(), "note".into());
        let found = codes(&told, &wrong);
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
    fn the_primary_key_is_the_key_of_the_entity() {
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

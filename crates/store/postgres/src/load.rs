//! Executes document and edge statements for a batch of keys: read-only, in one snapshot, with a time-out.

use std::{sync::Arc, time::Duration};

use hashbrown::HashMap;
use honeyflow_event::{Key, key};
use honeyflow_runtime::Failure;
use honeyflow_store::{Load, LoadResult, Reply, Statement, statement::Expand};
use serde_json::{Map, Value};

use crate::{
    codes,
    driver::{self, AssertSqlSafe, Error, PgConnection, PgRow, Query, Row},
    literal, outcome,
    rewrite::{self, Batch},
    session, value,
};

/// The maximum size of the JSON of one row.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

/// The result columns of a checked statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreparedStatement {
    pub columns: Vec<String>,
    /// The types of the columns, as the server names them.
    pub types: Vec<String>,
}

/// The error of a load: an error of the connection, whose state matters then, or a failure of the statement.
pub(crate) enum LoadError {
    Error(Error),
    Failure(Failure),
}

impl From<Error> for LoadError {
    fn from(error: Error) -> LoadError {
        LoadError::Error(error)
    }
}

impl From<Failure> for LoadError {
    fn from(failure: Failure) -> LoadError {
        LoadError::Failure(failure)
    }
}

/// The inner result is the reply or a failure of the statement on a usable connection; the outer error is one of the
/// connection.
pub(crate) type Outcome<T> = Result<Result<T, Failure>, Error>;

/// Begins a snapshot for one load. The server enforces the time limit, so that it does not continue after the caller
/// has given up.
pub(crate) fn begin(timeout: Duration) -> String {
    let timeout = timeout.as_millis().max(1);
    format!(
        "begin isolation level repeatable read read only;
         select set_config('statement_timeout', '{timeout}', true), set_config('jit', 'off', true),
           set_config('row_security', 'off', true)"
    )
}

/// The result columns of known statements. The key is the statement's text, so that a changed statement is checked
/// again.
#[derive(Default)]
pub(crate) struct Shapes(std::sync::Mutex<HashMap<String, Arc<PreparedStatement>>>);

impl Shapes {
    fn get(&self, document: &str) -> Option<Arc<PreparedStatement>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(document).cloned()
    }

    fn put(&self, document: String, prepared: &Arc<PreparedStatement>) {
        let mut shapes = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if shapes.len() >= 1024 {
            shapes.clear();
        }
        shapes.insert(document, Arc::clone(prepared));
    }

    pub fn forget(&self) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
    }
}

/// Checks a statement without executing it for any key.
pub(crate) async fn prepare(
    connection: &mut PgConnection,
    statement: &Statement,
    timeout: Duration,
) -> Outcome<PreparedStatement> {
    session::run(connection, begin(timeout)).await?;
    let prepared = match shape(connection, statement).await {
        Ok(prepared) => checked(statement, prepared),
        Err(LoadError::Failure(failure)) => Err(failure),
        Err(LoadError::Error(error)) => return Err(error),
    };
    let prepared = match prepared {
        Ok(prepared) if statement.result_key.is_empty() => {
            // The statement of an edge must also work in the form that reads one page.
            match expand(connection, statement, &prepared, &[], &Expand { after: None, limit: 1 }).await {
                Ok(_) => Ok(prepared),
                Err(LoadError::Failure(failure)) => Err(failure),
                Err(LoadError::Error(error)) => return Err(error),
            }
        }
        prepared => prepared,
    };
    session::run(connection, "commit".to_owned()).await?;
    Ok(prepared)
}

fn checked(statement: &Statement, prepared: PreparedStatement) -> Result<PreparedStatement, Failure> {
    let place = &statement.place;
    for key in &statement.result_key {
        if !prepared.columns.contains(&key.name) {
            let (name, found) = (&key.name, prepared.columns.join(", "));
            return Err(Failure::fatal(
                codes::NO_KEY_COLUMN,
                format!("{place}: the result must have the key column `{name}` once; it has {found}"),
            ));
        }
    }
    Ok(prepared)
}

async fn shape(connection: &mut PgConnection, statement: &Statement) -> Result<PreparedStatement, LoadError> {
    let shape = rewrite::shape(&rewrite::document(statement)?);
    let names = format!("select json_object_keys(row_to_json(shape)) from ({shape}) as shape");
    let batch = Batch::new(&statement.key);
    let rows = session::run_bound(connection, with_keys(names, &batch)).await?;
    let columns: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let mut distinct = columns.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() != columns.len() {
        let found = columns.join(", ");
        let place = &statement.place;
        return Err(Failure::fatal(
            codes::TWO_COLUMNS,
            format!("{place}: two columns of the result have the same name ({found}); rename one by `as`"),
        )
        .into());
    }
    let types: Vec<String> =
        columns.iter().map(|name| format!("pg_typeof(shape.{})::text", literal::name(name))).collect();
    let types = format!("select array[{}]::text[] from ({shape}) as shape", types.join(", "));
    let rows = session::run_bound(connection, with_keys(types, &batch)).await?;
    let types = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or_default();
    Ok(PreparedStatement { columns, types })
}

fn with_keys(text: String, batch: &Batch) -> Query<'_> {
    batch.parts.iter().fold(driver::query(AssertSqlSafe(text)), driver::query::Query::bind)
}

pub(crate) async fn load(connection: &mut PgConnection, load: &Load, shapes: &Shapes) -> Outcome<Reply> {
    session::run(connection, begin(load.timeout)).await?;
    let reply = match load_in_snapshot(connection, load, shapes).await {
        Ok(reply) => Ok(reply),
        Err(LoadError::Failure(failure)) => Err(failure),
        Err(LoadError::Error(error)) => return Err(error),
    };
    session::run(connection, "commit".to_owned()).await?;
    Ok(reply)
}

async fn load_in_snapshot(connection: &mut PgConnection, load: &Load, shapes: &Shapes) -> Result<Reply, LoadError> {
    let statement = &*load.statement;
    let document = rewrite::document(statement)?;
    let prepared = match shapes.get(&document) {
        Some(prepared) => prepared,
        None => {
            let prepared = Arc::new(checked(statement, shape(connection, statement).await?)?);
            shapes.put(document.clone(), &prepared);
            prepared
        }
    };
    match &load.expand {
        None => documents(connection, load, &document, &prepared).await.map(Reply::Loaded),
        Some(wanted) => expand(connection, statement, &prepared, &load.keys, wanted).await.map(Reply::Keys),
    }
}

async fn documents(
    connection: &mut PgConnection,
    load: &Load,
    document: &str,
    prepared: &PreparedStatement,
) -> Result<Vec<LoadResult>, LoadError> {
    let statement = &*load.statement;
    let mut loaded = vec![LoadResult::Document(None); load.keys.len()];
    let mut places: HashMap<&str, usize> = HashMap::with_capacity(load.keys.len());
    let mut repeated = Vec::new();
    let mut batch = Batch::new(&statement.key);
    for (n, key) in load.keys.iter().enumerate() {
        if let Some(first) = places.get(&**key) {
            repeated.push((n, *first));
            continue;
        }
        match batch.push(&statement.key, key) {
            Ok(()) => _ = places.insert(key, n),
            Err(why) => {
                loaded[n] = LoadResult::Rejected(Failure::reject(codes::BAD_KEY, format!("key `{key}`: {why}")));
            }
        }
    }
    for row in session::run_bound(connection, with_keys(rewrite::as_json(document), &batch)).await? {
        let Some((key, found)) = read(&row, statement, prepared)? else { continue };
        let Some(place) = places.get(&*key).copied() else { continue };
        loaded[place] = match &loaded[place] {
            LoadResult::Document(None) => found,
            _ => LoadResult::Rejected(Failure::reject(
                codes::TWO_ROWS,
                format!("{}: two rows for key `{key}`; group them, or remove a join", statement.place),
            )),
        };
    }
    for (n, first) in repeated {
        loaded[n] = loaded[first].clone();
    }
    Ok(loaded)
}

/// Returns the row's key and document; none if the row has no key.
fn read(
    row: &PgRow,
    statement: &Statement,
    prepared: &PreparedStatement,
) -> Result<Option<(String, LoadResult)>, Error> {
    let text: &str = row.try_get(0)?;
    let fields: Map<String, Value> = serde_json::from_str(text).map_err(|error| Error::Decode(error.into()))?;
    let kind = |name: &str| {
        let at = prepared.columns.iter().position(|column| column == name);
        at.and_then(|at| prepared.types.get(at)).map_or("", String::as_str)
    };
    let part = |name: &str| fields.get(name).and_then(|part| value::key_text(part, kind(name)));
    let parts: Option<Vec<String>> = statement.result_key.iter().map(|column| part(&column.name)).collect();
    let Some(parts) = parts.filter(|parts| !parts.is_empty()) else { return Ok(None) };
    let key = key::join(&parts);
    if text.len() > DOCUMENT_BYTES_MAX {
        let why = format!("the document would have more than {DOCUMENT_BYTES_MAX} bytes");
        return Ok(Some((key, LoadResult::Rejected(Failure::reject(codes::OUTPUT_TOO_LARGE, why)))));
    }
    let mut document = Map::new();
    for (name, field) in fields {
        let is_json = statement.json.contains(&name);
        match value::to_document_value(field, kind(&name), is_json) {
            Ok(field) => _ = document.insert(name, field),
            Err((code, why)) => {
                let rejected = Failure::reject(code, format!("column `{name}`: {why}"));
                return Ok(Some((key, LoadResult::Rejected(rejected))));
            }
        }
    }
    Ok(Some((key, LoadResult::Document(Some(Arc::new(Value::Object(document)))))))
}

/// Returns one page of the containers of `causes`, in the order of key texts.
async fn expand(
    connection: &mut PgConnection,
    statement: &Statement,
    prepared: &PreparedStatement,
    causes: &[Key],
    expand: &Expand,
) -> Result<Vec<Key>, LoadError> {
    let page = rewrite::expansion(statement, &prepared.types)?;
    let mut batch = Batch::new(&statement.key);
    for cause in causes {
        // A cause that is not a valid key of its table has no containers.
        let _ = batch.push(&statement.key, cause);
    }
    let query = with_keys(page, &batch).bind(expand.after.as_deref()).bind(i64::from(expand.limit));
    let rows = session::run_bound(connection, query).await?;
    Ok(rows.iter().map(|row| row.try_get::<&str, _>(0).map(Key::from)).collect::<Result<_, _>>()?)
}

/// Returns the failure for an error of a statement of the configuration.
pub(crate) fn failure(error: &Error, statement: &Statement, timeout: Duration) -> Failure {
    let mut failure = outcome::failure(error, &statement.place);
    if failure.code == codes::STATEMENT_TIMEOUT {
        failure.message = format!("{}: the statement took longer than {timeout:?}", statement.place);
    }
    failure
}

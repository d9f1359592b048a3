//! Executes document and edge statements for a batch of keys: read-only, in one snapshot, with a time-out.

use std::{sync::Arc, time::Duration};

use hashbrown::HashMap;
use honeyflow_event::{Key, key};
use honeyflow_runtime::Failure;
use honeyflow_store::{KeyColumn, KeyType, Load, LoadResult, Reply, Statement, statement::Expand};
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

impl PreparedStatement {
    /// The type of a column; empty if there is no such column.
    pub fn kind(&self, name: &str) -> &str {
        let at = self.columns.iter().position(|column| column == name);
        at.and_then(|at| self.types.get(at)).map_or("", String::as_str)
    }

    /// The columns whose values may have more digits than a JSON number keeps.
    pub fn numerics(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().zip(&self.types).filter(|(_, kind)| *kind == "numeric").map(|(name, _)| name.as_str())
    }
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

/// Begins a snapshot for one load. Settings that change how a value is written are those of no role or database, so that
/// keys and documents are the same everywhere. The server enforces the time limit, so that it does not continue after the caller
/// has given up.
pub(crate) fn begin(timeout: Duration) -> String {
    let timeout = timeout.as_millis().max(1);
    format!(
        "begin isolation level repeatable read read only;
         select set_config('statement_timeout', '{timeout}', true), set_config('jit', 'off', true),
           set_config('row_security', 'off', true), set_config('TimeZone', 'UTC', true),
           set_config('DateStyle', 'ISO, YMD', true), set_config('IntervalStyle', 'postgres', true),
           set_config('bytea_output', 'hex', true), set_config('extra_float_digits', '1', true)"
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
    if let Some(wrong) = other_forms(connection, &statement.key, &batch).await? {
        for (key, why) in wrong {
            let Some(place) = places.remove(&*key) else { continue };
            loaded[place] = LoadResult::Rejected(Failure::reject(codes::BAD_KEY, format!("key `{key}`: {why}")));
        }
    }
    let text = rewrite::as_json(document, statement, prepared);
    for row in session::run_bound(connection, with_keys(text, &batch)).await? {
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

/// Returns the keys that the database writes in another way than they are bound: no row has such a key, though one may
/// be equal to it. Keys of the other types have been checked before they were bound.
async fn other_forms(
    connection: &mut PgConnection,
    columns: &[KeyColumn],
    batch: &Batch,
) -> Result<Option<Vec<(String, String)>>, LoadError> {
    if !columns.iter().any(|column| matches!(column.kind, KeyType::Named(_))) {
        return Ok(None);
    }
    let rows = session::run_bound(connection, with_keys(rewrite::canonical(columns), batch)).await?;
    let mut wrong = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        let given: Vec<&str> = batch.parts.iter().filter_map(|part| part.get(n)).map(String::as_str).collect();
        let written: Vec<Option<String>> = row.try_get(0)?;
        let written: Vec<String> = written.into_iter().map(Option::unwrap_or_default).collect();
        if given != written {
            wrong.push((key::join(&given), format!("the database writes this key as `{}`", key::join(&written))));
        }
    }
    Ok(Some(wrong))
}

/// Returns the row's key and document; none if the row has no key.
fn read(
    row: &PgRow,
    statement: &Statement,
    prepared: &PreparedStatement,
) -> Result<Option<(String, LoadResult)>, Error> {
    let parts: Vec<Option<String>> = row.try_get(0)?;
    let parts: Option<Vec<String>> = parts.into_iter().collect();
    let Some(parts) = parts.filter(|parts| !parts.is_empty()) else { return Ok(None) };
    let key = key::join(&parts);
    let numerics: Vec<Option<String>> = row.try_get(1)?;
    let numerics: HashMap<&str, String> =
        prepared.numerics().zip(numerics).filter_map(|(name, text)| Some((name, text?))).collect();
    let text: &str = row.try_get(2)?;
    let fields: Map<String, Value> = serde_json::from_str(text).map_err(|error| Error::Decode(error.into()))?;
    if text.len() > DOCUMENT_BYTES_MAX {
        let why = format!("the document would have more than {DOCUMENT_BYTES_MAX} bytes");
        return Ok(Some((key, LoadResult::Rejected(Failure::reject(codes::OUTPUT_TOO_LARGE, why)))));
    }
    let mut document = Map::new();
    for (name, field) in fields {
        let is_json = statement.json.contains(&name);
        let converted = match numerics.get(name.as_str()) {
            Some(text) => value::decimal(text),
            None => value::to_document_value(field, prepared.kind(&name), is_json),
        };
        match converted {
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

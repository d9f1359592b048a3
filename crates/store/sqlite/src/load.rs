//! Executes document and edge statements for a batch of keys: read-only, in one snapshot, with a time-out.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use hashbrown::HashMap;
use honeyflow_event::{Key, key};
use honeyflow_runtime::Failure;
use honeyflow_store::{Admin, AdminReply, Load, LoadResult, Reply, Statement, statement::Expand};
use rusqlite::{Connection, Row, params};
use serde_json::{Map, Value};

use crate::{codes, outcome, rewrite, rewrite::Batch, value};

/// The number of virtual machine steps between two checks of the deadline.
const STEPS_PER_CHECK: i32 = 2_000;
/// The maximum size of the texts and blobs of one row.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

/// The result columns of a checked statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreparedStatement {
    pub columns: Vec<String>,
}

pub(crate) struct Loader {
    connection: Connection,
    /// When the running statement is interrupted, in microseconds since `began_at`. 0: no statement runs.
    deadline: Arc<AtomicU64>,
    began_at: Instant,
}

impl Loader {
    pub fn new(mut connection: Connection) -> Result<Loader, Failure> {
        let deadline = Arc::new(AtomicU64::new(0));
        let began_at = Instant::now();
        let ends_at = Arc::clone(&deadline);
        let overdue = move || {
            let at = ends_at.load(Ordering::Relaxed);
            at != 0 && micros(began_at.elapsed()) > at
        };
        connection
            .progress_handler(STEPS_PER_CHECK, Some(overdue))
            .map_err(|error| outcome::failure(&error, "set a time-out"))?;
        Ok(Loader { connection, deadline, began_at })
    }

    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    pub fn load(&self, load: &Load) -> Result<Reply, Failure> {
        self.with_timeout(load.timeout, &load.statement.place, || match &load.expand {
            None => self.documents(load).map(Reply::Loaded),
            Some(expand) => self.expand(&load.statement, &load.keys, expand).map(Reply::Keys),
        })
    }

    pub fn answer(&self, admin: &Admin, timeout: Duration) -> Result<AdminReply, Failure> {
        self.with_timeout(timeout, "read", || crate::admin::read(&self.connection, admin))
    }

    /// Checks a statement without executing it.
    pub fn prepare(&self, statement: &Statement) -> Result<PreparedStatement, Failure> {
        let sql = rewrite::document(statement)?;
        let place = &statement.place;
        let prepared = self.connection.prepare(&sql).map_err(|error| outcome::failure(&error, place))?;
        if !prepared.readonly() || prepared.column_count() == 0 {
            return Err(Failure::fatal(
                codes::NOT_A_QUERY,
                format!("{place}: the statement must only read; write a select"),
            ));
        }
        if prepared.parameter_count() != 1 {
            return Err(Failure::fatal(
                codes::BAD_PARAMETERS,
                format!("{place}: the statement has other parameters; $keys is the only parameter that it may use"),
            ));
        }
        let columns: Vec<String> = prepared.column_names().map(str::to_owned).collect();
        for key in &statement.result_key {
            let count = columns.iter().filter(|column| **column == key.name).count();
            if count != 1 {
                let found = columns.join(", ");
                let name = &key.name;
                return Err(Failure::fatal(
                    codes::NO_KEY_COLUMN,
                    format!("{place}: the result must have the key column `{name}` once; it has {found}"),
                ));
            }
        }
        if statement.result_key.is_empty() {
            // The statement of an edge must also work in the form that reads one page.
            let page = rewrite::expansion(statement, columns.len())?;
            self.connection.prepare(&page).map_err(|error| outcome::failure(&error, place))?;
        }
        Ok(PreparedStatement { columns })
    }

    pub fn explain(&self, statement: &Statement) -> Result<Vec<String>, Failure> {
        let sql = format!("explain query plan {}", rewrite::document(statement)?);
        self.connection
            .prepare(&sql)
            .and_then(|mut plan| plan.query_map(["[]"], |row| row.get("detail"))?.collect())
            .map_err(|error| outcome::failure(&error, &statement.place))
    }

    pub fn with_timeout<T>(
        &self,
        timeout: Duration,
        place: &str,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.deadline.store(micros(self.began_at.elapsed() + timeout).max(1), Ordering::Relaxed);
        let result = work();
        self.deadline.store(0, Ordering::Relaxed);
        result.map_err(|mut failure| {
            if failure.code == codes::STATEMENT_TIMEOUT {
                failure.message = format!("{place}: the statement took longer than {timeout:?}");
            }
            failure
        })
    }

    fn documents(&self, load: &Load) -> Result<Vec<LoadResult>, Failure> {
        let statement = &*load.statement;
        let sql = rewrite::document(statement)?;
        let mut loaded = vec![LoadResult::Document(None); load.keys.len()];
        let mut places: HashMap<&str, usize> = HashMap::with_capacity(load.keys.len());
        let mut repeated = Vec::new();
        let mut batch = Batch::new();
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
        self.read(statement, &sql, &batch.finish(), &places, &mut loaded)?;
        for (n, first) in repeated {
            loaded[n] = loaded[first].clone();
        }
        Ok(loaded)
    }

    fn read(
        &self,
        statement: &Statement,
        sql: &str,
        batch: &str,
        places: &HashMap<&str, usize>,
        loaded: &mut [LoadResult],
    ) -> Result<(), Failure> {
        let failed = |error: rusqlite::Error| outcome::failure(&error, &statement.place);
        let mut prepared = self.connection.prepare_cached(sql).map_err(failed)?;
        if !prepared.readonly() {
            return Err(Failure::fatal(
                codes::NOT_A_QUERY,
                format!("{}: the statement must only read", statement.place),
            ));
        }
        let mut rows = prepared.query([batch]).map_err(failed)?;
        let mut shape = None;
        let mut key_text = String::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let shape = match &mut shape {
                Some(shape) => shape,
                // Read the columns now: the first step may have prepared the statement again for a changed table.
                None => shape.insert(Shape::new(statement, row)?),
            };
            let Some(place) = shape.place(row, places, &mut key_text).map_err(failed)? else { continue };
            loaded[place] = match &loaded[place] {
                LoadResult::Document(None) => shape.document(row).map_err(failed)?,
                _ => LoadResult::Rejected(Failure::reject(
                    codes::TWO_ROWS,
                    format!("{}: two rows for key `{key_text}`; group them, or remove a join", statement.place),
                )),
            };
        }
        Ok(())
    }

    /// Returns one page of the containers of `causes`, in the order of key texts.
    pub fn expand(&self, statement: &Statement, causes: &[Key], expand: &Expand) -> Result<Vec<Key>, Failure> {
        let failed = |error: rusqlite::Error| outcome::failure(&error, &statement.place);
        let plain = rewrite::document(statement)?;
        let columns = self.connection.prepare_cached(&plain).map_err(failed)?.column_count();
        let page = rewrite::expansion(statement, columns)?;
        let mut batch = Batch::new();
        for cause in causes {
            // A cause that is not a valid key of its table has no containers.
            let _ = batch.push(&statement.key, cause);
        }
        let mut prepared = self.connection.prepare_cached(&page).map_err(failed)?;
        let mut rows = prepared.query(params![batch.finish(), expand.after, expand.limit]).map_err(failed)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            found.push(row.get::<_, Arc<str>>(0).map_err(failed)?);
        }
        Ok(found)
    }
}

/// How the rows of one execution are converted to documents.
struct Shape {
    fields: Vec<Field>,
    /// The columns of the key, in key order.
    key: Vec<usize>,
}

struct Field {
    name: String,
    is_json: bool,
}

impl Shape {
    fn new(statement: &Statement, row: &Row<'_>) -> Result<Shape, Failure> {
        let fields: Vec<Field> = row
            .as_ref()
            .column_names()
            .map(|name| Field { name: name.to_owned(), is_json: statement.json.iter().any(|json| json == name) })
            .collect();
        let key = statement
            .result_key
            .iter()
            .map(|key| fields.iter().position(|field| field.name == key.name))
            .collect::<Option<Vec<usize>>>()
            .filter(|key| !key.is_empty())
            .ok_or_else(|| {
                let place = &statement.place;
                Failure::fatal(codes::NO_KEY_COLUMN, format!("{place}: the key's columns are not all in the result"))
            })?;
        Ok(Shape { fields, key })
    }

    /// Returns the index of the requested key that the row belongs to; `key_text` holds the row's key afterwards.
    fn place(
        &self,
        row: &Row<'_>,
        places: &HashMap<&str, usize>,
        key_text: &mut String,
    ) -> rusqlite::Result<Option<usize>> {
        key_text.clear();
        if let [only] = self.key[..] {
            if !value::push_key_text(key_text, row.get_ref(only)?) {
                return Ok(None);
            }
        } else {
            let mut parts = Vec::with_capacity(self.key.len());
            for column in &self.key {
                let mut part = String::new();
                if !value::push_key_text(&mut part, row.get_ref(*column)?) {
                    return Ok(None);
                }
                parts.push(part);
            }
            key_text.push_str(&key::join(&parts));
        }
        Ok(places.get(key_text.as_str()).copied())
    }

    fn document(&self, row: &Row<'_>) -> rusqlite::Result<LoadResult> {
        let mut document = Map::new();
        let mut bytes = 0;
        for (n, field) in self.fields.iter().enumerate() {
            let sql = row.get_ref(n)?;
            // Checked before the value is copied: a row may be far larger than a document.
            bytes += value::bytes(sql);
            if bytes > DOCUMENT_BYTES_MAX {
                let why =
                    format!("column `{}`: the document would have more than {DOCUMENT_BYTES_MAX} bytes", field.name);
                return Ok(LoadResult::Rejected(Failure::reject(codes::OUTPUT_TOO_LARGE, why)));
            }
            let json = if field.is_json { value::parse_json(sql) } else { value::to_json(sql) };
            match json {
                Ok(json) => _ = document.insert(field.name.clone(), json),
                Err((code, why)) => {
                    return Ok(LoadResult::Rejected(Failure::reject(code, format!("column `{}`: {why}", field.name))));
                }
            }
        }
        Ok(LoadResult::Document(Some(Arc::new(Value::Object(document)))))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

//! A database with captured tables, and two ways to send it statements.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use honeyflow_store::{CaptureTable, Columns, KeyColumn, KeyType};
use honeyflow_store_sqlite::{
    capture::{self, payload},
    schema,
};
use rusqlite::Connection;
use tempfile::TempDir;

pub struct Shop {
    _folder: TempDir,
    pub path: PathBuf,
    pub connection: Connection,
    program: Option<PathBuf>,
}

/// Runs the test with both. `setup` creates the application's tables.
pub fn each(setup: &str, wanted: &[CaptureTable], test: impl Fn(&mut Shop)) {
    test(&mut Shop::new(setup, wanted, None));
    match sqlite3_program() {
        Some(program) => test(&mut Shop::new(setup, wanted, Some(program))),
        None => println!("SKIPPED sqlite3-program: not installed"),
    }
}

fn sqlite3_program() -> Option<PathBuf> {
    let path = Path::new("/usr/bin/sqlite3");
    path.exists().then(|| path.to_owned())
}

impl Shop {
    pub fn new(setup: &str, wanted: &[CaptureTable], program: Option<PathBuf>) -> Shop {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        let mut connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "synchronous", "off").unwrap();
        connection.execute_batch(setup).unwrap();
        schema::migrate(&mut connection).unwrap();
        capture::install(&mut connection, wanted).unwrap();
        Shop { _folder: folder, path, connection, program }
    }

    pub fn plain(setup: &str, wanted: &[CaptureTable]) -> Shop {
        Shop::new(setup, wanted, None)
    }

    /// Executes statements in one session of the application.
    #[track_caller]
    pub fn run(&self, sql: &str) {
        if let Err(error) = self.try_run(sql) {
            panic!("{sql}: {error}");
        }
    }

    pub fn try_run(&self, sql: &str) -> Result<(), String> {
        let Some(program) = &self.program else {
            let connection = Connection::open(&self.path).unwrap();
            connection.pragma_update(None, "synchronous", "off").unwrap();
            return connection.execute_batch(sql).map_err(|error| error.to_string());
        };
        let mut child = Command::new(program)
            .args(["-batch", "-bail"])
            .arg(&self.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(format!(".timeout 5000\npragma synchronous = off;\n{sql};\n").as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() && error.is_empty() { Ok(()) } else { Err(error) }
    }

    /// Removes and returns the events since the last call, as `table key [payload]`, ordered by id.
    pub fn events(&self) -> Vec<String> {
        let sql = "delete from honeyflow_outbox returning id, entity, entity_key, format, payload, shard, kind";
        let mut statement = self.connection.prepare(sql).unwrap();
        let events = statement
            .query_map([], |row| {
                let (entity, key): (String, String) = (row.get(1)?, row.get(2)?);
                let payload: Option<String> = row.get(4)?;
                assert_eq!(row.get::<_, u16>(3)?, if payload.is_some() { payload::FORMAT } else { 1 });
                assert_eq!((row.get::<_, u16>(5)?, row.get::<_, String>(6)?), (0, "row".to_owned()));
                let payload = payload.map(|text| format!(" {}", payload::decode(&text).unwrap())).unwrap_or_default();
                Ok((row.get::<_, i64>(0)?, format!("{entity} {key}{payload}")))
            })
            .unwrap();
        let mut events: Vec<_> = events.collect::<Result<_, _>>().unwrap();
        events.sort();
        events.into_iter().map(|(_, text)| text).collect()
    }

    /// Executes statements in one session and returns what its events say about the change: `key change columns`.
    #[track_caller]
    pub fn changes_by(&self, sql: &str) -> Vec<String> {
        self.events();
        self.run(sql);
        let sql =
            "delete from honeyflow_outbox returning id, entity_key, ifnull(change, '?'), ifnull(' ' || columns, '')";
        let mut statement = self.connection.prepare(sql).unwrap();
        let text = |row: &rusqlite::Row<'_>| -> rusqlite::Result<(i64, String)> {
            let (key, change, columns): (String, String, String) = (row.get(1)?, row.get(2)?, row.get(3)?);
            Ok((row.get(0)?, format!("{key} {change}{columns}")))
        };
        let mut events: Vec<_> = statement.query_map([], text).unwrap().collect::<Result<_, _>>().unwrap();
        events.sort();
        events.into_iter().map(|(_, text)| text).collect()
    }

    /// Executes statements in one session and returns the events that it created.
    #[track_caller]
    pub fn made_by(&self, sql: &str) -> Vec<String> {
        assert_eq!(self.events(), [""; 0], "events were left over");
        self.run(sql);
        self.events()
    }

    pub fn catalogue(&self) -> Vec<(String, String)> {
        self.connection
            .prepare("select name, coalesce(sql, '') from sqlite_master where name <> 'sqlite_sequence' order by name")
            .unwrap()
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap()
    }
}

pub fn key(name: &str, kind: KeyType) -> KeyColumn {
    KeyColumn { name: name.to_owned(), kind }
}

pub fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

pub fn columns(watched: &[&str]) -> Columns {
    Columns::Some(names(watched))
}

/// Returns a captured table with the integer key `id` and the columns `watched`.
pub fn table(name: &str, watched: &[&str]) -> CaptureTable {
    keyed(name, vec![key("id", KeyType::Integer)], watched)
}

pub fn keyed(name: &str, key: Vec<KeyColumn>, watched: &[&str]) -> CaptureTable {
    let (carried, reported) = (Vec::new(), Vec::new());
    CaptureTable { table: name.to_owned(), key, watched: columns(watched), carried, reported, priority: 4 }
}

pub fn reporting(capture: CaptureTable, reported: &[&str]) -> CaptureTable {
    CaptureTable { reported: names(reported), ..capture }
}

pub fn carrying(capture: CaptureTable, carried: &[&str]) -> CaptureTable {
    CaptureTable { carried: names(carried), ..capture }
}

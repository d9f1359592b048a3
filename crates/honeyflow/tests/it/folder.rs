//! A temporary folder with a shop, in which tests run the binary.

use std::{
    path::Path,
    process::{Command, Stdio},
};

pub struct Folder(tempfile::TempDir);

pub struct CommandOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub const SCHEMA: &str = "
    pragma journal_mode = wal;
    create table publisher (id integer primary key, name text not null);
    create table book (id integer primary key, title text not null, publisher_id integer references publisher(id));
    insert into publisher values (1, 'Hive');
    insert into book values (1, 'Bees', 1), (2, 'Honey', null);";

impl Folder {
    /// An empty folder.
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    /// A folder with `shop.db`.
    pub fn shop() -> Folder {
        let folder = Folder::new();
        folder.sql(SCHEMA);
        folder
    }

    /// A folder with `shop.db` and the configuration that `init` writes for it.
    pub fn configured() -> Folder {
        let folder = Folder::shop();
        let ran = folder.run(&["init", "sqlite:shop.db"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        folder
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn sql(&self, text: &str) {
        let connection = rusqlite::Connection::open(self.path().join("shop.db")).expect("a database");
        connection.execute_batch(text).expect("SQL");
    }

    pub fn rows(&self, query: &str) -> Vec<Vec<Option<String>>> {
        let connection = rusqlite::Connection::open(self.path().join("shop.db")).expect("a database");
        let mut statement = connection.prepare(query).expect("SQL");
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| (0..columns).map(|column| row.get(column)).collect();
        statement.query_map([], row).expect("rows").collect::<Result<_, _>>().expect("rows")
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("a file");
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).expect("a file")
    }

    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        let ran = Command::new(env!("CARGO_BIN_EXE_honeyflow"))
            .args(arguments)
            .current_dir(self.path())
            .env_remove("HONEYFLOW_CONFIG")
            .stdin(Stdio::null())
            .output()
            .expect("the binary");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        CommandOutput { code: ran.status.code().unwrap_or(-1), out: text(ran.stdout), err: text(ran.stderr) }
    }
}

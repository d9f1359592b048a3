//! A folder with a bookshop in SQLite and its configuration, in which tests run the binary.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rusqlite::Connection;
use serde_json::Value;

use crate::{namespace::Namespace, node::Node, wait};

pub const TABLE: &str = "(id integer primary key, title text not null, price real, tags text not null default '[]')";

/// Uses a free port and one attempt per step: other tests measure the pauses between attempts.
const CONFIG: &str = r#"
[node]
data   = "data"
listen = "127.0.0.1:0"

[source.shop]
url = "sqlite:shop.db"

[entity.book]
source   = "shop"
key      = ["id"]
json     = ["tags"]
document = "select id, title, price, tags from book where id in $keys"

[sink.book]
url   = "tantivy:book"
field = { title = "text", price = "decimal", tags = "keyword" }

[workflow.book]
on = [{ source = "shop", entity = "book" }]
step.load  = { use = "sql.load", tries = 1 }
step.index = { use = "search.index", needs = ["load"], into = "book", tries = 1 }
"#;

pub struct Shop {
    home: tempfile::TempDir,
    namespace: Option<Namespace>,
}

pub struct CommandOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Shop {
    /// Creates a shop with this number of books.
    pub fn new(books: u32) -> Shop {
        let shop = Shop { home: tempfile::tempdir().expect("a temporary folder"), namespace: None };
        shop.write_config(CONFIG);
        shop.make_database(books);
        shop
    }

    /// Creates a shop in which this folder is a small file system. The error says why that is not possible here.
    pub fn on_small_disk(books: u32, folder: &str, mebibytes: u32) -> Result<Shop, String> {
        let home = tempfile::tempdir().expect("a temporary folder");
        let namespace = Namespace::with_disk(&home.path().join(folder), mebibytes)?;
        let shop = Shop { home, namespace: Some(namespace) };
        shop.write_config(&CONFIG.replace("sqlite:shop.db", "sqlite:database/shop.db"));
        std::fs::create_dir_all(shop.path().join("database")).expect("a folder");
        shop.make_database(books);
        Ok(shop)
    }

    fn make_database(&self, books: u32) {
        self.sql(&format!("pragma journal_mode = wal; create table book {TABLE};"));
        self.insert(1, books);
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The folder as this process can reach it. SQLite cannot use this path, because it resolves the link into this
    /// process's own namespace.
    pub fn path(&self) -> PathBuf {
        let home = self.home.path();
        self.namespace.as_ref().map_or_else(|| home.to_owned(), |namespace| namespace.seen_from_here(home))
    }

    pub fn config(&self) -> String {
        std::fs::read_to_string(self.home().join("honeyflow.toml")).expect("a configuration")
    }

    pub fn write_config(&self, text: &str) {
        std::fs::write(self.home().join("honeyflow.toml"), text).expect("a file");
    }

    pub fn replace_in_config(&self, from: &str, to: &str) {
        let text = self.config();
        assert!(text.contains(from), "{from}\n{text}");
        self.write_config(&text.replace(from, to));
    }

    fn database_file(&self) -> PathBuf {
        self.home().join(if self.namespace.is_some() { "database/shop.db" } else { "shop.db" })
    }

    /// Opens the database as an application does.
    pub fn database(&self) -> Connection {
        assert!(self.namespace.is_none(), "the database is in another namespace: use sqlite3");
        let connection = Connection::open(self.database_file()).expect("a database");
        connection.busy_timeout(Duration::from_secs(30)).expect("a time-out");
        connection
    }

    pub fn sql(&self, text: &str) {
        if self.namespace.is_some() {
            self.sql_by_program(text);
            return;
        }
        self.database().execute_batch(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    }

    pub fn number(&self, query: &str) -> i64 {
        if self.namespace.is_some() {
            let answer = self.sqlite3(query).unwrap_or_else(|error| panic!("{error}: {query}"));
            return answer.trim().parse().unwrap_or_else(|error| panic!("{error}: {query}: {answer}"));
        }
        self.database().query_row(query, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{error}: {query}"))
    }

    /// Runs the sqlite3 program; returns its output, or its error.
    pub fn sqlite3(&self, text: &str) -> Result<String, String> {
        let mut command = self.program("sqlite3");
        command.args(["-bail", "-cmd", ".timeout 5000"]).arg(self.database_file());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the sqlite3 program");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(text.as_bytes()).expect("it reads");
        drop(input);
        let ran = child.wait_with_output().expect("the sqlite3 program");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if ran.status.success() { Ok(text(&ran.stdout)) } else { Err(text(&ran.stderr)) }
    }

    pub fn sql_by_program(&self, text: &str) {
        self.sqlite3(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    }

    /// A command that runs inside the shop's namespace, if it has one.
    fn program(&self, name: &str) -> Command {
        self.namespace.as_ref().map_or_else(|| Command::new(name), |namespace| namespace.enter(name))
    }

    /// Inserts the books `from` … `to` in one transaction.
    pub fn insert(&self, from: u32, to: u32) {
        let mut text = String::from("begin immediate;");
        for id in from..=to {
            let _ = write!(text, "insert into book values ({id}, 'Book {id}', {id}.5, '[\"paper\", {id}]');");
        }
        self.sql(&(text + "commit;"));
    }

    pub fn command(&self, verb: &[&str]) -> Command {
        self.command_with("honeyflow.toml", verb)
    }

    /// A command with this configuration file.
    pub fn command_with(&self, config: &str, verb: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_honeyflow"));
        command.args(verb).arg("--config").arg(self.home().join(config));
        command.env_remove("HONEYFLOW_CONFIG").current_dir(self.home());
        command
    }

    pub fn run(&self, verb: &[&str]) -> CommandOutput {
        let ran = self.command(verb).stdin(Stdio::null()).output().expect("the binary");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        CommandOutput { code: ran.status.code().unwrap_or(-1), out: text(ran.stdout), err: text(ran.stderr) }
    }

    pub fn run_well(&self, verb: &[&str]) -> CommandOutput {
        let ran = self.run(verb);
        assert_eq!(ran.code, 0, "{verb:?}: {}{}", ran.out, ran.err);
        ran
    }

    /// Runs a command and returns its lines of JSON.
    pub fn ask(&self, verb: &[&str]) -> Vec<Value> {
        let verb = [verb, &["--output", "json"]].concat();
        self.run_well(&verb).out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    pub fn launch(&self) -> Node {
        Node::launch(
            self.command(&["start", "--yes"]),
            &self.home().join("node.log"),
            self.path().join("data/node.json"),
        )
    }

    pub fn start(&self) -> Node {
        self.launch().ready()
    }

    /// All documents of a sink, by key.
    pub fn documents(&self, sink: &str) -> BTreeMap<String, Value> {
        let hits = self.ask(&["search", sink, "--all"]);
        hits.iter().map(|hit| (hit["key"].as_str().unwrap_or_default().to_owned(), hit["document"].clone())).collect()
    }

    pub fn parked(&self) -> Vec<Value> {
        self.ask(&["parked", "list", "--all"])
    }

    /// The number of rows in the outbox, delayed or not.
    pub fn waiting(&self) -> i64 {
        self.number("select count(*) from honeyflow_outbox")
    }

    pub fn until_quiet(&self, node: &Node) {
        let quiet = wait::within(wait::DEADLINE, || (self.waiting() == 0).then_some(()));
        if quiet.is_none() {
            let status = node.status().map_or_else(String::new, |status| status.to_string());
            panic!("{} rows are left in the outbox\n{status}\n{}", self.waiting(), node.log());
        }
    }

    /// Compares documents and rows with `honeyflow verify`, and with a comparison that shares no code with it.
    pub fn assert_equal(&self) {
        let verified = self.run(&["verify", "--output", "json"]);
        assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);
        let rows = self.sqlite3(".mode json\nselect id, title, price, tags from book order by id;").expect("rows");
        let rows: Vec<Value> = if rows.is_empty() { Vec::new() } else { serde_json::from_str(&rows).expect("JSON") };
        let wanted: Vec<_> = rows
            .iter()
            .map(|row| {
                let tags = row["tags"].as_str().map(|text| serde_json::from_str(text).expect("JSON"));
                (row["id"].as_i64(), row["title"].clone(), row["price"].as_f64(), tags.unwrap_or(Value::Null))
            })
            .collect();
        let documents = self.documents("book");
        let mut found: Vec<_> = documents
            .values()
            .map(|document| {
                let field = |name: &str| document[name].clone();
                (document["id"].as_i64(), field("title"), document["price"].as_f64(), field("tags"))
            })
            .collect();
        found.sort_by_key(|(id, ..)| *id);
        assert_eq!(found, wanted);
    }
}

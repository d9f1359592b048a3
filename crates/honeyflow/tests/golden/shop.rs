//! A shop on SQLite in which every kind of stored value occurs: indexed books, one that cannot be read and is parked, and a run that
//! has called a server in vain and sleeps.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::json::{is_word, paths};

const SCHEMA: &str = "
    pragma journal_mode = wal;
    create table publisher (id integer primary key, name text not null);
    create table book (id integer primary key, title text, isbn text unique, publisher_id integer references publisher(id));
    insert into publisher values (1, 'Hive');
    insert into book values (1, 'Bees', 'a', 1), (2, 'Honey', 'b', null), (3, cast(x'ff41' as text), 'c', null);";

const CONFIG: &str = r#"
[node]
name   = "a"
data   = "data"
listen = "127.0.0.1:0"

[source.shop]
url = "sqlite:shop.db"

[entity.publisher]
source   = "shop"
key      = ["id"]
document = "select id, name from publisher where id in $keys"

[entity.book]
source   = "shop"
key      = ["id"]
document = "select b.id, b.title, p.name as publisher from book b left join publisher p on p.id = b.publisher_id where b.id in $keys"

[[entity.book.edge]]
table = "publisher"
to    = "select id from book where publisher_id in $keys"

[sink.book]
url   = "tantivy:book"
field = { title = { type = "text", language = "en" }, publisher = "keyword" }

[limit.calls]
rate = "100/s"

[limit.few]
concurrent = 3

[workflow.book]
on = [{ source = "shop", entity = "book" }]
step.load  = { use = "sql.load", tries = 1 }
step.index = { use = "search.index", needs = ["load"], into = "book", tries = 1, limit = "few" }

[workflow.tell]
on = [{ source = "shop", entity = "publisher", existing = true }]
step.load  = { use = "sql.load", tries = 1 }
step.call  = { use = "http.call", needs = ["load"], url = "http://127.0.0.1:9/{.id}", http = true, allow-networks = ["127.0.0.0/8"], limit = "calls" }
step.pause = { use = "sleep", for = "1h", needs = ["load"] }
"#;

pub struct Shop {
    folder: tempfile::TempDir,
    node: Child,
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
    }
}

impl Shop {
    /// Starts a node and waits until it has done all that it can.
    pub fn worked() -> Shop {
        let shop = Shop::start(CONFIG, "");
        shop.until("one book is parked", || shop.count("select count(*) from honeyflow_parked") == 1);
        shop.until("a run sleeps", || shop.count("select count(*) from honeyflow_checkpoint") >= 1);
        shop.until("the queen has counted", || shop.count("select count(*) from hive_view where counted_ms > 0") == 1);
        shop.until("the node is engaged", || shop.json_of(&["hive", "list"])[0]["state"] == "engaged");
        shop
    }

    /// Starts a node whose hive is in another database.
    pub fn with_hive(url: &str, name: &str) -> Shop {
        Shop::start(&format!("[hive]\nurl = \"file:hive-address\"\nname = \"{name}\"\n{CONFIG}"), url)
    }

    fn start(config: &str, hive_address: &str) -> Shop {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let database = rusqlite::Connection::open(folder.path().join("shop.db")).expect("a database");
        database.execute_batch(SCHEMA).expect("SQL");
        write_private(&folder.path().join("hive-address"), hive_address);
        std::fs::write(folder.path().join("honeyflow.toml"), config).expect("a file");
        let node = binary(folder.path()).args(["start", "--yes"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let shop = Shop { folder, node: node.expect("the binary") };
        shop.until("two books are indexed", || shop.get("/v1/search?sink=book&q=honey").contains("Honey"));
        shop.until("the call has failed", || shop.get("/v1/runs").contains("\"retries\""));
        shop
    }

    pub fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn database(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.folder.path().join("shop.db")).expect("a database")
    }

    fn count(&self, query: &str) -> i64 {
        self.database().query_row(query, [], |row| row.get(0)).unwrap_or(0)
    }

    fn texts(&self, query: &str) -> Vec<String> {
        let database = self.database();
        let mut statement = database.prepare(query).expect("SQL");
        let rows = statement.query_map([], |row| row.get(0)).expect("rows");
        rows.collect::<Result<_, _>>().expect("rows")
    }

    /// Tables, indexes and triggers of ours, as SQLite holds them.
    pub fn schema(&self) -> String {
        let query = "select sql from sqlite_master where sql is not null and tbl_name || name like '%honeyflow%'
                     or sql is not null and tbl_name like 'hive%' order by type, name";
        self.texts(query).join("\n\n") + "\n"
    }

    fn tables(&self) -> Vec<String> {
        let query =
            "select name from sqlite_master where type = 'table' and (name like 'honeyflow%' or name like 'hive%')
                     order by name";
        self.texts(query)
    }

    /// Paths of stored JSON, and stored words.
    pub fn stored_names(&self) -> String {
        let mut found = BTreeSet::new();
        for table in self.tables() {
            for column in self.texts(&format!("select name from pragma_table_info('{table}')")) {
                let values = self
                    .texts(&format!("select cast(\"{column}\" as text) from {table} where \"{column}\" is not null"));
                for value in values {
                    match serde_json::from_str::<Value>(&value) {
                        Ok(json) => found.extend(paths(&[json]).iter().map(|path| format!("{table}.{column} {path}"))),
                        Err(_) if is_word(&value) => drop(found.insert(format!("{table}.{column} = {value}"))),
                        Err(_) => {}
                    }
                }
            }
        }
        found.into_iter().fold(String::new(), |text, line| text + &line + "\n")
    }

    /// What is compared at the next start: whether the triggers are those that are wanted, and how an index was made.
    pub fn fingerprints(&self) -> String {
        let capture =
            self.texts("select name || ' ' || value from honeyflow_meta where name in ('capture-wanted', 'schema')");
        let shape = std::fs::read_to_string(self.folder.path().join("data/index/book/1/shape")).expect("a shape");
        format!("{}\n\n{shape}", capture.join("\n"))
    }

    fn address(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.folder.path().join("data/node.json")).ok()?;
        serde_json::from_str::<Value>(&text).ok()?["address"].as_str().map(str::to_owned)
    }

    fn get(&self, path: &str) -> String {
        let Some(address) = self.address() else { return String::new() };
        let Ok(mut stream) = TcpStream::connect(&address) else { return String::new() };
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        let mut answer = Vec::new();
        let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_end(&mut answer));
        let answer = String::from_utf8_lossy(&answer);
        answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned())
    }

    /// Each metric with its type and the names of its labels.
    pub fn metrics(&self) -> String {
        let mut metrics: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let text = self.get("/metrics");
        for line in text.lines() {
            if let Some(line) = line.strip_prefix("# TYPE ") {
                metrics.entry(line.to_owned()).or_default();
            } else if let Some((name, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
                let labels = labels.split('}').next().unwrap_or_default();
                let labels = labels.split("\",").filter_map(|label| label.split_once('=')).map(|(label, _)| label);
                metrics.entry(name.to_owned()).or_default().extend(labels.map(str::to_owned));
            }
        }
        metrics.into_iter().fold(String::new(), |mut text, (name, labels)| {
            let _ = writeln!(text, "{name} {}", labels.into_iter().collect::<Vec<_>>().join(","));
            text
        })
    }

    /// What the JSON pages of the surface hold.
    pub fn http(&self) -> String {
        let mut text = String::new();
        for path in
            ["/health", "/ready", "/v1/status", "/v1/runs", "/v1/search?sink=book&q=bees", "/v1/search?sink=none"]
        {
            let _ = writeln!(text, "{path}");
            let value = serde_json::from_str(&self.get(path)).unwrap_or_default();
            for path in paths(&[value]) {
                let _ = writeln!(text, "  {path}");
            }
        }
        text
    }

    pub fn parked_id(&self) -> String {
        self.count("select id from honeyflow_parked").to_string()
    }

    /// Every JSON value that the command prints.
    pub fn json_of(&self, command: &[&str]) -> Vec<Value> {
        let ran = binary(self.folder.path()).args(command).args(["--output", "json"]).output().expect("the binary");
        let values = serde_json::Deserializer::from_slice(&ran.stdout).into_iter::<Value>();
        let values: Vec<Value> = values.map_while(Result::ok).collect();
        assert!(!values.is_empty(), "{command:?}: {}", String::from_utf8_lossy(&ran.stderr));
        values
    }
}

pub fn binary(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_honeyflow"));
    command.current_dir(folder).env_remove("HONEYFLOW_CONFIG").stdin(Stdio::null());
    command
}

/// Addresses hold passwords, so a node refuses a file that others can read.
pub fn write_private(file: &Path, text: &str) {
    std::fs::write(file, text).expect("a file");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(file, private).expect("permissions");
}

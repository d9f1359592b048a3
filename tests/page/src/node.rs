//! A small bookshop and the real binary that runs on it.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rusqlite::Connection;
use serde_json::Value;

use crate::{http, wait};

/// A name with markup: the page must show it as text.
pub const NAME: &str = "<i>node</i> & \"one\"";

const SCHEMA: &str = "
    pragma journal_mode = wal;
    create table book (id integer primary key, title text not null);
    insert into book values (1, 'The quiet meadow');";

const CONFIG: &str = r#"
[node]
data   = "data"
listen = "127.0.0.1:0"
name   = '''<i>node</i> & "one"'''

[source.shop]
url = "sqlite:shop.db"

[entity.book]
source   = "shop"
key      = ["id"]
document = "select id, title from book where id in $keys"

[sink.book]
url   = "tantivy:book"
field = { title = "text" }

[workflow.book]
on = [{ source = "shop", entity = "book" }]
step.load  = { use = "sql.load" }
step.shout = { use = "transform", needs = ["load"], expression = ". + { loud: (.title | ascii_upcase) }" }
step.index = { use = "search.index", needs = ["shout"], into = "book" }
"#;

pub struct Node {
    child: Child,
    pub address: String,
    home: tempfile::TempDir,
}

impl Node {
    pub fn start(binary: &Path) -> Result<Node, String> {
        let to_text = |error: std::io::Error| error.to_string();
        let home = tempfile::tempdir().map_err(to_text)?;
        std::fs::write(home.path().join("honeyflow.toml"), CONFIG).map_err(to_text)?;
        database(home.path())?.execute_batch(SCHEMA).map_err(|error| error.to_string())?;
        let log = std::fs::File::create(home.path().join("log")).map_err(to_text)?;
        let child = Command::new(binary)
            .args(["start", "--yes"])
            .current_dir(home.path())
            .env_remove("HONEYFLOW_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", binary.display()))?;
        let mut node = Node { child, address: String::new(), home };
        let found = wait::until("the node holds its lease", || {
            let text = std::fs::read_to_string(node.home.path().join("data/node.json")).ok()?;
            let address = serde_json::from_str::<Value>(&text).ok()?["address"].as_str()?.to_owned();
            let status = http::get(&address, "/v1/status").ok()?;
            status["engine"]["sources"][0]["epoch"].is_u64().then_some(address)
        });
        node.address = found.map_err(|error| format!("{error}\n{}", node.log()))?;
        Ok(node)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// Inserts books as the application would, in one transaction.
    pub fn insert(&self, from: i64, titles: &[String]) -> Result<(), String> {
        let insert = |mut connection: Connection| {
            let transaction = connection.transaction()?;
            for (id, title) in (from..).zip(titles) {
                transaction.execute("insert into book values (?1, ?2)", (id, title))?;
            }
            transaction.commit()
        };
        insert(database(self.home.path())?).map_err(|error: rusqlite::Error| error.to_string())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn database(home: &Path) -> Result<Connection, String> {
    let open = || {
        let connection = Connection::open(home.join("shop.db"))?;
        connection.busy_timeout(Duration::from_secs(30))?;
        Ok(connection)
    };
    open().map_err(|error: rusqlite::Error| error.to_string())
}

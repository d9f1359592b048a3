//! A bookshop on PostgreSQL, with nodes that call the recorder for each change.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use honeyflow_services::Service;
use serde_json::Value;

use crate::{node::Node, recorder::Recorder, wait};

pub struct Shop {
    home: tempfile::TempDir,
    server: Service,
    database: String,
    pub recorder: Recorder,
    port: u16,
}

pub struct CommandOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Shop {
    /// Creates the shop; none if there is no PostgreSQL server.
    pub fn new(books: u32) -> Option<Shop> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let server = honeyflow_services::postgres()?;
        let (recorder, port) = Recorder::serve();
        let database = format!("cluster_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let home = tempfile::tempdir().expect("a temporary folder");
        let shop = Shop { home, server, database, recorder, port };
        shop.psql_in("postgres", &format!("create database {}", shop.database));
        shop.psql(&format!(
            "create table author (id bigint primary key, name text not null);
             create table book (id bigint primary key, title text not null, author_id bigint not null);
             insert into author select n, 'author ' || n from generate_series(0, 9) n;
             insert into book select n, 'new', n % 10 from generate_series(1, {books}) n;"
        ));
        let address = shop.home().join("address");
        std::fs::write(&address, shop.url(&shop.database)).expect("a file");
        std::fs::set_permissions(address, PermissionsExt::from_mode(0o600)).expect("a file of ours");
        Some(shop)
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    fn url(&self, database: &str) -> String {
        let (address, _) = self.server.url.rsplit_once('/').expect("a URL");
        format!("{address}/{database}")
    }

    fn psql_in(&self, database: &str, statements: &str) -> String {
        let mut command = Command::new("psql");
        command.args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-d", &self.url(database), "-c", statements]);
        let ran = command.output().expect("psql");
        assert!(ran.status.success(), "{}\n{statements}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).expect("UTF-8").trim().to_owned()
    }

    /// Runs the statements in one transaction.
    pub fn psql(&self, statements: &str) -> String {
        self.psql_in(&self.database, statements)
    }

    /// Makes a backup with pg_dump.
    pub fn back_up(&self) -> PathBuf {
        let file = self.home().join("backup.sql");
        let mut command = Command::new("pg_dump");
        command.args(["--clean", "--if-exists", "-d", &self.url(&self.database), "-f"]).arg(&file);
        let ran = command.output().expect("pg_dump");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        file
    }

    /// Restores the backup in one transaction while nodes run. If the server aborts it because of them, it tries again.
    pub fn restore(&self, backup: &Path) {
        let mut message = String::new();
        let restored = wait::within(wait::DEADLINE, || {
            let mut command = Command::new("psql");
            command.args(["-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", "-d", &self.url(&self.database), "-f"]);
            let ran = command.arg(backup).output().expect("psql");
            message = String::from_utf8_lossy(&ran.stderr).into_owned();
            ran.status.success().then_some(())
        });
        assert!(restored.is_some(), "{message}");
    }

    pub fn number(&self, query: &str) -> i64 {
        self.psql(query).parse().unwrap_or_else(|error| panic!("{error}: {query}"))
    }

    /// Writes a configuration for a node with this name; `more` is added to `[node]`.
    pub fn configure(&self, name: &str, more: &str) {
        let port = self.port;
        let text = format!(
            r#"
[node]
name   = "{name}"
data   = "data-{name}"
listen = "127.0.0.1:0"
drain  = "20s"
{more}

[hive]
heartbeat    = "2s"
time-to-live = "8s"

[source.shop]
url = "file:address"

[entity.book]
source    = "shop"
key       = ["id"]
document  = "select b.id, b.title, a.name as author from book b join author a on a.id = b.author_id where b.id in $keys"

[[entity.book.edge]]
table = "author"
to    = "select id from book where author_id in $keys"

[workflow.book]
on = [{{ source = "shop", entity = "book" }}]
step.load = {{ use = "sql.load" }}
step.call = {{ use = "http.call", needs = ["load"], url = "http://127.0.0.1:{port}/{{.id}}", method = "POST", http = true, allow-networks = ["127.0.0.0/8"] }}
"#
        );
        std::fs::write(self.home().join(format!("{name}.toml")), text).expect("a file");
    }

    fn command(&self, name: &str, verb: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_honeyflow"));
        command.args(verb).arg("--config").arg(self.home().join(format!("{name}.toml")));
        command.env_remove("HONEYFLOW_CONFIG").current_dir(self.home());
        command
    }

    pub fn launch(&self, name: &str) -> Node {
        let (log, place) =
            (self.home().join(format!("{name}.log")), self.home().join(format!("data-{name}/node.json")));
        Node::launch(self.command(name, &["start", "--yes"]), &log, place)
    }

    /// Configures and starts a node, and waits until it holds shards.
    pub fn start(&self, name: &str) -> Node {
        self.configure(name, "");
        self.launch(name).ready()
    }

    pub fn run(&self, name: &str, verb: &[&str]) -> CommandOutput {
        let ran = self.command(name, verb).stdin(Stdio::null()).output().expect("the binary");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        CommandOutput { code: ran.status.code().unwrap_or(-1), out: text(ran.stdout), err: text(ran.stderr) }
    }

    /// Runs a command and returns its lines of JSON.
    pub fn ask(&self, name: &str, verb: &[&str]) -> Vec<Value> {
        let ran = self.run(name, &[verb, &["--output", "json"]].concat());
        assert_eq!(ran.code, 0, "{verb:?}: {}{}", ran.out, ran.err);
        ran.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// The number of shards that a node holds, according to the rows.
    pub fn shards(&self, name: &str) -> i64 {
        self.number(&format!(
            "select count(*) from hive_lease l join hive_node n on n.hive = l.hive and n.id = l.holder
             where l.name like 'shard/%' and n.name = '{name}'"
        ))
    }

    pub fn until_shared(&self, names: &[&str]) {
        let all = i64::try_from(names.len()).expect("a few");
        wait::until(&format!("shards are shared by {names:?}"), || {
            let held: Vec<i64> = names.iter().map(|name| self.shards(name)).collect();
            let even = held.iter().all(|held| (64 / all..=64 / all + 1).contains(held));
            (even && held.iter().sum::<i64>() == 64).then_some(())
        });
    }

    pub fn queen(&self) -> String {
        wait::until("there is a queen", || {
            let name = self.psql(
                "select n.name from hive_lease l join hive_node n on n.hive = l.hive and n.id = l.holder where l.name = 'queen'",
            );
            (!name.is_empty()).then_some(name)
        })
    }

    /// Changes rows and inserts an event for each, in one transaction, as an application does.
    pub fn change(&self, title: &str, books: &str) {
        self.psql(&format!(
            "begin; update book set title = '{title}' where {books};
             insert into honeyflow_outbox(entity, entity_key) select 'book', id from book where {books}; commit"
        ));
    }

    pub fn until_quiet(&self, nodes: &[&Node]) {
        let quiet = wait::within(2 * wait::DEADLINE, || {
            (self.number("select count(*) from honeyflow_outbox") == 0).then_some(())
        });
        if quiet.is_none() {
            let left = self.psql("select shard, count(*), min(created_at) from honeyflow_outbox group by 1 limit 20");
            let reports: Vec<String> =
                nodes.iter().map(|node| format!("{}\n{}", node.status().unwrap_or_default(), node.log())).collect();
            panic!("rows are left in the outbox:\n{left}\n{}", reports.join("\n"));
        }
    }

    /// Checks that the last call for each book contained its row, and that the recorder noticed nothing wrong.
    pub fn assert_done(&self) {
        let rows =
            self.psql("select b.id || '|' || b.title || '|' || a.name from book b join author a on a.id = b.author_id");
        for row in rows.lines() {
            let mut parts = row.split('|');
            let (id, title, author) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
            let call = self.recorder.last(id);
            assert_eq!((call["title"].as_str(), call["author"].as_str()), (title, author), "book {id}: {call}");
        }
        assert_eq!(self.recorder.wrong(), Vec::<String>::new());
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let drop = format!("drop database if exists {} with (force)", self.database);
        let _ = Command::new("psql").args(["-X", "-q", "-d", &self.url("postgres"), "-c", &drop]).output();
    }
}

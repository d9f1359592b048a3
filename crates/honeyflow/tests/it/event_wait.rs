//! `event.wait`, and `when` in `on`, on a real database with nodes that are killed.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::folder::Folder;

const SCHEMA: &str = "
    pragma journal_mode = wal;
    create table orders (id integer primary key, customer text not null, total integer not null);
    create table draft (id integer primary key, note text not null);";

const CONFIG: &str = r#"
[node]
listen = "127.0.0.1:0"

[source.shop]
url = "sqlite:shop.db"

[entity.orders]
source   = "shop"
key      = ["id"]
document = "select id, customer, total from orders where id in $keys"

[entity.draft]
source   = "shop"
key      = ["id"]
document = "select id, note from draft where id in $keys"

[sink.shipped]
url   = "tantivy:shipped"
field = { customer = "text" }

[sink.reminded]
url   = "tantivy:reminded"
field = { note = "text" }

[workflow.ship]
on = [{ source = "shop", entity = "orders", existing = true }]
step.load  = { use = "sql.load" }
step.paid  = { use = "event.wait", needs = ["load"], name = "payment", key = "$run.key", match = "$event.payload.amount >= $steps.load.total", timeout = "1h" }
step.shape = { use = "transform", needs = ["load", "paid"], expression = ".load + { paid: .paid.payload.amount }" }
step.index = { use = "search.index", needs = ["shape"], into = "shipped" }

[workflow.hurry]
on = [{ source = "shop", entity = "draft", when = '$event.key != "9"' }]
step.answer = { use = "event.wait", name = "answer", timeout = "1s" }

[workflow.remind]
on = [{ source = "shop", entity = "draft", when = '$event.key != "9"', existing = true }]
step.load   = { use = "sql.load" }
step.answer = { use = "event.wait", needs = ["load"], name = "answer", timeout = "1s", on-timeout = "skip" }
step.index  = { use = "search.index", needs = ["load", "answer"], trigger = "none-failed", into = "reminded" }
"#;

/// A node that is killed, never drained.
struct Node(Child);

impl Node {
    fn start(folder: &Folder) -> Node {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.path().join("node.log"));
        let child = Command::new(env!("CARGO_BIN_EXE_honeyflow"))
            .args(["start", "--yes"])
            .current_dir(folder.path())
            .env_remove("HONEYFLOW_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a log"))
            .spawn();
        Node(child.expect("the binary"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(folder: &Folder, what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain: {what}\n{}", diagnostics(folder));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The log, the runs and the explained keys, for a failure message.
fn diagnostics(folder: &Folder) -> String {
    let runs = folder.run(&["run", "list"]).out;
    let explained: String = (1..=3).map(|order| folder.run(&["explain", "orders", &order.to_string()]).out).collect();
    format!("{}\n{runs}\n{explained}", folder.read("node.log"))
}

fn until_installed(folder: &Folder) {
    until(folder, "the triggers are installed", || folder.run(&["source", "show"]).out.contains("as they should be"));
}

fn until_awaiting(folder: &Folder, key: &str) {
    until(folder, "it waits", || folder.run(&["run", "show", key]).out.contains("waits for: awaiting"));
}

fn number(folder: &Folder, query: &str) -> i64 {
    let connection = rusqlite::Connection::open(folder.path().join("shop.db")).expect("a database");
    connection.query_row(query, [], |row| row.get(0)).expect("a number")
}

fn documents(folder: &Folder, sink: &str) -> Vec<Value> {
    let found = folder.run(&["search", sink, "--all", "--output", "json"]).out;
    let lines = found.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.map(|hit| hit["document"].clone()).collect()
}

fn until_shipped(folder: &Folder, order: i64, paid: i64) {
    until(folder, "it is shipped", || {
        documents(folder, "shipped").iter().any(|document| document["id"] == order && document["paid"] == paid)
    });
}

fn pay(folder: &Folder, order: i64, amount: i64) {
    folder.sql(&format!(
        "insert into honeyflow_outbox(kind, entity, entity_key, payload)
         values ('message', 'payment', '{order}', '{{\"amount\": {amount}}}');"
    ));
}

fn shop() -> Folder {
    let folder = Folder::new();
    folder.sql(SCHEMA);
    folder.write("honeyflow.toml", CONFIG);
    let checked = folder.run(&["check"]);
    assert_eq!(checked.code, 0, "{}", checked.out);
    folder
}

/// WF-35: the event arrives while the run waits, before it waits, and while no node runs; the node is killed each time.
#[test]
fn wf_35_a_wait_survives_kills() {
    let folder = shop();
    let node = Node::start(&folder);
    until_installed(&folder);
    folder.sql("insert into orders values (1, 'Ada', 10);");
    until_awaiting(&folder, "1");
    let explained = folder.run(&["explain", "orders", "1"]).out;
    assert!(explained.contains("waits for: awaiting"), "{explained}");
    drop(node);
    let node = Node::start(&folder);
    until_awaiting(&folder, "1");
    pay(&folder, 1, 9);
    pay(&folder, 1, 11);
    until_shipped(&folder, 1, 11);

    // The event arrives before a run waits: the signal is stored, and the outbox row is deleted.
    pay(&folder, 2, 20);
    until(&folder, "the signal is stored", || {
        number(&folder, "select count(*) from honeyflow_signal where signal_key = '2'") == 1
            && number(&folder, "select count(*) from honeyflow_outbox") == 0
    });
    drop(node);
    let node = Node::start(&folder);
    folder.sql("insert into orders values (2, 'Ben', 15);");
    until_shipped(&folder, 2, 20);

    folder.sql("insert into orders values (3, 'Cy', 5);");
    until_awaiting(&folder, "3");
    drop(node);
    pay(&folder, 3, 5);
    let _node = Node::start(&folder);
    until_shipped(&folder, 3, 5);
    until(&folder, "the outbox is empty", || number(&folder, "select count(*) from honeyflow_outbox") == 0);
    assert_eq!(number(&folder, "select count(*) from honeyflow_checkpoint"), 0, "each wait ended exactly once");
    assert_eq!(documents(&folder, "shipped").len(), 3);
    assert_eq!(folder.run(&["parked", "list"]).out, "");
}

/// WF-23: an event for which no `when` is true starts no run.
#[test]
fn wf_35_a_wait_ends_at_its_timeout() {
    let folder = shop();
    let _node = Node::start(&folder);
    until_installed(&folder);
    folder.sql("insert into draft values (1, 'first'), (9, 'not for us');");
    until(&folder, "it is reminded", || !documents(&folder, "reminded").is_empty());
    until(&folder, "the outbox is empty", || number(&folder, "select count(*) from honeyflow_outbox") == 0);
    let parked = folder.run(&["parked", "list", "--output", "json"]).out;
    let parked: Vec<Value> = parked.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [failed] = &parked[..] else { panic!("{parked:?}") };
    assert_eq!(
        (failed["workflow"].as_str(), failed["key"].as_str(), failed["code"].as_str(), failed["step"].as_str()),
        (Some("hurry"), Some("1"), Some("wait-timeout"), Some("answer"))
    );
    let reminded = documents(&folder, "reminded");
    assert_eq!(reminded.iter().map(|document| document["id"].as_i64()).collect::<Vec<_>>(), [Some(1)]);
}

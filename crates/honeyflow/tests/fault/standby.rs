//! Two nodes on one SQLite database, each with its own data folder: one works, the other is a standby, unless one of
//! them has an embedded index.

use crate::{http_call::Scripted, node::Node, shop::Shop, wait};

/// A shop whose changes are only sent to a server, with a second configuration for a standby node.
fn calling_shop(books: u32) -> (Shop, std::sync::Arc<Scripted>) {
    let (scripted, port) = Scripted::serve();
    let shop = Shop::new(books);
    let text = shop.config();
    let (head, _) = text.split_once("[sink.book]").expect("a sink");
    let workflow = format!(
        r#"
[workflow.book]
on = [{{ source = "shop", entity = "book" }}]
step.load = {{ use = "sql.load" }}
step.call = {{ use = "http.call", needs = ["load"], url = "http://127.0.0.1:{port}/{{.id}}/{{.title}}", method = "POST", http = true, allow-networks = ["127.0.0.0/8"] }}
"#
    );
    // A busy machine may delay a process for seconds; that must not expire a node.
    let times = "\n[hive]\nheartbeat = \"3s\"\ntime-to-live = \"12s\"\n";
    let text = format!("{head}{times}{workflow}").replace("[node]\n", "[node]\nname = \"first\"\n");
    shop.write_config(&text);
    let text = text.replace("\"first\"", "\"second\"").replace("\"data\"", "\"other\"");
    std::fs::write(shop.home().join("other.toml"), text).expect("a file");
    (shop, scripted)
}

fn second(shop: &Shop) -> Node {
    let command = shop.command_with("other.toml", &["start", "--yes"]);
    Node::launch(command, &shop.home().join("second.log"), shop.home().join("other/node.json"))
}

fn stands_by(node: &Node) {
    node.until("it is a member and holds nothing", |status| {
        let nodes = status["hives"][0]["nodes"].as_array()?;
        let ready = status["node"]["ready"].as_bool()?;
        (nodes.len() == 2 && ready && status["engine"]["sources"][0]["epoch"].is_null()).then_some(())
    });
}

fn titled(scripted: &Scripted, title: &str) -> usize {
    let mut paths: Vec<String> = scripted.paths().into_iter().filter(|path| path.ends_with(title)).collect();
    paths.sort();
    paths.dedup();
    paths.len()
}

/// HV-39, HV-92: kernel locks show that the node is dead; the standby does not wait for a time-to-live.
#[test]
fn hv_39_a_standby_takes_over_when_the_first_is_killed() {
    let (shop, scripted) = calling_shop(50);
    let first = shop.start();
    let second = second(&shop);
    stands_by(&second);
    shop.until_quiet(&first);
    let epoch = first.epoch();
    shop.sql("update book set title = 'before'");
    first.kill();
    shop.sql("update book set title = 'after'");
    assert!(second.epoch() > epoch);
    shop.until_quiet(&second);
    assert_eq!(titled(&scripted, "/after"), 50);
    let first = shop.launch();
    stands_by(&first);
    second.stop();
    shop.sql("update book set title = 'third'");
    shop.until_quiet(&first);
    assert_eq!(titled(&scripted, "/third"), 50);
}

#[test]
fn hv_45_a_stopped_node_transfers_its_lease_to_the_standby() {
    let (shop, scripted) = calling_shop(20);
    let first = shop.start();
    let second = second(&shop);
    stands_by(&second);
    shop.until_quiet(&first);
    first.stop();
    shop.sql("update book set title = 'handed over'");
    shop.until_quiet(&second);
    assert_eq!(titled(&scripted, "/handed%20over"), 20);
    assert_eq!(
        shop.number("select count(*) from hive_event where kind = 'buried'"),
        0,
        "the node has left; it was not removed as dead"
    );
}

/// A node with an embedded index must see every event, so it works alone, no matter which node starts first.
#[test]
fn hv_39_no_node_works_beside_a_node_with_an_embedded_index() {
    let indexing = Shop::new(30);
    let with_index = indexing.config();
    let (shop, _scripted) = calling_shop(30);
    std::fs::write(shop.home().join("index.toml"), with_index.replace("\"data\"", "\"indexed\"")).expect("a file");
    let index = || {
        let command = shop.command_with("index.toml", &["start", "--yes"]);
        Node::launch(command, &shop.home().join("index.log"), shop.home().join("indexed/node.json"))
    };
    let refused = |node: Node| assert_eq!(node.wait().code(), Some(1));
    let plain = shop.start();
    let pid = plain.pid();
    refused(index());
    let log = std::fs::read_to_string(shop.home().join("index.log")).expect("a log");
    assert!(log.contains("another-node") && log.contains(&pid.to_string()) && log.contains("[sink.book]"), "{log}");
    plain.kill();
    let _indexer = index().ready();
    refused(second(&shop));
    let log = std::fs::read_to_string(shop.home().join("second.log")).expect("a log");
    assert!(log.contains("another-node") && log.contains("[sink.book]"), "{log}");
    wait::until("the node with the index continues", || (shop.waiting() == 0).then_some(()));
}

/// HV-23: after a file is restored under its nodes, no node takes a lease until an operator accepts it.
#[test]
fn hv_23_leases_of_a_restored_file_are_taken_again_once_it_is_accepted() {
    let (shop, scripted) = calling_shop(20);
    let first = shop.start();
    shop.until_quiet(&first);
    let backup = shop.home().join("backup.db");
    shop.sql_by_program(&format!(".backup {}", backup.display()));
    let second = second(&shop);
    stands_by(&second);
    shop.run_well(&["hive", "hand-over", "--lease", "shard/shop/0", "--to", "second"]);
    let epoch = second.epoch();
    let restored = wait::within(wait::DEADLINE, || shop.sqlite3(&format!(".restore {}", backup.display())).ok());
    assert!(restored.is_some(), "it cannot be restored");
    for node in [&first, &second] {
        node.until("it holds no lease", |status| {
            let held = status["hives"][0]["hold"] == "restore";
            (held && status["engine"]["sources"][0]["epoch"].is_null()).then_some(())
        });
    }
    shop.sql("update book set title = 'held'");
    assert_eq!(shop.waiting(), 20, "no node processes the events");
    assert_eq!(shop.ask(&["hive", "accept-restore", "--yes"])[0]["accepted"], true);
    shop.until_quiet(&first);
    assert_eq!(titled(&scripted, "/held"), 20);
    assert!(
        shop.number("select epoch from hive_lease where name = 'shard/shop/0'") > i64::try_from(epoch).expect("small")
    );
    assert_eq!(shop.run(&["hive", "accept-restore", "--yes"]).code, 1, "it can be accepted only once");
    first.stop();
    second.stop();
}

/// HV-32: also with every node stopped.
#[test]
fn hv_32_the_hive_of_a_file_is_listed_and_shown() {
    let (shop, _scripted) = calling_shop(5);
    assert!(shop.ask(&["hive", "list"]).is_empty(), "no node has joined yet");
    let first = shop.start();
    let second = second(&shop);
    stands_by(&second);
    let listed = wait::until("a queen is listed", || {
        Some(shop.ask(&["hive", "list"])).filter(|rows| rows.iter().any(|row| row["queen"] == true))
    });
    let names: Vec<_> = listed.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["first", "second"], "{listed:?}");
    assert_eq!(listed[0]["shards"], 1);
    let shown = &shop.ask(&["hive", "show"])[0];
    assert_eq!(shown["shards"][0]["by"][0]["node"], "first", "{shown}");
    let watched = shop.ask(&["hive", "watch", "--looks", "1"]);
    assert_eq!(watched[0]["nodes"].as_array().map(Vec::len), Some(2));
    let why = shop.ask(&["hive", "why", "--lease", "shard/shop/0"]);
    assert_eq!(why.last().expect("a term")["what"], "taken", "{why:?}");
    assert_eq!(shop.run(&["hive", "why", "--at", "never"]).code, 2);
    assert_eq!(shop.run(&["hive", "why", "--at", "3650d"]).code, 1, "there are no events from that time");
    first.stop();
    second.stop();
    let shown = &shop.ask(&["hive", "show"])[0];
    assert_eq!((shown["alive"].as_u64(), shown["queen"].is_null()), (Some(0), true), "{shown}");
}

/// F55: a standby of a new version may take over from a node of an earlier one at any time.
#[test]
fn f55_a_standby_migrates_the_tables_while_the_first_node_still_works() {
    let (shop, scripted) = calling_shop(3);
    let first = shop.start();
    shop.until_quiet(&first);
    let database = shop.database();
    let names = |query: &str| -> Vec<String> {
        let mut found = database.prepare(query).expect("SQL");
        found.query_map([], |row| row.get(0)).expect("names").collect::<Result<_, _>>().expect("names")
    };
    let mut earlier = "begin immediate;".to_owned();
    for trigger in names("select name from sqlite_master where type = 'trigger'") {
        earlier.push_str(&format!("drop trigger \"{trigger}\";"));
    }
    for table in ["outbox", "parked", "signal"] {
        earlier.push_str(&format!("alter table honeyflow_{table} drop column change;"));
        earlier.push_str(&format!("alter table honeyflow_{table} drop column columns;"));
    }
    shop.sql(&(earlier + "update honeyflow_meta set value = '1' where name = 'schema'; commit;"));
    let second = second(&shop);
    wait::until("the tables are migrated", || {
        (shop.number("select cast(value as integer) from honeyflow_meta where name = 'schema'") > 1).then_some(())
    });
    first.kill();
    wait::until("the triggers are back", || {
        (shop.number("select count(*) from sqlite_master where type = 'trigger'") > 0).then_some(())
    });
    shop.sql("update book set title = 'after'");
    wait::until("the changes are told", || (titled(&scripted, "/after") == 3).then_some(()));
    shop.until_quiet(&second);
    second.stop();
}

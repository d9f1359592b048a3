//! Commands on a source in PostgreSQL.

use std::{
    os::unix::fs::PermissionsExt,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use honeyflow_services::Service;
use serde_json::Value;

use crate::{
    folder::Folder,
    rebuild::{Node, until},
};

const CONFIG: &str = r#"
[node]
listen = "127.0.0.1:0"

[source.shop]
url = "file:address"

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
step.index = { use = "search.index", needs = ["load"], into = "book" }
"#;

/// A database with two books, and a folder with its configuration.
struct Shop {
    folder: Folder,
    server: Service,
    database: String,
}

impl Shop {
    /// None if there is no server; that has then been printed.
    fn new() -> Option<Shop> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let server = honeyflow_services::postgres()?;
        let database = format!("it_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let shop = Shop { folder: Folder::new(), server, database };
        shop.psql_in("postgres", &format!("drop database if exists {}", shop.database));
        shop.psql_in("postgres", &format!("create database {}", shop.database));
        shop.psql(
            "create table book (id bigint primary key, title text); insert into book values (1, 'Bees'), (2, 'Honey')",
        );
        shop.folder.write("address", &shop.url(&shop.database));
        let private = PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(shop.folder.path().join("address"), private).expect("a file of ours");
        shop.folder.write("honeyflow.toml", CONFIG);
        Some(shop)
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

    fn psql(&self, statements: &str) -> String {
        self.psql_in(&self.database, statements)
    }

    /// Tables, functions and triggers.
    fn catalogue(&self) -> String {
        self.psql(
            "select relname from pg_class where relnamespace = 'public'::regnamespace
             union all select proname from pg_proc where pronamespace = 'public'::regnamespace
             union all select tgname from pg_trigger where not tgisinternal order by 1",
        )
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let drop = format!("drop database if exists {} with (force)", self.database);
        let _ = Command::new("psql").args(["-X", "-q", "-d", &self.url("postgres"), "-c", &drop]).output();
    }
}

/// In the table, in JSON, in the summary of `check`, and in the printed statements.
#[test]
fn ob_19_commands_say_which_triggers_there_are() {
    let Some(shop) = Shop::new() else { return };
    let shown = |arguments: &[&str]| shop.folder.run(arguments).out;
    assert!(shown(&["source", "show"]).contains("not installed"));
    let printed = shown(&["source", "install", "--print"]);
    assert!(printed.contains("create trigger \"honeyflow_update\" after update on \"public\".\"book\""), "{printed}");
    let asked = shop.folder.run(&["start"]);
    assert!(asked.err.contains("triggers on book") && !asked.err.contains("WAL"), "{}", asked.err);
    let installed = shop.folder.run(&["source", "install", "--yes"]);
    assert_eq!(installed.code, 0, "{}", installed.err);
    assert!(installed.err.contains("4 triggers created, 0 replaced, 0 removed, 0 unchanged"), "{}", installed.err);
    let again = shop.folder.run(&["source", "upgrade"]);
    assert!(again.err.contains("0 triggers created, 0 replaced, 0 removed, 4 unchanged"), "{}", again.err);
    let json: Value = serde_json::from_str(&shown(&["source", "show", "--output", "json"])).unwrap();
    assert_eq!(json["triggers"], "as they should be");
    shop.psql("drop trigger honeyflow_insert on book");
    let table = shown(&["source", "show"]);
    assert!(table.contains("1 missing or changed: honeyflow source upgrade"), "{table}");
    let checked = shown(&["check"]);
    assert!(checked.contains("capture installed"), "{checked}");
}

/// The application writes nothing into the outbox. Changes while no node runs, and those while triggers were switched
/// off, reach the index too.
#[test]
fn ob_10_the_index_follows_the_tables_of_a_postgresql_database() {
    let Some(shop) = Shop::new() else { return };
    let equal = |total: &str| {
        let verified = shop.folder.run(&["verify"]);
        verified.code == 0
            && format!("{}{}", verified.out, verified.err).contains(total)
            && shop.psql("select count(*) from honeyflow_outbox") == "0"
    };
    let rows = || shop.psql("select count(*) from book");
    let node = Node::start(&shop.folder);
    until(|| equal("2"));
    shop.psql("insert into book select n, 'Book ' || n from generate_series(3, 50) n");
    shop.psql("update book set title = 'Wasps' where id = 1; update book set id = 99 where id = 2; delete from book where id = 3");
    assert_eq!(rows(), "49");
    until(|| equal("49"));
    shop.psql(
        "alter table book disable trigger all; delete from book where id = 4; update book set title = 'x' where id = 5",
    );
    until(|| {
        shop.psql("select count(*) from pg_trigger where tgname like 'honeyflow\\_%' and tgenabled = 'O' and tgrelid = 'book'::regclass") == "4"
    });
    until(|| equal("48"));
    drop(node);
    shop.psql("update book set title = 'Hornets'; delete from book where id = 10");
    assert_eq!(shop.psql("select count(*) from honeyflow_outbox"), "49");
    let node = Node::start(&shop.folder);
    until(|| equal("47"));
    shop.psql("truncate book; insert into book values (1, 'alone')");
    until(|| equal("1"));
    drop(node);
    until(|| !shop.folder.run(&["source", "uninstall", "--yes"]).err.contains("another-node"));
    assert_eq!(shop.psql("select count(*) from pg_trigger where not tgisinternal"), "0");
    assert_eq!(shop.psql("select count(*) from pg_proc where proname like 'honeyflow%'"), "0");
    shop.psql("insert into book values (2, 'free')");
}

/// The address may also come from a reference.
#[test]
fn ob_25_init_says_that_it_does_not_read_postgresql_yet() {
    let Some(shop) = Shop::new() else { return };
    let ran = shop.folder.run(&["init", "file:address", "--force"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    for part in ["does not read PostgreSQL yet", "[entity.NAME] with key and document"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert_eq!(shop.folder.read("honeyflow.toml"), CONFIG);
}

/// Also removes the tables of the hive and the function of the outbox; without that, the next installation would fail.
#[test]
fn ob_19_a_source_on_postgresql_is_uninstalled_and_installed_again() {
    let Some(shop) = Shop::new() else { return };
    // Tables of the application, although their names begin like ours.
    shop.psql("create table hive_inspection(id int); create table honeyflow_notes(id int)");
    let before = shop.catalogue();
    let node = Node::start(&shop.folder);
    let is_done =
        || shop.folder.run(&["verify"]).code == 0 && shop.psql("select count(*) from honeyflow_outbox") == "0";
    until(is_done);
    let uninstall = |more: &[&str]| shop.folder.run(&[&["source", "uninstall", "--yes"], more].concat());
    for more in [&[][..], &["--force"]] {
        let refused = uninstall(more);
        assert_eq!(refused.code, 1, "{}", refused.err);
        assert!(refused.err.contains("another-node") && refused.err.contains("stop it first"), "{}", refused.err);
    }
    drop(node);
    // The node was killed: until its row expires, it may be alive.
    until(|| !uninstall(&[]).err.contains("another-node"));
    assert_eq!(shop.catalogue(), before);
    let again = uninstall(&[]);
    assert!(again.err.contains("is not installed"), "{}", again.err);

    let installed = shop.folder.run(&["source", "install", "--yes"]);
    assert_eq!(installed.code, 0, "{}", installed.err);
    shop.psql("insert into honeyflow_outbox(entity, entity_key) values ('book', '1')");
    let refused = uninstall(&[]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("outbox-not-empty") && refused.err.contains("1 events are left"), "{}", refused.err);
    assert_eq!(shop.psql("select count(*) from honeyflow_outbox"), "1");
    let removed = uninstall(&["--force"]);
    assert_eq!(removed.code, 0, "{}", removed.err);
    assert!(removed.err.contains("rm -r data/index/book"), "{}", removed.err);
    assert_eq!(shop.catalogue(), before);

    std::fs::remove_dir_all(shop.folder.path().join("data/index/book")).unwrap();
    let _node = Node::start(&shop.folder);
    until(is_done);
}

/// The tables as an earlier release has installed them.
#[test]
fn f55_a_start_migrates_the_tables_of_an_earlier_version_on_postgresql() {
    let Some(shop) = Shop::new() else { return };
    let installed = shop.folder.run(&["source", "install", "--yes"]);
    assert_eq!(installed.code, 0, "{}", installed.err);
    for table in ["honeyflow_outbox", "honeyflow_parked", "honeyflow_signal"] {
        shop.psql(&format!("alter table {table} drop column change, drop column columns"));
    }
    shop.psql("update honeyflow_meta set value = '1' where name = 'schema'");
    let _node = Node::start(&shop.folder);
    until(|| shop.folder.run(&["verify"]).code == 0);
    assert_ne!(shop.psql("select value from honeyflow_meta where name = 'schema'"), "1");
}

/// The source is installed; the second node has an empty data folder.
#[test]
fn ob_110_a_start_that_is_refused_queues_no_row() {
    let Some(shop) = Shop::new() else { return };
    let _node = Node::start(&shop.folder);
    let is_done =
        || shop.folder.run(&["verify"]).code == 0 && shop.psql("select count(*) from honeyflow_outbox") == "0";
    until(is_done);
    let events = || shop.psql("select last_value from pg_sequences where sequencename like 'honeyflow_outbox%'");
    let before = events();
    shop.folder.write("other.toml", &CONFIG.replace("[node]\n", "[node]\ndata = \"other\"\n"));
    let refused = shop.folder.run(&["start", "--yes", "--config", "other.toml"]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("error[another-node]"), "{}", refused.err);
    assert_eq!(events(), before, "{}", refused.err);
}

/// As after a crash between the rows and the position, or on a node that has read the position a moment too early.
#[test]
fn ob_114_a_fill_that_begins_twice_queues_each_row_once() {
    let Some(shop) = Shop::new() else { return };
    let node = Node::start(&shop.folder);
    until(|| shop.folder.run(&["verify"]).code == 0 && shop.psql("select count(*) from honeyflow_outbox") == "0");
    drop(node);
    let events = || shop.psql("select last_value from pg_sequences where sequencename like 'honeyflow_outbox%'");
    let before = events();
    let position = "noun = 'reindex' and name = 'book/book'";
    let begin = r#"{"after":null,"events":0,"done":false}"#;
    let changed = shop.psql(&format!("update honeyflow_task set state = '{begin}' where {position} returning 1"));
    assert_eq!(changed, "1");
    let _node = Node::start(&shop.folder);
    until(|| shop.psql(&format!("select state from honeyflow_task where {position}")).contains("\"done\":true"));
    assert_eq!(events(), before);
}

/// The look for other nodes comes after the node has left the hive: it does not find itself.
#[test]
fn ob_110_a_reload_does_not_refuse_its_own_node() {
    let Some(shop) = Shop::new() else { return };
    let _node = Node::start(&shop.folder);
    until(|| shop.folder.run(&["verify"]).code == 0);
    shop.folder.write("honeyflow.toml", &CONFIG.replace("[node]\n", "[node]\nname = \"renamed\"\n"));
    until(|| shop.psql("select count(*) from hive_node where name = 'renamed'") == "1");
    shop.psql("insert into book values (3, 'Wax')");
    until(|| shop.folder.run(&["search", "book", "wax"]).out.contains("Wax"));
}

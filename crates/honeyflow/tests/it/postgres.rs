//! Commands on a source in PostgreSQL, where nothing captures changes yet: the application inserts its events.

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

/// In the table, in JSON, and in the summary of `check`.
#[test]
fn ob_4_no_command_speaks_of_triggers_that_do_not_exist() {
    let Some(shop) = Shop::new() else { return };
    let shown = |arguments: &[&str]| shop.folder.run(arguments).out;
    assert!(shown(&["source", "show"]).contains("not installed"));
    let installed = shop.folder.run(&["source", "install", "--yes"]);
    assert_eq!(installed.code, 0, "{}", installed.err);
    let table = shown(&["source", "show"]);
    assert!(table.contains("none: the application inserts the events"), "{table}");
    assert!(!table.contains("as they should be"), "{table}");
    let json: Value = serde_json::from_str(&shown(&["source", "show", "--output", "json"])).unwrap();
    assert_eq!(json["triggers"], "none: the application inserts the events");
    let checked = shown(&["check"]);
    assert!(checked.contains("no capture: the application inserts the events"), "{checked}");
    assert!(!checked.contains("capture installed"), "{checked}");
}

/// The address may also come from a reference.
#[test]
fn ob_25_init_says_that_it_does_not_read_postgresql_yet() {
    let Some(shop) = Shop::new() else { return };
    let ran = shop.folder.run(&["init", "file:address", "--force"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    for part in ["does not read PostgreSQL yet", "[entity.NAME] with key and document", "inserts its events"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert_eq!(shop.folder.read("honeyflow.toml"), CONFIG);
}

/// Also removes the tables of the hive and the function of the outbox; without that, the next installation would fail.
#[test]
fn ob_19_a_source_on_postgresql_is_uninstalled_and_installed_again() {
    let Some(shop) = Shop::new() else { return };
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

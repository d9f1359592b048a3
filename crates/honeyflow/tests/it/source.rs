//! `honeyflow source …`, and other commands that read the store without a node.

use super::{
    folder::Folder,
    rebuild::{Node, until},
};

#[test]
fn ob_19_install_upgrade_uninstall() {
    let folder = Folder::configured();
    let printed = folder.run(&["source", "install", "--print"]);
    assert_eq!(printed.code, 0, "{}", printed.err);
    assert!(printed.out.to_uppercase().contains("CREATE TRIGGER"), "{}", printed.out);
    assert_eq!(folder.run(&["source", "install"]).code, 2, "without a terminal it needs --yes");
    assert!(folder.run(&["source", "list"]).out.contains("not installed"), "neither command has changed anything");
    assert_eq!(folder.run(&["source", "upgrade", "--yes"]).code, 2, "there is nothing to upgrade");
    let first = folder.run(&["source", "install", "--yes"]);
    assert_eq!(first.code, 0, "{}", first.err);
    let second = folder.run(&["source", "install", "--yes"]);
    assert!(second.err.contains("0 triggers created, 0 replaced, 0 removed"), "{}", second.err);
    let shown = folder.run(&["source", "show"]);
    assert!(shown.out.contains("as they should be"), "{}{}", shown.out, shown.err);
    folder.sql("update book set title = 'More bees' where id = 1;");
    let status = folder.run(&["status", "--output", "json"]);
    let row: serde_json::Value = serde_json::from_str(&status.out).unwrap();
    assert_eq!((row["source"].as_str(), row["waiting"].as_u64()), (Some("shop"), Some(1)));
    let refused = folder.run(&["source", "uninstall", "--yes"]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    folder.sql("delete from honeyflow_outbox;");
    assert!(folder.run(&["source", "uninstall", "--print"]).out.contains("DROP TABLE \"honeyflow_outbox\";"));
    let removed = folder.run(&["source", "uninstall", "--yes"]);
    assert_eq!(removed.code, 0, "{}", removed.err);
    assert!(folder.run(&["source", "list"]).out.contains("not installed"));
}

/// The printed statements and the installed tables are the same.
#[test]
fn ob_19_tables_are_installed_on_postgresql() {
    let Some(server) = honeyflow_services::postgres() else { return };
    let folder = Folder::new();
    let (address, _) = server.url.rsplit_once('/').unwrap();
    let name = format!("install_{}", std::process::id());
    let psql = |database: &str, statement: &str| {
        let ran = std::process::Command::new("psql")
            .args(["-X", "-q", "-t", "-A", "-d", &format!("{address}/{database}"), "-c", statement])
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    };
    psql("postgres", &format!("drop database if exists {name}"));
    psql("postgres", &format!("create database {name}"));
    folder.write("address", &format!("{address}/{name}"));
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(folder.path().join("address"), private).unwrap();
    folder.write("honeyflow.toml", "[source.shop]\nurl = \"file:address\"\n");
    let printed = folder.run(&["source", "install", "--print"]);
    assert_eq!(printed.code, 0, "{}", printed.err);
    assert!(printed.out.contains("create table honeyflow_outbox"), "{}", printed.out);
    assert!(printed.out.contains("-- grant insert on honeyflow_outbox"), "{}", printed.out);
    assert_eq!(folder.run(&["source", "install"]).code, 2, "without a terminal it needs --yes");
    assert_eq!(psql(&name, "select count(*) from pg_tables where schemaname = 'public'"), "0", "nothing has changed");
    let first = folder.run(&["source", "install", "--yes"]);
    assert_eq!(first.code, 0, "{}", first.err);
    assert_eq!(psql(&name, "select value from honeyflow_meta where name = 'shards'"), "64");
    let second = folder.run(&["source", "install", "--yes"]);
    assert_eq!(second.code, 0, "{}", second.err);
    psql(&name, "insert into honeyflow_outbox(entity, entity_key) values ('book', '42')");
    assert_eq!(
        psql(&name, "select shard from honeyflow_outbox"),
        honeyflow_event::shard::compute("", "book", "42", 64).to_string()
    );
    let listed = folder.run(&["source", "list"]);
    assert!(listed.out.contains("installed"), "{}{}", listed.out, listed.err);
    psql("postgres", &format!("drop database {name}"));
}

/// Also removes the tables of the hive.
#[test]
fn ob_19_after_an_uninstallation_the_catalogue_is_as_before() {
    let folder = Folder::configured();
    folder.write("honeyflow.toml", &folder.read("honeyflow.toml").replace("127.0.0.1:7171", "127.0.0.1:0"));
    // SQLite's own table of sequence numbers cannot be removed.
    let catalogue =
        || folder.rows("select type, name, sql from sqlite_master where name not like 'sqlite%' order by 1, 2");
    let files = || {
        let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut ours: Vec<_> = entries.filter(|name| name.to_string_lossy().contains("honeyflow")).collect();
        ours.sort();
        ours
    };
    let (before, files_before) = (catalogue(), files());
    let node = Node::start(&folder);
    // A document can be found before its event is acknowledged.
    until(|| folder.run(&["verify"]).code == 0 && folder.rows("select 'left' from honeyflow_outbox").is_empty());
    let refused = folder.run(&["source", "uninstall", "--yes"]);
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("another-node"), "{}", refused.err);
    drop(node);
    assert!(catalogue().len() > before.len());
    assert!(folder.run(&["source", "uninstall", "--print"]).out.contains("DROP TABLE \"hive_lease\";"));
    let removed = folder.run(&["source", "uninstall", "--yes"]);
    assert_eq!(removed.code, 0, "{}", removed.err);
    assert_eq!((catalogue(), files()), (before, files_before));
}

#[test]
fn workflows_are_listed_shown_paused_and_resumed() {
    let folder = Folder::configured();
    let shown = folder.run(&["workflow", "show", "book"]);
    assert!(
        shown.out.contains("● load [sql.load]") && shown.out.contains("● index [search.index] ⇒ book  ← load"),
        "{}",
        shown.out
    );
    assert!(
        folder.run(&["workflow", "list"]).out.contains("shop.book"),
        "the list also works before anything is installed"
    );
    assert_eq!(folder.run(&["source", "install", "--yes"]).code, 0);
    assert_eq!(folder.run(&["workflow", "pause", "book", "--why", "the index moves"]).code, 0);
    assert!(folder.run(&["workflow", "list"]).out.contains("the index moves"));
    assert_eq!(folder.run(&["workflow", "resume", "book"]).code, 0);
    assert!(!folder.run(&["workflow", "list"]).out.contains("the index moves"));
}

#[test]
fn explain_shows_what_is_stored_about_a_key() {
    let folder = Folder::configured();
    assert_eq!(folder.run(&["source", "install", "--yes"]).code, 0);
    folder.sql("update book set title = 'Bees, again' where id = 1;");
    let ran = folder.run(&["explain", "book", "1"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for line in ["\"title\":\"Bees, again\"", "event     ", "sink      book: absent"] {
        assert!(ran.out.contains(line), "{line}\n{}", ran.out);
    }
    let json: serde_json::Value =
        serde_json::from_str(&folder.run(&["explain", "book", "1", "-o", "json"]).out).unwrap();
    assert_eq!(
        (json["document"]["publisher"].as_str(), json["events"].as_array().map(Vec::len)),
        (Some("Hive"), Some(1))
    );
    assert!(folder.run(&["explain", "book", "99"]).out.contains("none: there is no such row"));
}

/// OB-85
#[test]
fn explain_also_shows_the_open_runs_of_the_node() {
    let folder = Folder::configured();
    folder.write("honeyflow.toml", &folder.read("honeyflow.toml").replace("127.0.0.1:7171", "127.0.0.1:0"));
    let node = Node::start(&folder);
    until(|| folder.run(&["verify"]).code == 0);
    assert_eq!(folder.run(&["workflow", "pause", "book"]).code, 0);
    // The pause takes effect within a few seconds; a change before that is processed.
    until(|| {
        folder.sql("update book set title = title || '!' where id = 1;");
        folder.run(&["explain", "book", "1"]).out.contains("waits for: paused: honeyflow workflow resume book")
    });
    // A busy node may answer too late, so try again.
    until(|| {
        let explained = folder.run(&["explain", "book", "1"]).out;
        explained.contains("open      book for ") && explained.contains(", at load, ")
    });
    until(|| {
        let json = folder.run(&["explain", "book", "1", "-o", "json"]).out;
        serde_json::from_str::<serde_json::Value>(&json).is_ok_and(|json| json["open"][0]["waits_for"] == "paused")
    });
    drop(node);
    assert!(!folder.run(&["explain", "book", "1"]).out.contains("open      "), "no node has an open run");
}

#[test]
fn at_first_no_event_is_parked_and_no_row_is_indexed() {
    let folder = Folder::configured();
    assert_eq!(folder.run(&["source", "install", "--yes"]).code, 0);
    let list = folder.run(&["parked", "list"]);
    assert_eq!((list.code, list.out.as_str()), (0, ""), "{}", list.err);
    assert_eq!(folder.run(&["parked", "show", "1"]).code, 1);
    assert_eq!(folder.run(&["parked", "retry", "--all"]).code, 1);
    let search = folder.run(&["search", "book", "bees"]);
    assert_eq!((search.code, search.out.as_str()), (0, ""), "{}", search.err);
}

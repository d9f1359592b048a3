//! Installs and uninstalls triggers.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use honeyflow_store::{CaptureTable, Columns};
use honeyflow_store_sqlite::{capture, catalogue, schema};
use rusqlite::Connection;

use crate::shop::{Shop, carrying, keyed, table};

const BOOK: &str = "create table book (id integer primary key, isbn text unique, title text, publisher_id integer);";

#[test]
fn ob_19_the_triggers_of_a_table() {
    let shop = Shop::plain(BOOK, &[]);
    let wanted = [carrying(table("book", &["title"]), &["publisher_id"])];
    let ddl = capture::plan(&wanted, &catalogue::read(&shop.connection).unwrap()).unwrap();
    insta::assert_snapshot!(ddl, @r#"
    CREATE TRIGGER "honeyflow: run honeyflow source upgrade (book) insert" AFTER INSERT ON "book"
    BEGIN
      INSERT INTO honeyflow_outbox (entity, entity_key, change, format, payload) VALUES ('book', CAST(NEW."id" AS TEXT), 'insert', 2, 'new.publisher_id:' || typeof(NEW."publisher_id") || ':' || hex(NEW."publisher_id"));
    END;

    CREATE TRIGGER "honeyflow: run honeyflow source upgrade (book) update" AFTER UPDATE ON "book"
    WHEN (OLD."id" COLLATE BINARY IS NOT NEW."id"
      OR OLD."publisher_id" COLLATE BINARY IS NOT NEW."publisher_id"
      OR OLD."title" COLLATE BINARY IS NOT NEW."title")
    BEGIN
      INSERT INTO honeyflow_outbox (entity, entity_key, change, format, payload) VALUES ('book', CAST(NEW."id" AS TEXT), CASE WHEN OLD."id" COLLATE BINARY IS NOT NEW."id" THEN 'insert' ELSE 'update' END, 2, 'old.publisher_id:' || typeof(OLD."publisher_id") || ':' || hex(OLD."publisher_id") || ';' || 'new.publisher_id:' || typeof(NEW."publisher_id") || ':' || hex(NEW."publisher_id"));
    END;

    CREATE TRIGGER "honeyflow: run honeyflow source upgrade (book) update key" AFTER UPDATE ON "book"
    WHEN (OLD."id" COLLATE BINARY IS NOT NEW."id")
    BEGIN
      INSERT INTO honeyflow_outbox (entity, entity_key, change, format, payload) VALUES ('book', CAST(OLD."id" AS TEXT), 'delete', 2, 'old.publisher_id:' || typeof(OLD."publisher_id") || ':' || hex(OLD."publisher_id") || ';' || 'new.publisher_id:' || typeof(NEW."publisher_id") || ':' || hex(NEW."publisher_id"));
    END;

    CREATE TRIGGER "honeyflow: run honeyflow source upgrade (book) delete" AFTER DELETE ON "book"
    BEGIN
      INSERT INTO honeyflow_outbox (entity, entity_key, change, format, payload) VALUES ('book', CAST(OLD."id" AS TEXT), 'delete', 2, 'old.publisher_id:' || typeof(OLD."publisher_id") || ':' || hex(OLD."publisher_id"));
    END;

    CREATE TRIGGER "honeyflow: run honeyflow source upgrade (book) before insert" BEFORE INSERT ON "book"
    BEGIN
      INSERT INTO honeyflow_outbox (entity, entity_key, format, payload) SELECT 'book', CAST(r."id" AS TEXT), 2, 'old.publisher_id:' || typeof(r."publisher_id") || ':' || hex(r."publisher_id") FROM "book" AS r WHERE r."isbn" = NEW."isbn" COLLATE "BINARY";
      INSERT INTO honeyflow_outbox (entity, entity_key, format, payload) SELECT 'book', CAST(r."id" AS TEXT), 2, 'old.publisher_id:' || typeof(r."publisher_id") || ':' || hex(r."publisher_id") FROM "book" AS r WHERE r.rowid = NEW.rowid;
    END;

    CREATE TRIGGER "honeyflow: run honeyflow source upgrade (book) before update" BEFORE UPDATE ON "book"
    WHEN (OLD."isbn" COLLATE BINARY IS NOT NEW."isbn"
      OR OLD.rowid IS NOT NEW.rowid)
    BEGIN
      INSERT INTO honeyflow_outbox (entity, entity_key, format, payload) SELECT 'book', CAST(r."id" AS TEXT), 2, 'old.publisher_id:' || typeof(r."publisher_id") || ':' || hex(r."publisher_id") FROM "book" AS r WHERE r."isbn" = NEW."isbn" COLLATE "BINARY" AND (OLD."isbn" COLLATE BINARY IS NOT NEW."isbn") AND r.rowid IS NOT OLD.rowid;
      INSERT INTO honeyflow_outbox (entity, entity_key, format, payload) SELECT 'book', CAST(r."id" AS TEXT), 2, 'old.publisher_id:' || typeof(r."publisher_id") || ':' || hex(r."publisher_id") FROM "book" AS r WHERE r.rowid = NEW.rowid AND (OLD.rowid IS NOT NEW.rowid) AND r.rowid IS NOT OLD.rowid;
    END;
    "#);
}

#[test]
fn ob_12_triggers_use_only_syntax_of_an_old_sqlite() {
    let shop = Shop::plain(
        "create table a (id integer primary key, b text unique, c as (b) unique); create table d (e blob, f) strict;"
            .replace(" strict", "")
            .as_str(),
        &[],
    );
    let wanted = [
        carrying(CaptureTable { watched: Columns::All, ..table("a", &[]) }, &["b"]),
        carrying(keyed("d", vec![], &["e"]), &["f"]),
    ];
    let ddl = capture::plan(&wanted, &catalogue::read(&shop.connection).unwrap()).unwrap().to_lowercase();
    for word in
        ["->", "strict", "distinct", "unixepoch", "json", "returning", "printf", "format(", "concat", "iif", "nulls "]
    {
        assert!(!ddl.contains(word), "{word} in {ddl}");
    }
}

#[test]
fn ob_19_a_second_install_changes_nothing() {
    let wanted = [table("book", &["title"])];
    let mut shop = Shop::plain(BOOK, &wanted);
    let before = (shop.catalogue(), schema_version(&shop));
    for again in [capture::install, capture::upgrade, capture::reinstall] {
        let changes = again(&mut shop.connection, &wanted).unwrap();
        assert!(changes.is_empty() && changes.unchanged == 6, "{changes:?}");
        assert_eq!((shop.catalogue(), schema_version(&shop)), before);
    }
}

#[test]
fn ob_19_an_upgrade_replaces_changed_triggers_and_drops_unneeded_ones() {
    let setup = format!("{BOOK} create table author (id integer primary key, name text);");
    let mut shop = Shop::plain(&setup, &[table("book", &["title"]), table("author", &["name"])]);
    let wanted = [table("book", &["isbn"])];
    let changes = capture::upgrade(&mut shop.connection, &wanted).unwrap();
    assert_eq!((changes.created.len(), changes.replaced.len(), changes.dropped.len()), (0, 1, 4), "{changes:?}");
    assert_eq!(shop.made_by("insert into author values (1, 'a')"), [""; 0]);
    assert_eq!(shop.made_by("insert into book(id, isbn) values (1, 'x')"), ["book 1"]);
    assert_eq!(shop.made_by("update book set title = 't'"), [""; 0]);
    assert_eq!(shop.made_by("update book set isbn = 'y'"), ["book 1"]);
}

#[test]
fn ob_19_there_is_never_a_moment_without_capture() {
    let shop = Shop::plain(BOOK, &[table("book", &["title"])]);
    shop.connection.pragma_update(None, "journal_mode", "wal").unwrap();
    let open = || {
        let connection = Connection::open(&shop.path).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        connection.pragma_update(None, "synchronous", "off").unwrap();
        connection
    };
    let (writer, mut upgrader) = (open(), open());
    let upgraded = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let upgraded = &upgraded;
        let writer = scope.spawn(move || {
            let mut written = 0;
            while !upgraded.load(Ordering::Relaxed) || written < 100 {
                writer.execute("insert into book(title) values ('x')", []).unwrap();
                written += 1;
            }
            written
        });
        for round in 0..40 {
            let wanted = [CaptureTable { priority: 4 + round % 2, ..table("book", &["isbn"]) }];
            assert!(!capture::upgrade(&mut upgrader, &wanted).unwrap().is_empty());
        }
        upgraded.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    assert_eq!(shop.events().len(), written);
}

#[test]
fn ob_19_an_aborted_upgrade_leaves_the_old_triggers() {
    let mut shop = Shop::plain(BOOK, &[table("book", &["title"])]);
    let before = shop.catalogue();
    let wanted = [table("book", &["isbn"]), table("nowhere", &[])];
    assert_eq!(capture::upgrade(&mut shop.connection, &wanted).unwrap_err().code, "missing-table");
    let wanted = [table("book", &["isbn", "nothing"])];
    assert_eq!(capture::upgrade(&mut shop.connection, &wanted).unwrap_err().code, "missing-column");
    assert_eq!(shop.catalogue(), before);
}

#[test]
fn ob_19_uninstall_leaves_the_catalogue_as_before() {
    let mut connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(&format!("{BOOK} create trigger own after insert on book begin select 1; end;")).unwrap();
    let catalogue = |connection: &Connection| -> Vec<String> {
        let mut statement = connection.prepare("select coalesce(sql, name) from sqlite_master").unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).filter(|sql: &String| !sql.contains("sqlite_sequence")).collect()
    };
    let before = catalogue(&connection);
    schema::migrate(&mut connection).unwrap();
    capture::install(&mut connection, &[table("book", &["title"])]).unwrap();
    assert_ne!(catalogue(&connection), before);
    connection.execute("insert into book(id) values (1)", []).unwrap();
    let refused = capture::uninstall(&mut connection, false).unwrap_err();
    assert_eq!(refused.code, "outbox-not-empty");
    assert!(refused.message.starts_with("1 event"), "{refused}");
    assert_ne!(catalogue(&connection), before);
    capture::uninstall(&mut connection, true).unwrap();
    assert_eq!(catalogue(&connection), before);
    capture::uninstall(&mut connection, false).unwrap();
}

#[test]
fn ob_19_nothing_is_installed_without_the_outbox() {
    let mut connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(BOOK).unwrap();
    let refused = capture::install(&mut connection, &[table("book", &["title"])]).unwrap_err();
    assert_eq!(refused.code, "missing-table");
}

#[test]
fn ob_20_a_table_that_cannot_be_captured_is_refused() {
    let mut shop = Shop::plain(
        "create table t (a text primary key, b text) without rowid; create view v as select a from t;
         create table u (rowid, oid, _rowid_);",
        &[],
    );
    for (wanted, code) in [
        (keyed("v", vec![], &[]), "not-capturable"),
        (keyed("t", vec![], &[]), "not-capturable"),
        (keyed("u", vec![], &[]), "not-capturable"),
        (table("t", &[]), "missing-column"),
    ] {
        assert_eq!(capture::install(&mut shop.connection, &[wanted]).unwrap_err().code, code);
    }
}

#[test]
fn ob_8_other_encodings_are_refused_only_where_values_are_carried() {
    let mut connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(&format!("pragma encoding = 'UTF-16le'; {BOOK}")).unwrap();
    schema::migrate(&mut connection).unwrap();
    capture::install(&mut connection, &[table("book", &["title"])]).unwrap();
    let wanted = [carrying(table("book", &["title"]), &["publisher_id"])];
    assert_eq!(capture::install(&mut connection, &wanted).unwrap_err().code, "encoding");
}

fn schema_version(shop: &Shop) -> i64 {
    shop.connection.query_row("select schema_version from pragma_schema_version", [], |row| row.get(0)).unwrap()
}

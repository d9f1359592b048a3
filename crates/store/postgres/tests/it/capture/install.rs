//! Installs and uninstalls triggers.

use std::process::Command;

use honeyflow_store_postgres::{Options, PostgresStore};

use super::{Captured, carrying, keyed, table};
use crate::{Shop, number, run};

const BOOK: &str = "create table book (id int primary key, isbn text unique, title text, publisher_id int);";

#[tokio::test]
async fn ob_19_a_second_install_changes_nothing() {
    let wanted = [table("book", &["title"])];
    let Some(mut shop) = Captured::new(BOOK, &wanted).await else { return };
    const STATE: &str = "select sum(xmin::text::bigint)::bigint from
        (select xmin from pg_trigger union all select xmin from honeyflow_meta
         union all select xmin from pg_proc where proname like 'honeyflow%') t";
    let before = number(&mut shop.application, STATE).await;
    for changes in [shop.store.install_capture(&wanted).await, shop.store.reinstall_capture(&wanted).await] {
        let changes = changes.unwrap();
        assert!(changes.is_empty() && changes.unchanged == 4, "{changes:?}");
    }
    assert_eq!(number(&mut shop.application, STATE).await, before);
}

#[tokio::test]
async fn ob_19_an_upgrade_replaces_changed_triggers_and_drops_unneeded_ones() {
    let setup = format!("{BOOK} create table author (id int primary key, name text);");
    let wanted = [table("book", &["title"]), table("author", &["name"])];
    let Some(mut shop) = Captured::new(&setup, &wanted).await else { return };
    let changes = shop.store.install_capture(&[table("book", &["isbn"])]).await.unwrap();
    assert_eq!((changes.created.len(), changes.replaced.len(), changes.dropped.len()), (0, 1, 4), "{changes:?}");
    assert_eq!(shop.made_by("insert into author values (1, 'a')").await, [""; 0]);
    assert_eq!(shop.made_by("insert into book(id, isbn) values (1, 'x')").await, ["book 1"]);
    assert_eq!(shop.made_by("update book set title = 't'").await, [""; 0]);
    assert_eq!(shop.made_by("update book set isbn = 'y'").await, ["book 1"]);
}

/// A table that the application holds is waited for, briefly and then again.
#[tokio::test]
async fn ob_19_an_install_waits_for_the_application() {
    let Some(mut shop) = Captured::new(BOOK, &[]).await else { return };
    shop.run("begin; insert into book(id) values (1)").await;
    let store = shop.store.clone();
    let installed = tokio::spawn(async move { store.install_capture(&[table("book", &["title"])]).await });
    tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
    let mut other = shop.shop.connect().await;
    run(&mut other, "set statement_timeout = 4000; insert into book(id) values (2)").await;
    shop.run("commit").await;
    assert_eq!(installed.await.unwrap().unwrap().created.len(), 4);
}

#[tokio::test]
async fn ob_19_two_nodes_may_install_at_once() {
    let Some(mut shop) = Captured::new(BOOK, &[]).await else { return };
    let wanted = [table("book", &["title"])];
    let other = PostgresStore::open(Options::new(&shop.shop.url, "shop").unwrap()).await.unwrap();
    for _ in 0..5 {
        let (one, two) = tokio::join!(shop.store.install_capture(&wanted), other.install_capture(&wanted));
        assert_eq!(one.unwrap().created.len() + two.unwrap().created.len(), 4);
        shop.store.install_capture(&[]).await.unwrap();
    }
    assert_eq!(shop.made_by("insert into book(id) values (1)").await, [""; 0]);
}

#[tokio::test]
async fn ob_19_tables_that_cannot_be_captured_are_refused() {
    let setup = "create table parted (id int, day date) partition by range (day);
        create table parted_1 partition of parted for values from ('2024-01-01') to ('2025-01-01');
        create table parent (id int); create table child () inherits (parent);
        create unlogged table scratch (id int); create view seen as select 1 as id;
        create materialized view kept as select 1 as id; create table bare (id int);";
    let Some(shop) = Captured::new(setup, &[]).await else { return };
    let cases = [
        ("parted", "partitioned"),
        ("parted_1", "inheritance"),
        ("parent", "inheritance"),
        ("child", "inheritance"),
        ("scratch", "unlogged"),
        ("seen", "is a view"),
        ("kept", "is a view"),
    ];
    for (name, why) in cases {
        let failure = shop.store.install_capture(&[table(name, &[])]).await.unwrap_err();
        assert_eq!(failure.code, "not-capturable", "{failure}");
        assert!(failure.message.contains(why) && failure.message.contains(name), "{failure}");
    }
    assert_eq!(shop.store.install_capture(&[keyed("bare", vec![], &["id"])]).await.unwrap_err().code, "not-capturable");
    // Names are compared as the database compares them.
    assert_eq!(shop.store.install_capture(&[table("Bare", &[])]).await.unwrap_err().code, "missing-table");
    assert_eq!(shop.store.install_capture(&[table("bare", &["ID"])]).await.unwrap_err().code, "missing-column");
}

/// The statements are what an installation runs.
#[tokio::test]
async fn ob_19_the_printed_statements_install_the_same() {
    let Some(shop) = Shop::bare().await else { return };
    let mut application = shop.connect().await;
    run(&mut application, BOOK).await;
    let store = PostgresStore::open(shop.options()).await.unwrap();
    let wanted = [carrying(table("book", &["title"]), &["publisher_id"])];
    let printed = store.capture_plan(&wanted).await.unwrap();
    store.migrate().await.unwrap();
    run(&mut application, &printed).await;
    run(&mut application, "insert into book values (1, 'x', 'y', 2)").await;
    assert_eq!(number(&mut application, "select count(*) from honeyflow_outbox where payload is not null").await, 1);
    assert_eq!(store.install_capture(&wanted).await.unwrap().created.len(), 0);
}

#[tokio::test]
async fn ob_19_an_uninstall_leaves_the_schema_as_it_was() {
    let Some(shop) = Shop::bare().await else { return };
    let mut application = shop.connect().await;
    run(&mut application, &format!("{BOOK} create table \"Odd one\" (id int primary key);")).await;
    let before = dump(&shop);
    let store = PostgresStore::open(shop.options()).await.unwrap();
    store.migrate().await.unwrap();
    store.install_capture(&[table("book", &["title"]), table("Odd one", &[])]).await.unwrap();
    run(&mut application, "insert into book(id) values (1)").await;
    assert_eq!(store.uninstall(false).await.unwrap_err().code, "outbox-not-empty");
    run(&mut application, "insert into book(id) values (2)").await;
    assert_eq!(
        number(&mut application, "select count(*) from honeyflow_outbox").await,
        2,
        "the triggers are still there"
    );
    let plan = store.uninstall_plan().await.unwrap();
    assert_eq!(plan.lines().filter(|line| line.starts_with("DROP TRIGGER")).count(), 8, "{plan}");
    store.uninstall(true).await.unwrap();
    assert_eq!(dump(&shop), before);
    run(&mut application, "insert into book(id) values (3)").await;
}

/// The schema as `pg_dump` writes it, without the random words of newer versions.
fn dump(shop: &Shop) -> String {
    let ran = Command::new("pg_dump").args(["-s", "-d", &shop.url]).output().expect("pg_dump");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = String::from_utf8(ran.stdout).unwrap();
    text.lines()
        .filter(|line| !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict"))
        .map(|line| format!("{line}\n"))
        .collect()
}

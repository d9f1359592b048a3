//! How migrations of the application change triggers, and how the drift is found.

use honeyflow_store::{
    CaptureTable, Columns,
    capture::{DriftKind, Misfit},
};

use super::{Captured, table};

const BOOK: &str = "create table book (id int primary key, title text, used text);";

fn wanted() -> [CaptureTable; 1] {
    [table("book", &["title", "used"])]
}

async fn assert_found_and_repaired(shop: &mut Captured, what: DriftKind, case: &str) {
    let report = shop.store.capture_drift(&wanted()).await.unwrap();
    assert!(report.drifts.iter().any(|drift| drift.what == what), "{case}: {report:?}");
    assert_eq!(report.tables(), ["book"], "{case}");
    shop.store.reinstall_capture(&wanted()).await.unwrap();
    let report = shop.store.capture_drift(&wanted()).await.unwrap();
    assert!(report.is_empty(), "{case}: {report:?}");
    shop.run("delete from book where id = 99").await;
    shop.events().await;
    assert_eq!(shop.made_by("insert into book(id) values (99)").await, ["book 99"], "{case}");
    assert_eq!(shop.made_by("update book set used = 'x' where id = 99").await, ["book 99"], "{case}");
    assert_eq!(shop.made_by("delete from book where id = 99").await, ["book 99"], "{case}");
}

#[tokio::test]
async fn ob_20_no_drift_after_an_install() {
    let Some(mut shop) = Captured::new(BOOK, &wanted()).await else { return };
    assert!(shop.store.capture_drift(&wanted()).await.unwrap().is_empty());
    shop.run("create table other (a int); alter table book add column unused int default 7").await;
    shop.run("vacuum full book").await;
    assert!(shop.store.capture_drift(&wanted()).await.unwrap().is_empty(), "unrelated changes");
}

#[tokio::test]
async fn ob_20_a_trigger_that_was_changed_is_found_and_repaired() {
    let Some(mut shop) = Captured::new(BOOK, &wanted()).await else { return };
    let cases = [
        ("drop trigger honeyflow_update on book", DriftKind::Missing),
        ("drop trigger honeyflow_truncate on book", DriftKind::Missing),
        ("alter table book disable trigger honeyflow_insert", DriftKind::Changed),
        ("alter table book disable trigger all; alter table book enable trigger all", DriftKind::Changed),
        ("drop function honeyflow_capture_book cascade", DriftKind::Missing),
        (
            "create or replace function honeyflow_capture_book() returns trigger language plpgsql as
               $$ begin return null; end $$",
            DriftKind::Changed,
        ),
        (
            "drop trigger honeyflow_update on book; create trigger honeyflow_update after update on book for each row
               when (old.title <> new.title) execute function honeyflow_capture_book()",
            DriftKind::Changed,
        ),
        ("alter table book drop column used cascade; alter table book add column used text", DriftKind::Missing),
        (
            "drop trigger honeyflow_update on book; alter table book alter column title type varchar(9)",
            DriftKind::Missing,
        ),
        ("drop table book; create table book (id int primary key, title text, used text)", DriftKind::Missing),
        (
            "alter table book rename to book_backup; create table book (id int primary key, title text, used text)",
            DriftKind::Missing,
        ),
    ];
    for (statements, what) in cases {
        shop.run(statements).await;
        assert_found_and_repaired(&mut shop, what, statements).await;
    }
    assert_eq!(shop.made_by("insert into book_backup values (5)").await, [""; 0], "the backup is not captured");
}

/// The old triggers have captured every change until they are replaced, so there is nothing to compare.
#[tokio::test]
async fn ob_20_what_only_the_configuration_changes_owes_no_comparison() {
    let Some(mut shop) = Captured::new(BOOK, &wanted()).await else { return };
    let other = [table("book", &["title"])];
    let report = shop.store.capture_drift(&other).await.unwrap();
    assert!(report.drifts.len() == 1 && report.schema_unchanged, "{report:?}");
    assert_eq!(report.tables(), [""; 0]);
    shop.run("alter table book disable trigger honeyflow_insert").await;
    assert_eq!(shop.store.capture_drift(&other).await.unwrap().tables(), ["book"]);
    shop.store.reinstall_capture(&other).await.unwrap();
    assert!(shop.store.capture_drift(&other).await.unwrap().is_empty());
}

#[tokio::test]
async fn ob_20_a_new_column_counts_if_all_are_watched() {
    let all = [CaptureTable { watched: Columns::All, ..table("book", &[]) }];
    let Some(mut shop) = Captured::new(BOOK, &all).await else { return };
    shop.run("alter table book add column more int default 7").await;
    assert_eq!(shop.store.capture_drift(&all).await.unwrap().tables(), ["book"]);
    shop.store.reinstall_capture(&all).await.unwrap();
    shop.run("insert into book(id) values (1)").await;
    shop.events().await;
    assert_eq!(shop.made_by("update book set more = 8").await, ["book 1"]);
}

#[tokio::test]
async fn ob_20_a_column_that_triggers_read_is_not_dropped_or_retyped_silently() {
    let Some(mut shop) = Captured::new(BOOK, &wanted()).await else { return };
    for statement in ["alter table book drop column used", "alter table book alter column used type int using 1"] {
        let error = shop.refused(statement).await;
        assert!(error.contains("depend on it") || error.contains("used in a trigger definition"), "{error}");
    }
}

#[tokio::test]
async fn ob_20_a_missing_column_or_table_is_reported_and_the_rest_goes_on() {
    let setup = format!("{BOOK} create table author (id int primary key, name text);");
    let both = [table("book", &["title", "used"]), table("author", &["name"])];
    let Some(mut shop) = Captured::new(&setup, &both).await else { return };
    shop.run("alter table book rename column used to useful; drop trigger honeyflow_insert on author").await;
    let missing = Misfit::MissingColumn { table: "book".into(), column: "used".into() };
    let report = shop.store.capture_drift(&both).await.unwrap();
    assert_eq!(report.misfits, std::slice::from_ref(&missing));
    assert_eq!(report.drifts.len(), 1, "{report:?}");
    let changes = shop.store.reinstall_capture(&both).await.unwrap();
    assert_eq!(changes.misfits, [missing]);
    assert_eq!(shop.made_by("insert into author values (1, 'a')").await, ["author 1"]);
    assert_eq!(shop.store.install_capture(&both).await.unwrap_err().code, "missing-column");
    shop.run("drop table book").await;
    let report = shop.store.capture_drift(&both).await.unwrap();
    assert_eq!(report.misfits, [Misfit::MissingTable { table: "book".into() }]);
    assert!(report.drifts.is_empty());
}

#[tokio::test]
async fn ob_20_superfluous_triggers_are_named_and_dropped() {
    let Some(mut shop) = Captured::new(BOOK, &wanted()).await else { return };
    let report = shop.store.capture_drift(&[]).await.unwrap();
    assert!(report.drifts.len() == 4 && report.drifts.iter().all(|drift| drift.what == DriftKind::Superfluous));
    assert!(report.tables().is_empty(), "nothing was missed");
    assert_eq!(shop.store.reinstall_capture(&[]).await.unwrap().dropped.len(), 4);
    assert_eq!(shop.made_by("insert into book(id) values (1)").await, [""; 0]);
    let left = "select count(*) from pg_proc where proname like 'honeyflow\\_capture%'";
    assert_eq!(crate::number(&mut shop.application, left).await, 0);
}

//! How migrations of the application change triggers, and how the drift is found.

use honeyflow_store_sqlite::capture::{self, DriftKind, Misfit};

use crate::shop::{Shop, each, table};

const BOOK: &str = "create table book (id integer primary key, title text, used text);";

fn wanted() -> [honeyflow_store::CaptureTable; 1] {
    [table("book", &["title", "used"])]
}

#[track_caller]
fn assert_found_and_repaired(shop: &mut Shop, what: DriftKind) {
    let report = capture::check_drift(&shop.connection, &wanted()).unwrap();
    assert!(!report.drifts.is_empty() && report.drifts.iter().all(|drift| drift.what == what), "{report:?}");
    assert_eq!(report.tables(), ["book"]);
    let changes = capture::reinstall(&mut shop.connection, &wanted()).unwrap();
    assert!(!changes.is_empty() && changes.misfits.is_empty(), "{changes:?}");
    assert!(capture::check_drift(&shop.connection, &wanted()).unwrap().is_empty());
    shop.events();
    assert_eq!(shop.made_by("insert into book(id) values (99)"), ["book 99"]);
}

#[test]
fn ob_20_no_drift_after_an_install() {
    let shop = Shop::plain(BOOK, &wanted());
    assert!(capture::check_drift(&shop.connection, &wanted()).unwrap().is_empty());
    shop.run("create table other (a)");
    assert!(capture::check_drift(&shop.connection, &wanted()).unwrap().is_empty(), "an unrelated change of the schema");
    let other = [table("book", &["title"])];
    assert_eq!(capture::drift(&shop.connection, &other).unwrap().len(), 1, "another configuration, same schema");
}

/// The old trigger has captured every change until it is replaced, so there is nothing to compare.
#[test]
fn ob_20_a_trigger_that_only_the_configuration_changes_owes_no_comparison() {
    let mut shop = Shop::plain(BOOK, &wanted());
    let other = [table("book", &["title"])];
    let report = capture::check_drift(&shop.connection, &other).unwrap();
    assert_eq!((report.drifts.len(), report.tables()), (1, vec![]));
    shop.run("create table other (a)");
    let report = capture::check_drift(&shop.connection, &other).unwrap();
    assert_eq!((report.drifts.len(), report.tables()), (1, vec!["book"]), "the schema has changed meanwhile");
    // A check that finds the triggers complete is remembered, unless the schema has moved on since.
    let checked_at = capture::check_drift(&shop.connection, &wanted()).unwrap().schema_version;
    shop.run("create table third (a)");
    capture::note_complete(&mut shop.connection, &wanted(), checked_at).unwrap();
    assert_eq!(capture::check_drift(&shop.connection, &other).unwrap().tables(), ["book"]);
    let checked_at = capture::check_drift(&shop.connection, &wanted()).unwrap().schema_version;
    capture::note_complete(&mut shop.connection, &wanted(), checked_at).unwrap();
    assert_eq!(capture::check_drift(&shop.connection, &other).unwrap().tables(), [""; 0]);
    capture::reinstall(&mut shop.connection, &other).unwrap();
    assert!(capture::check_drift(&shop.connection, &other).unwrap().is_empty());
}

#[test]
fn ob_20_a_table_rebuilt_by_create_copy_drop_rename_is_found() {
    each(BOOK, &wanted(), |shop| {
        shop.run("insert into book values (1, 'a', 'b')");
        shop.events();
        let made = shop.made_by(
            "begin; create table new_book (id integer primary key, title text, used text, extra text);
             insert into new_book select id, title, used, null from book;
             drop table book; alter table new_book rename to book; commit",
        );
        assert_eq!(made, [""; 0], "a rebuild changes no row");
        assert_found_and_repaired(shop, DriftKind::Missing);
    });
}

#[test]
fn ob_20_a_table_rebuilt_by_rename_create_copy_drop_is_found() {
    each(BOOK, &wanted(), |shop| {
        shop.run("insert into book values (1, 'a', 'b')");
        shop.events();
        shop.run(
            "begin; alter table book rename to old_book; create table book (id integer primary key, title text, used text);
             insert into book select * from old_book; drop table old_book; commit",
        );
        assert_found_and_repaired(shop, DriftKind::Missing);
    });
}

#[test]
fn ob_20_triggers_that_went_with_a_renamed_table_come_back() {
    each(BOOK, &wanted(), |shop| {
        shop.run(
            "alter table book rename to book_backup; create table book (id integer primary key, title text, used text)",
        );
        assert_found_and_repaired(shop, DriftKind::Changed);
        assert_eq!(shop.made_by("insert into book_backup(id) values (5)"), [""; 0], "the backup is captured no longer");
    });
}

#[test]
fn ob_20_a_dropped_trigger_is_found() {
    let mut shop = Shop::plain(BOOK, &wanted());
    shop.run("drop trigger \"honeyflow: run honeyflow source upgrade (book) update\"");
    assert_found_and_repaired(&mut shop, DriftKind::Missing);
}

#[test]
fn ob_20_a_new_unique_index_is_found() {
    let mut shop = Shop::plain(BOOK, &wanted());
    shop.run("create unique index one on book(title)");
    assert_found_and_repaired(&mut shop, DriftKind::Missing);
}

#[test]
fn ob_20_a_dropped_column_fails_the_migration_and_says_what_to_do() {
    each(BOOK, &wanted(), |shop| {
        let error = shop.try_run("alter table book drop column used").unwrap_err();
        assert!(error.contains("honeyflow: run honeyflow source upgrade (book)"), "{error}");
    });
}

#[test]
fn ob_20_a_missing_column_or_table_is_reported_and_the_rest_stays_captured() {
    each(BOOK, &wanted(), |shop| {
        shop.run("alter table book rename column used to useful");
        let report = capture::check_drift(&shop.connection, &wanted()).unwrap();
        assert_eq!(report.misfits, [Misfit::MissingColumn { table: "book".into(), column: "used".into() }]);
        assert!(report.drifts.is_empty(), "{report:?}");
        let changes = capture::reinstall(&mut shop.connection, &wanted()).unwrap();
        assert_eq!((changes.is_empty(), changes.misfits.len()), (true, 1));
        assert_eq!(shop.made_by("insert into book values (1, 'a', 'b')"), ["book 1"], "the old triggers go on");
        assert!(!capture::check_drift(&shop.connection, &wanted()).unwrap().is_empty(), "it is not forgotten");

        shop.run("drop table book");
        shop.events();
        let report = capture::check_drift(&shop.connection, &wanted()).unwrap();
        assert_eq!(report.misfits, [Misfit::MissingTable { table: "book".into() }]);
        assert_eq!(report.tables(), ["book"]);
        capture::reinstall(&mut shop.connection, &wanted()).unwrap();
        shop.run(BOOK);
        assert_found_and_repaired(shop, DriftKind::Missing);
    });
}

#[test]
fn ob_20_triggers_nobody_wants_are_named() {
    let shop = Shop::plain(BOOK, &wanted());
    let report = capture::check_drift(&shop.connection, &[]).unwrap();
    assert!(report.drifts.len() == 4 && report.drifts.iter().all(|drift| drift.what == DriftKind::Superfluous));
    assert!(report.tables().is_empty(), "nothing was missed");
}

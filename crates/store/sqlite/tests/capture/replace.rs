//! REPLACE removes rows behind every DELETE trigger's back: none of them may be missed.

use honeyflow_store::KeyType;

use crate::shop::{Shop, carrying, each, key, keyed, table};

const ISBN: &str = "create table book (id integer primary key, isbn text unique, title text);";

#[test]
fn ob_12_a_row_replaced_through_another_unique_is_reported() {
    each(ISBN, &[table("book", &["title"])], |shop| {
        shop.run("insert into book values (1, 'x', 'a'), (2, 'y', 'b'), (3, 'z', 'c')");
        shop.events();
        assert_seen(shop, "insert or replace into book values (9, 'x', 'n')", &["book 1", "book 9"]);
        assert_seen(shop, "replace into book values (9, 'y', 'n')", &["book 2", "book 9"]);
        assert_seen(shop, "update or replace book set isbn = 'z' where id = 9", &["book 3"]);
        assert_eq!(count(shop, "book"), 1);
    });
}

#[test]
fn ob_12_a_key_replaced_by_an_update_is_reported() {
    each(ISBN, &[table("book", &["title"])], |shop| {
        shop.run("insert into book values (1, 'x', 'a'), (2, 'y', 'b')");
        shop.events();
        assert_seen(shop, "update or replace book set id = 2 where id = 1", &["book 1", "book 2"]);
        assert_eq!(count(shop, "book"), 1);
    });
}

#[test]
fn ob_12_ordinary_statements_stay_exact_beside_a_unique_column() {
    each(ISBN, &[table("book", &["title"])], |shop| {
        assert_eq!(
            shop.made_by("insert into book values (1, 'x', 'a'), (2, 'y', 'b'), (3, null, 'c')"),
            ["book 1", "book 2", "book 3"]
        );
        assert_eq!(shop.made_by("update book set title = 'z' where id = 1"), ["book 1"]);
        assert_eq!(
            shop.made_by("update book set isbn = 'w' where id = 1"),
            [""; 0],
            "isbn is not used by the document"
        );
        assert_eq!(shop.made_by("insert into book values (4, null, 'd')"), ["book 4"], "NULLs never collide");
        assert_eq!(shop.made_by("delete from book where id = 1"), ["book 1"]);
        assert!(shop.try_run("insert into book values (9, 'y', 'b')").is_err());
        assert_eq!(shop.events(), [""; 0], "a failed INSERT");
        assert!(shop.try_run("update book set isbn = 'y' where id = 3").is_err());
        assert_eq!(shop.events(), [""; 0], "a failed UPDATE");
    });
}

#[test]
fn ob_12_a_table_that_replaces_by_itself_is_watched() {
    each(
        "create table book (id integer primary key, isbn text unique on conflict replace);",
        &[table("book", &["isbn"])],
        |shop| {
            shop.run("insert into book values (1, 'x')");
            shop.events();
            assert_seen(shop, "insert into book values (2, 'x')", &["book 1", "book 2"]);
        },
    );
}

#[test]
fn ob_12_collations_decide_who_collides() {
    each(
        "create table book (id integer primary key, isbn text, slug text collate nocase);
         create unique index one on book(isbn collate nocase); create unique index two on book(slug collate binary);",
        &[table("book", &[])],
        |shop| {
            shop.run("insert into book values (1, 'ABC', 's'), (2, 'd', 'Slug')");
            shop.events();
            assert_seen(shop, "replace into book values (3, 'abc', 't')", &["book 1", "book 3"]);
            assert_eq!(shop.made_by("replace into book values (4, 'e', 'slug')"), ["book 4"], "no collision, no event");
            assert_eq!(count(shop, "book"), 3);
        },
    );
}

#[test]
fn ob_12_partial_and_expression_indexes_are_understood() {
    each(
        "create table book (id integer primary key, isbn text, title text, gone integer default 0, size as (length(title)));
         create unique index one on book(isbn) where gone = 0 -- only what is left
         ; create unique index two on book(lower(title), size desc);",
        &[table("book", &[])],
        |shop| {
            shop.run("insert into book(id, isbn, title) values (1, 'x', 'Bees'), (2, 'y', 'Ants')");
            shop.events();
            assert_seen(shop, "replace into book(id, isbn, title) values (3, 'x', 'c')", &["book 1", "book 3"]);
            assert_seen(shop, "replace into book(id, isbn, title) values (4, 'z', 'ANTS')", &["book 2", "book 4"]);
            shop.run("insert into book(id, isbn, gone, title) values (5, 'x', 1, 'five')");
            shop.events();
            assert_seen(shop, "update or replace book set gone = 0 where id = 5", &["book 3"]);
            assert_eq!(count(shop, "book"), 2);
        },
    );
}

#[test]
fn ob_12_a_unique_generated_column_collides_too() {
    each(
        "create table book (id integer primary key, title text, slug text as (lower(title)) stored unique);",
        &[table("book", &[])],
        |shop| {
            shop.run("insert into book(id, title) values (1, 'Bees'), (2, 'Ants')");
            shop.events();
            assert_seen(shop, "replace into book(id, title) values (3, 'BEES')", &["book 1", "book 3"]);
            assert_seen(shop, "update or replace book set title = 'bees' where id = 2", &["book 3"]);
        },
    );
}

#[test]
fn ob_12_without_rowid_and_text_keys() {
    let wanted =
        [keyed("tag", vec![key("name", KeyType::Text)], &[]), keyed("plain", vec![key("name", KeyType::Text)], &[])];
    each(
        "create table tag (name text primary key, code integer unique) without rowid;
         create table plain (name text primary key);",
        &wanted,
        |shop| {
            shop.run(
                "insert into tag values ('a', 1), ('b', 2); insert into plain(rowid, name) values (5, 'a'), (6, 'b')",
            );
            shop.events();
            assert_seen(shop, "replace into tag values ('c', 1)", &["tag a", "tag c"]);
            assert_seen(shop, "update or replace tag set code = 2 where name = 'c'", &["tag b"]);
            assert_seen(shop, "replace into plain(rowid, name) values (5, 'c')", &["plain a", "plain c"]);
            assert_seen(shop, "update or replace plain set rowid = 6 where name = 'c'", &["plain b"]);
            assert_eq!(shop.made_by("insert into plain values ('x')"), ["plain x"]);
        },
    );
}

#[test]
fn ob_12_a_key_other_than_the_primary_key() {
    let wanted = [keyed("book", vec![key("isbn", KeyType::Text)], &["title"])];
    each(ISBN, &wanted, |shop| {
        shop.run("insert into book values (1, 'x', 'a'), (2, 'y', 'b')");
        shop.events();
        assert_seen(shop, "replace into book values (1, 'z', 'n')", &["book x", "book z"]);
        assert_seen(shop, "replace into book values (3, 'y', 'n')", &["book y"]);
    });
}

#[test]
fn ob_12_the_replaced_links_old_end_is_carried() {
    let wanted = [carrying(table("link", &[]), &["book_id"])];
    each("create table link (id integer primary key, book_id integer);", &wanted, |shop| {
        shop.run("insert into link values (1, 10)");
        shop.events();
        assert_seen(
            shop,
            "replace into link values (1, 20)",
            &[r#"link 1 {"old":{"book_id":10}}"#, r#"link 1 {"new":{"book_id":20}}"#],
        );
    });
}

#[test]
fn ob_12_no_before_trigger_where_the_new_rows_event_covers_the_old_row() {
    for (setup, wanted) in [
        ("create table book (id integer primary key, title text);", table("book", &["title"])),
        (
            "create table ba (book_id integer not null, author_id integer not null, primary key (book_id, author_id)) without rowid;",
            carrying(
                keyed("ba", vec![key("book_id", KeyType::Integer), key("author_id", KeyType::Integer)], &[]),
                &["book_id"],
            ),
        ),
    ] {
        let shop = Shop::plain(setup, &[wanted]);
        assert!(!shop.catalogue().iter().any(|(name, _)| name.contains("before")), "{:?}", shop.catalogue());
    }
}

#[test]
fn ob_12_cascades_of_a_replaced_row_are_captured() {
    each(
        "create table book (id integer primary key, isbn text unique);
         create table page (id integer primary key, book_id integer references book on delete cascade);",
        &[table("book", &[]), table("page", &[])],
        |shop| {
            shop.run("insert into book values (1, 'x'); insert into page values (7, 1)");
            shop.events();
            assert_seen(
                shop,
                "pragma foreign_keys = on; replace into book values (2, 'x')",
                &["book 1", "book 2", "page 7"],
            );
        },
    );
}

#[test]
fn ob_12_a_colliding_row_is_found_by_an_index() {
    let shop = Shop::plain(
        "create table book (id integer primary key, isbn text, slug text collate nocase, title text, gone integer default 0);
         create unique index one on book(isbn) where gone = 0; create unique index two on book(lower(title));
         create unique index three on book(slug); create unique index four on book(slug collate binary, isbn);",
        &[carrying(table("book", &[]), &["gone"])],
    );
    shop.connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_TRIGGER_EQP, true).unwrap();
    for sql in ["replace into book(id) values (1)", "update or replace book set isbn = 'x' where id = 1"] {
        let mut statement = shop.connection.prepare(&format!("explain query plan {sql}")).unwrap();
        let plan: Vec<String> =
            statement.query_map([], |row| row.get("detail")).unwrap().collect::<Result<_, _>>().unwrap();
        assert!(plan.iter().filter(|line| line.starts_with("SEARCH r USING")).count() >= 5, "{plan:#?}");
        assert!(!plan.iter().any(|line| line.starts_with("SCAN r")), "{plan:#?}");
    }
}

/// Superfluous events are allowed, missing ones are not.
#[track_caller]
fn assert_seen(shop: &Shop, sql: &str, wanted: &[&str]) {
    let made = shop.made_by(sql);
    for event in wanted {
        assert!(made.iter().any(|made| made == event), "{sql} made {made:?}, and not {event}");
    }
    assert!(made.len() <= wanted.len() + 2, "{sql} made too much: {made:?}");
}

fn count(shop: &Shop, table: &str) -> i64 {
    shop.connection.query_row(&format!("select count(*) from {table}"), [], |row| row.get(0)).unwrap()
}

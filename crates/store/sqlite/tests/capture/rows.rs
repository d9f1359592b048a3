//! The outbox rows that ordinary statements create.

use honeyflow_store::{CaptureTable, Columns, KeyType};

use crate::shop::{Shop, carrying, each, key, keyed, table};

const BOOKS: &str = "
    create table publisher (id integer primary key, name text, secret text);
    create table book (id integer primary key, title text collate nocase, price, publisher_id integer
        references publisher on delete cascade on update cascade, secret text);
    create table author (id integer primary key, name text, secret text);
    create table book_author (book_id integer not null references book on delete cascade,
        author_id integer references author on delete set null, secret text);";

fn shop_tables() -> Vec<CaptureTable> {
    vec![
        table("book", &["title", "price", "publisher_id"]),
        table("publisher", &["name"]),
        table("author", &["name"]),
        carrying(keyed("book_author", vec![], &["author_id"]), &["book_id"]),
    ]
}

fn each_shop(test: impl Fn(&mut Shop)) {
    each(BOOKS, &shop_tables(), test);
}

#[test]
fn ob_6_each_operation_creates_exactly_one_row() {
    each_shop(|shop| {
        assert_eq!(shop.made_by("insert into author values (7, 'Ann', 'x')"), ["author 7"]);
        assert_eq!(shop.made_by("insert into book(id, title) values (7, 'Bees')"), ["book 7"]);
        assert_eq!(shop.made_by("update book set title = 'Wasps' where id = 7"), ["book 7"]);
        assert_eq!(
            shop.made_by("insert into book_author(book_id, author_id) values (7, 7)"),
            [r#"book_author 1 {"new":{"book_id":7}}"#]
        );
        assert_eq!(shop.made_by("delete from book_author"), [r#"book_author 1 {"old":{"book_id":7}}"#]);
        assert_eq!(shop.made_by("delete from book"), ["book 7"]);
        assert_eq!(shop.made_by("insert into book(title) values ('a'), ('b')"), ["book 1", "book 2"]);
        assert_eq!(shop.made_by("update book set price = 1"), ["book 1", "book 2"]);
    });
}

#[test]
fn ob_6_priority_is_written() {
    let wanted = [CaptureTable { priority: 2, ..table("publisher", &["name"]) }];
    let shop = Shop::plain(BOOKS, &wanted);
    shop.run("insert into publisher(id) values (1)");
    let priority: u8 =
        shop.connection.query_row("select priority from honeyflow_outbox", [], |row| row.get(0)).unwrap();
    assert_eq!(priority, 2);
}

#[test]
fn ob_6_odd_names_are_captured() {
    let odd = r#"order "line" it's"#;
    let wanted = [carrying(
        keyed(odd, vec![key("group", KeyType::Integer), key(r#"a"b"#, KeyType::Text)], &["select", "x;y:z%"]),
        &["x;y:z%"],
    )];
    each(
        r#"create table "order ""line"" it's" ("group" integer, "a""b" text, "select" text unique, "x;y:z%" integer);"#,
        &wanted,
        |shop| {
            assert_eq!(
                shop.made_by(r#"insert into "order ""line"" it's" values (1, 'k', 's', 5)"#),
                [r#"order "line" it's 1|k {"new":{"x;y:z%":5}}"#]
            );
            assert_eq!(
                shop.made_by(r#"update "order ""line"" it's" set "select" = 't'"#),
                [r#"order "line" it's 1|k {"new":{"x;y:z%":5},"old":{"x;y:z%":5}}"#]
            );
        },
    );
}

#[test]
fn ob_9_only_a_change_of_a_used_column_counts() {
    each_shop(|shop| {
        shop.run("insert into book(id, title, price, secret) values (1, 'Foo', null, 'x')");
        shop.events();
        assert_eq!(shop.made_by("update book set secret = 'y'"), [""; 0], "an unused column");
        assert_eq!(shop.made_by("update book set title = title, price = price, id = id"), [""; 0], "SET a = a");
        assert_eq!(shop.made_by("update book set title = 'foo'"), ["book 1"], "NOCASE must not hide a change");
        assert_eq!(shop.made_by("update book set price = 1"), ["book 1"], "from NULL");
        assert_eq!(
            shop.made_by("update book set price = 1.0"),
            ["book 1"],
            "1 and 1.0 are equal, but read differently"
        );
        assert_eq!(shop.made_by("update book set price = '1.0'"), ["book 1"]);
        assert_eq!(shop.made_by("update book set price = x'312e30'"), ["book 1"], "same bytes, other type");
        assert_eq!(shop.made_by("update book set price = null"), ["book 1"], "to NULL");
        assert_eq!(shop.made_by("update book set price = null"), [""; 0]);
    });
}

#[test]
fn ob_9_all_columns_may_be_watched() {
    let wanted = [CaptureTable { watched: Columns::All, ..table("book", &[]) }];
    each(
        "create table book (id integer primary key, a text, b as (a || '!'), c as (length(a)) stored);",
        &wanted,
        |shop| {
            assert_eq!(shop.made_by("insert into book(id, a) values (1, 'x')"), ["book 1"]);
            assert_eq!(shop.made_by("update book set a = 'y'"), ["book 1"]);
            assert_eq!(shop.made_by("update book set a = 'y'"), [""; 0]);
        },
    );
}

#[test]
fn ob_9_a_generated_column_may_be_watched_alone() {
    each("create table book (id integer primary key, a text, b as (length(a)));", &[table("book", &["b"])], |shop| {
        shop.run("insert into book(id, a) values (1, 'x')");
        shop.events();
        assert_eq!(shop.made_by("update book set a = 'y'"), [""; 0]);
        assert_eq!(shop.made_by("update book set a = 'yy'"), ["book 1"]);
    });
}

#[test]
fn ob_9_very_wide_tables_are_captured() {
    let columns: Vec<_> = (0..1500).map(|n| format!("c{n}")).collect();
    let wanted = [CaptureTable { watched: Columns::All, ..table("wide", &[]) }];
    each(&format!("create table wide (id integer primary key, {});", columns.join(", ")), &wanted, |shop| {
        assert_eq!(shop.made_by("insert into wide(id) values (1)"), ["wide 1"]);
        assert_eq!(shop.made_by("update wide set c1499 = 1"), ["wide 1"]);
    });
}

#[test]
fn ob_8_a_moved_link_carries_both_ends() {
    each_shop(|shop| {
        shop.run("insert into book(id) values (1), (2); insert into book_author(book_id, author_id) values (1, null)");
        shop.events();
        assert_eq!(
            shop.made_by("update book_author set book_id = 2"),
            [r#"book_author 1 {"new":{"book_id":2},"old":{"book_id":1}}"#]
        );
    });
}

#[test]
fn ob_8_every_type_of_value_is_carried_exactly() {
    let wanted = [carrying(table("link", &[]), &["to_id"])];
    each("create table link (id integer primary key, to_id);", &wanted, |shop| {
        for (sql, json) in [
            ("9223372036854775807", "9223372036854775807"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("'it''s é|\\;:'", r#""it's é|\\;:""#),
            ("x'00ff'", r#"{"blob":"00ff"}"#),
            ("1.5", "1.5"),
            ("null", "null"),
            ("''", r#""""#),
        ] {
            let made = shop.made_by(&format!("insert into link(id, to_id) values (1, {sql})"));
            assert_eq!(made, [format!(r#"link 1 {{"new":{{"to_id":{json}}}}}"#)]);
            shop.run("delete from link");
            shop.events();
        }
    });
}

#[test]
fn ob_6_cascades_are_captured() {
    each_shop(|shop| {
        shop.run(
            "insert into publisher(id) values (1); insert into author(id) values (3);
             insert into book(id, publisher_id) values (1, 1), (2, 1);
             insert into book_author(book_id, author_id) values (1, 3), (2, 3)",
        );
        shop.events();
        let mut cleared = shop.made_by("pragma foreign_keys = on; delete from author");
        cleared.sort();
        assert_eq!(
            cleared,
            [
                "author 3",
                r#"book_author 1 {"new":{"book_id":1},"old":{"book_id":1}}"#,
                r#"book_author 2 {"new":{"book_id":2},"old":{"book_id":2}}"#,
            ],
            "SET NULL"
        );
        let mut moved = shop.made_by("pragma foreign_keys = on; update publisher set id = 5");
        moved.sort();
        assert_eq!(moved, ["book 1", "book 2", "publisher 1", "publisher 5"], "ON UPDATE CASCADE");
        let mut gone = shop.made_by("pragma foreign_keys = on; delete from publisher");
        gone.sort();
        assert_eq!(
            gone,
            [
                "book 1",
                "book 2",
                r#"book_author 1 {"old":{"book_id":1}}"#,
                r#"book_author 2 {"old":{"book_id":2}}"#,
                "publisher 5"
            ],
            "three levels"
        );
    });
}

#[test]
fn ob_6_a_table_that_refers_to_itself_cascades() {
    each(
        "create table page (id integer primary key, parent integer references page on delete cascade, title text);",
        &[carrying(table("page", &["title"]), &["parent"])],
        |shop| {
            shop.run("insert into page values (1, null, 'a'), (2, 1, 'b'), (3, 2, 'c'), (4, 3, 'd')");
            shop.events();
            let mut gone = shop.made_by("pragma foreign_keys = on; delete from page where id = 1");
            gone.sort();
            assert_eq!(
                gone,
                [
                    r#"page 1 {"old":{"parent":null}}"#,
                    r#"page 2 {"old":{"parent":1}}"#,
                    r#"page 3 {"old":{"parent":2}}"#,
                    r#"page 4 {"old":{"parent":3}}"#
                ]
            );
        },
    );
}

#[test]
fn ob_6_changes_by_the_applications_own_triggers_are_captured() {
    let setup = "create table book (id integer primary key, title text, edited integer default 0);
        create trigger touch after update of title on book begin update book set edited = edited + 1 where id = new.id; end;";
    each(setup, &[table("book", &["edited"])], |shop| {
        shop.run("insert into book(id, title) values (1, 'a')");
        shop.events();
        assert_eq!(shop.made_by("update book set title = 'b'"), ["book 1"]);
    });
}

#[test]
fn ob_15_events_are_committed_and_rolled_back_with_the_data() {
    each_shop(|shop| {
        assert_eq!(shop.made_by("begin; insert into book(id) values (1); rollback"), [""; 0]);
        assert_eq!(
            shop.made_by(
                "begin; insert into book(id) values (1); savepoint s; insert into book(id) values (2);
                 update book set title = 'x'; rollback to s; release s; insert into book(id) values (3); commit"
            ),
            ["book 1", "book 3"]
        );
        assert_eq!(
            shop.made_by("begin; insert into book(id) values (4)"),
            [""; 0],
            "a session that ends without commit"
        );
        assert!(shop.try_run("insert into book(id) values (5), (6), (1)").is_err());
        assert_eq!(shop.events(), [""; 0], "a failed statement");
        assert!(shop.try_run("insert or fail into book(id) values (5), (1)").is_err());
        assert_eq!(shop.events(), ["book 5"], "OR FAIL keeps what came before");
        assert!(
            shop.try_run("begin; insert into book(id) values (8); insert or rollback into book(id) values (1)")
                .is_err()
        );
        assert_eq!(shop.events(), [""; 0], "OR ROLLBACK takes all");
    });
}

#[test]
fn ob_15_ignored_and_upserted_rows_are_exact() {
    each_shop(|shop| {
        shop.run("insert into book(id, title) values (1, 'a')");
        shop.events();
        assert_eq!(shop.made_by("insert or ignore into book(id, title) values (1, 'b'), (2, 'c')"), ["book 2"]);
        assert_eq!(
            shop.made_by(
                "insert into book(id, title) values (1, 'z') on conflict(id) do update set title = excluded.title"
            ),
            ["book 1"]
        );
        assert_eq!(shop.made_by("insert into book(id) values (1) on conflict do nothing"), [""; 0]);
        assert_eq!(shop.made_by("update or ignore book set id = 1 where id = 2"), [""; 0]);
    });
}

#[test]
fn ob_5_no_data_of_other_columns_reaches_the_outbox() {
    const MARKER: &str = "zq-marker-zq";
    each_shop(|shop| {
        shop.run(&format!(
            "pragma foreign_keys = off; insert into publisher values (1, '{MARKER}', '{MARKER}'); insert into author values (1, '{MARKER}', '{MARKER}');
             insert into book values (1, '{MARKER}', '{MARKER}', 1, '{MARKER}');
             insert into book_author values (1, 1, '{MARKER}');
             update book set title = 't', secret = 's'; update book_author set author_id = 2; update book set id = 9;
             delete from book; delete from book_author; delete from author; delete from publisher"
        ));
        let rows: Vec<String> = shop
            .connection
            .prepare("select quote(entity) || quote(entity_key) || coalesce(payload, '') from honeyflow_outbox")
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert!(rows.len() >= 10);
        let hex: String = MARKER.bytes().map(|byte| format!("{byte:02X}")).collect();
        assert!(!rows.iter().any(|row| row.contains(MARKER) || row.contains(&hex)), "{rows:?}");
        shop.events();
    });
}

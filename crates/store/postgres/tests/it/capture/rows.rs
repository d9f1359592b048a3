//! The outbox rows that ordinary statements create.

use honeyflow_store::{CaptureTable, Columns, KeyType};
use sqlx_core::connection::Connection;
use sqlx_postgres::PgConnection;

use super::{Captured, carrying, keyed, table};
use crate::{column, number, run};

const BOOKS: &str = "
    create table publisher (id int primary key, name text, secret text);
    create table book (id int primary key, title text, price numeric, extra json, place point, secret text,
      publisher_id int references publisher on delete cascade on update cascade);
    create table author (id int primary key, name text, secret text);
    create table book_author (book_id int not null references book on delete cascade,
      author_id int references author on delete set null, secret text);";

fn wanted() -> Vec<CaptureTable> {
    vec![
        table("book", &["title", "price", "extra", "place", "publisher_id"]),
        table("publisher", &["name"]),
        table("author", &["name"]),
        carrying(keyed("book_author", vec![], &["author_id"]), &["book_id"]),
    ]
}

#[tokio::test]
async fn ob_6_each_operation_creates_exactly_one_row() {
    let Some(mut shop) = Captured::new(BOOKS, &wanted()).await else { return };
    assert_eq!(shop.made_by("insert into author values (7, 'Ann', 'x')").await, ["author 7"]);
    assert_eq!(shop.made_by("insert into book(id, title) values (7, 'Bees')").await, ["book 7"]);
    assert_eq!(shop.made_by("update book set title = 'Wasps' where id = 7").await, ["book 7"]);
    let linked = "insert into book_author(book_id, author_id) values (7, 7)";
    assert_eq!(shop.made_by(linked).await, [r#"book_author 7 {"new":{"book_id":7}}"#]);
    let moved = "update book_author set author_id = null";
    assert_eq!(shop.made_by(moved).await, [r#"book_author 7 {"old":{"book_id":7},"new":{"book_id":7}}"#]);
    assert_eq!(shop.made_by("delete from book_author").await, [r#"book_author 7 {"old":{"book_id":7}}"#]);
    assert_eq!(shop.made_by("delete from book").await, ["book 7"]);
    assert_eq!(shop.made_by("insert into book(id) values (1), (2)").await, ["book 1", "book 2"]);
    assert_eq!(shop.made_by("update book set price = 1").await, ["book 1", "book 2"]);
}

#[tokio::test]
async fn ob_9_only_a_change_of_a_used_column_counts() {
    let Some(mut shop) = Captured::new(BOOKS, &wanted()).await else { return };
    shop.run("insert into book(id, title, extra, secret) values (1, 'Foo', '{\"a\":1}', 'x')").await;
    shop.events().await;
    let cases = [
        ("update book set secret = 'y'", false),
        ("update book set title = title, price = price, id = id, extra = extra, place = place", false),
        ("update book set title = 'foo'", true),
        ("update book set price = 1", true),
        ("update book set price = 1.00", true),
        ("update book set price = 1.00", false),
        ("update book set price = null", true),
        ("update book set price = null", false),
        ("update book set extra = '{\"a\": 1}'", true),
        ("update book set place = '(1,2)'", true),
        ("update book set place = '(1.0,2)'", false),
    ];
    for (statement, counts) in cases {
        assert_eq!(shop.made_by(statement).await.len(), usize::from(counts), "{statement}");
    }
}

#[tokio::test]
async fn ob_9_all_columns_may_be_watched() {
    let setup = "create table book (id int primary key, a text, b text generated always as (upper(a)) stored);";
    let all = [CaptureTable { watched: Columns::All, ..table("book", &[]) }];
    let Some(mut shop) = Captured::new(setup, &all).await else { return };
    shop.run("insert into book(id, a) values (1, 'x')").await;
    shop.events().await;
    assert_eq!(shop.made_by("update book set a = 'y'").await, ["book 1"]);
    assert_eq!(shop.made_by("update book set a = 'y'").await, [""; 0]);
}

#[tokio::test]
async fn ob_10_statements_that_write_in_other_ways_are_captured() {
    let Some(mut shop) = Captured::new(BOOKS, &wanted()).await else { return };
    shop.run("insert into author values (1, 'a', 'x')").await;
    shop.events().await;
    let upsert = "insert into author values (1, 'b', 'x'), (2, 'c', 'x')
        on conflict (id) do update set name = excluded.name";
    assert_eq!(shop.made_by(upsert).await, ["author 1", "author 2"]);
    assert_eq!(shop.made_by("insert into author values (1, 'b', 'x') on conflict do nothing").await, [""; 0]);
    let merge = "merge into author a using (values (1, 'd'), (2, null), (3, 'e')) v(id, name) on a.id = v.id
        when matched and v.name is null then delete
        when matched then update set name = v.name
        when not matched then insert values (v.id, v.name, 'x')";
    let mut merged = shop.made_by(merge).await;
    merged.sort();
    assert_eq!(merged, ["author 1", "author 2", "author 3"]);
    shop.run("create view writer as select id, name from author where id < 100").await;
    assert_eq!(shop.made_by("insert into writer values (9, 'v')").await, ["author 9"]);
    assert_eq!(shop.made_by("update writer set name = 'w' where id = 9").await, ["author 9"]);
    assert_eq!(shop.made_by("delete from writer where id = 9").await, ["author 9"]);
    let mut copy = shop.application.copy_in_raw("copy author (id, name) from stdin").await.unwrap();
    copy.send("21\tx\n22\ty\n".as_bytes()).await.unwrap();
    copy.finish().await.unwrap();
    assert_eq!(shop.events().await, ["author 21", "author 22"]);
}

#[tokio::test]
async fn ob_10_what_foreign_keys_change_is_captured() {
    let Some(mut shop) = Captured::new(BOOKS, &wanted()).await else { return };
    shop.run(
        "insert into publisher values (1, 'p', ''); insert into author values (5, 'a', '');
         insert into book(id, publisher_id) values (7, 1); insert into book_author values (7, 5)",
    )
    .await;
    shop.events().await;
    let mut moved = shop.made_by("update publisher set id = 2").await;
    moved.sort();
    assert_eq!(moved, ["book 7", "publisher 1", "publisher 2"], "on update cascade");
    let mut set_null = shop.made_by("delete from author").await;
    set_null.sort();
    assert_eq!(set_null, ["author 5", r#"book_author 7 {"old":{"book_id":7},"new":{"book_id":7}}"#]);
    let mut gone = shop.made_by("delete from publisher").await;
    gone.sort();
    assert_eq!(gone, ["book 7", r#"book_author 7 {"old":{"book_id":7}}"#, "publisher 2"], "on delete cascade");
}

/// A cascade over the table itself puts intermediate rows between OLD and NEW.
#[tokio::test]
async fn ob_7_no_key_is_lost_when_a_self_reference_moves_with_its_table() {
    let setup = "create table kk (id int primary key, parent int references kk on update cascade);
        insert into kk values (1, null), (2, 1), (3, 2);";
    let Some(mut shop) = Captured::new(setup, &[table("kk", &["parent"])]).await else { return };
    let mut made = shop.made_by("update kk set id = id + 100").await;
    made.sort();
    made.dedup();
    assert_eq!(made, ["kk 1", "kk 101", "kk 102", "kk 103", "kk 2", "kk 3"]);
}

#[tokio::test]
async fn ob_13_a_truncate_owes_a_comparison() {
    let Some(mut shop) = Captured::new(BOOKS, &wanted()).await else { return };
    shop.run("insert into author values (1, 'a', 'x')").await;
    shop.events().await;
    assert_eq!(shop.made_by("begin; truncate author cascade; rollback").await, [""; 0]);
    assert_eq!(shop.owed().await, [""; 0]);
    assert_eq!(shop.made_by("truncate author cascade").await, [""; 0]);
    assert_eq!(shop.owed().await, ["author", "book_author"]);
    shop.run("update honeyflow_task set state = 'done'; truncate author, book_author").await;
    assert_eq!(shop.owed().await, ["author", "book_author"], "again");
}

#[tokio::test]
async fn ob_15_an_event_lives_and_dies_with_its_change() {
    let Some(mut shop) = Captured::new(BOOKS, &wanted()).await else { return };
    let insert = |id: u32| format!("insert into author(id) values ({id})");
    assert_eq!(shop.made_by(&format!("begin; {}; rollback", insert(1))).await, [""; 0]);
    let savepoints =
        format!("begin; {}; savepoint a; {}; rollback to a; {}; release a; commit", insert(1), insert(2), insert(3));
    assert_eq!(shop.made_by(&savepoints).await, ["author 1", "author 3"]);
}

#[tokio::test]
async fn ob_6_odd_names_are_captured() {
    let odd = r#"Order "line" it's \ $honeyflow$"#;
    let key = vec![column("group", KeyType::Integer), column(r#"A"b"#, KeyType::Text)];
    let wanted = [carrying(keyed(odd, key, &["select", "x;y:z%"]), &["x;y:z%"]), table("user", &["order"])];
    let setup = r#"create table "Order ""line"" it's \ $honeyflow$" ("group" int, "A""b" text, "select" text, "x;y:z%" int);
        create table "user" (id int, "order" text);"#;
    let Some(mut shop) = Captured::new(setup, &wanted).await else { return };
    let insert = r#"insert into "Order ""line"" it's \ $honeyflow$" values (1, 'k', 's', 5)"#;
    assert_eq!(shop.made_by(insert).await, [format!(r#"{odd} 1|k {{"new":{{"x;y:z%":5}}}}"#)]);
    assert_eq!(shop.made_by(r#"insert into "user" values (1, 'a')"#).await, ["user 1"]);
}

/// The server cuts a name after 63 bytes, and two tables must not share a function.
#[tokio::test]
async fn ob_6_long_names_are_captured() {
    let (one, other) = (format!("{}1", "t".repeat(62)), format!("{}2", "t".repeat(62)));
    let setup = format!("create table {one} (id int, a text); create table {other} (id int, a text);");
    let Some(mut shop) = Captured::new(&setup, &[table(&one, &["a"]), table(&other, &["a"])]).await else { return };
    let made = shop.made_by(&format!("insert into {one} values (1); insert into {other} values (2)")).await;
    assert_eq!(made, [format!("{one} 1"), format!("{other} 2")]);
}

#[tokio::test]
async fn ob_6_priority_is_written() {
    let wanted = [CaptureTable { priority: 2, ..table("publisher", &["name"]) }];
    let Some(mut shop) = Captured::new(BOOKS, &wanted).await else { return };
    shop.run("insert into publisher(id) values (1)").await;
    assert_eq!(number(&mut shop.application, "select priority::bigint from honeyflow_outbox").await, 2);
}

/// The triggers run with the rights of their owner, whatever the session's search path is.
#[tokio::test]
async fn ob_21_a_role_without_privileges_on_the_outbox_is_captured() {
    let Some(mut shop) = Captured::new(BOOKS, &wanted()).await else { return };
    let role = format!("role_{}", uuid::Uuid::new_v4().simple());
    shop.run(&format!(
        "create role {role} login password 'x'; grant select, insert, update, delete, truncate on author to {role}"
    ))
    .await;
    let (_, server) = shop.shop.url.split_once('@').unwrap();
    let mut application = PgConnection::connect(&format!("postgres://{role}:x@{server}")).await.unwrap();
    let statements = "create temp table honeyflow_outbox (entity text, entity_key text, change text);
        set search_path = pg_temp; set standard_conforming_strings = off; set DateStyle = 'German';
        insert into public.author(id) values (1); update public.author set name = 'x'; truncate public.author";
    run(&mut application, &statements.replace("truncate public.author", "select 1")).await;
    assert_eq!(shop.events().await, ["author 1", "author 1"]);
    application.close().await.unwrap();
    shop.run(&format!("drop owned by {role}; drop role {role}")).await;
}

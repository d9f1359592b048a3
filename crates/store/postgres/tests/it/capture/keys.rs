//! The keys that triggers write are those that a load reads, whatever the session's settings are.

use honeyflow_store::{Admin, AdminReply, KeyType, Reply, Request, Store};

use super::{Captured, carrying, keyed};
use crate::column;

const SETTINGS: &str = "set TimeZone = 'Asia/Tokyo'; set DateStyle = 'SQL, DMY'; set bytea_output = 'escape';
    set IntervalStyle = 'sql_standard'; set extra_float_digits = 0; ";

#[tokio::test]
async fn ob_3_a_captured_key_is_the_key_that_a_load_reads() {
    let named = |name| KeyType::Named(name);
    let cases = [
        ("smallint", KeyType::Integer, "-7", "-7"),
        ("bigint", KeyType::Integer, "9223372036854775807", "9223372036854775807"),
        ("text", KeyType::Text, r"'a|b\c'", r"a|b\c"),
        ("char(5)", named("bpchar"), "'ab'", "ab"),
        ("citext", named("citext"), "'FoO'", "foo"),
        ("uuid", KeyType::Uuid, "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("bytea", KeyType::Blob, r"'\x00FF'", "00ff"),
        ("date", named("date"), "date '2024-02-29'", "2024-02-29"),
        ("timestamp", named("timestamp"), "timestamp '2024-02-29 12:00:00.5'", "2024-02-29T12:00:00.5"),
        ("timestamptz", named("timestamptz"), "timestamptz '2024-02-29 12:00:00+02'", "2024-02-29T10:00:00"),
        ("numeric(38,10)", named("numeric"), "12.50", "12.5"),
    ];
    let tables = cases.iter().enumerate().map(|(n, (kind, ..))| format!("create table t{n} (id {kind} primary key);"));
    let setup = format!("create extension citext; {}", tables.collect::<String>());
    let wanted =
        cases.iter().enumerate().map(|(n, (_, kind, ..))| keyed(&format!("t{n}"), vec![column("id", *kind)], &[]));
    let wanted: Vec<_> = wanted.collect();
    let Some(mut shop) = Captured::new(&setup, &wanted).await else { return };
    for (n, (_, kind, value, expected)) in cases.iter().enumerate() {
        let made = shop.made_by(&format!("{SETTINGS} insert into t{n} values ({value})")).await;
        assert_eq!(made, [format!("t{n} {expected}")]);
        let key = vec![column("id", *kind)];
        let keys = Request::Admin(Admin::TableKeys { table: format!("t{n}"), key, after: None, limit: 9 });
        match shop.store.call(keys).await.unwrap() {
            Reply::Admin(AdminReply::Keys(keys)) => assert_eq!(keys, crate::keys(&[expected])),
            other => panic!("{other:?}"),
        }
        let same = "delete from honeyflow_outbox";
        shop.run(same).await;
    }
}

#[tokio::test]
async fn ob_3_composite_keys_are_joined_and_escaped() {
    let key = vec![column("a", KeyType::Named("date")), column("b", KeyType::Text)];
    let setup = "create table pair (a date, b text, c int);";
    let Some(mut shop) = Captured::new(setup, &[keyed("pair", key, &["c"])]).await else { return };
    let made = shop.made_by(r"insert into pair values ('2024-01-02', 'x|y\z')").await;
    assert_eq!(made, [r"pair 2024-01-02|x\|y\\z"]);
    assert_eq!(shop.made_by("insert into pair values ('2024-01-02', null), (null, 'x')").await, [""; 0]);
    let became = shop.made_by("update pair set b = 'k' where b is null").await;
    assert_eq!(became, ["pair 2024-01-02|k"], "a row that gets a key");
    assert_eq!(shop.made_by("update pair set b = null where b = 'k'").await, ["pair 2024-01-02|k"]);
    assert_eq!(shop.made_by("update pair set c = 1 where b is null").await, [""; 0]);
}

#[tokio::test]
async fn ob_7_swapped_keys_are_all_reported() {
    let setup = "create table book (id int primary key deferrable); insert into book values (1), (2);";
    let wanted = [keyed("book", vec![column("id", KeyType::Integer)], &[])];
    let Some(mut shop) = Captured::new(setup, &wanted).await else { return };
    assert_eq!(shop.made_by("update book set id = 3 - id").await, ["book 1", "book 2", "book 2", "book 1"]);
}

#[tokio::test]
async fn ob_8_the_payload_carries_old_and_new_values() {
    let setup = "create domain isbn as text; create domain strict_isbn as isbn;
        create table link (id int, book bigint, day date, raw bytea, code strict_isbn, title text collate \"C\");";
    let carried = ["book", "day", "raw", "code", "title"];
    let link = carrying(keyed("link", vec![column("id", KeyType::Integer)], &[]), &carried);
    let Some(mut shop) = Captured::new(setup, &[link]).await else { return };
    let insert = r#"insert into link values (1, 5, '2024-02-29', '\x00ff', 'a"\', null)"#;
    let new = r#"{"book":5,"day":"2024-02-29","raw":{"blob":"00ff"},"code":"a\"\\","title":null}"#;
    assert_eq!(shop.made_by(&format!("{SETTINGS} {insert}")).await, [format!(r#"link 1 {{"new":{new}}}"#)]);
    let moved = shop.made_by("update link set book = null").await;
    let null = new.replace("5", "null");
    assert_eq!(moved, [format!(r#"link 1 {{"old":{new},"new":{null}}}"#)]);
    let rekeyed = shop.made_by("update link set id = 2").await;
    let both = format!(r#"{{"old":{null},"new":{null}}}"#);
    assert_eq!(rekeyed, [format!("link 1 {both}"), format!("link 2 {both}")]);
}

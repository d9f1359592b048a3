//! Keys: how triggers write them, and which events a changed key creates.

use honeyflow_store::KeyType;

use crate::shop::{carrying, each, key, keyed, table};

#[test]
fn ob_7_a_changed_key_creates_events_for_both_keys() {
    each("create table book (id integer primary key, title text);", &[table("book", &["title"])], |shop| {
        shop.run("insert into book values (1, 'a'), (2, 'b')");
        shop.events();
        assert_eq!(sorted(shop.made_by("update book set id = 3 where id = 1")), ["book 1", "book 3"]);
        assert_eq!(sorted(shop.made_by("update book set rowid = 4 where id = 3")), ["book 3", "book 4"], "SET rowid");
        assert_eq!(sorted(shop.made_by("update book set _rowid_ = 5, title = 'z' where id = 4")), ["book 4", "book 5"]);
    });
}

#[test]
fn ob_7_swapped_keys_are_all_captured() {
    let wanted = [keyed("seat", vec![key("code", KeyType::Text)], &["who"])];
    each("create table seat (code text, who text);", &wanted, |shop| {
        shop.run("insert into seat values ('a', 'Ann'), ('b', 'Bob')");
        shop.events();
        let made = sorted(shop.made_by("update seat set code = case code when 'a' then 'b' else 'a' end"));
        assert_eq!(made, ["seat a", "seat a", "seat b", "seat b"]);
        assert_eq!(sorted(shop.made_by("update seat set code = upper(code) where code = 'a'")), ["seat A", "seat a"]);
    });
}

#[test]
fn ob_7_a_key_that_differs_only_in_case_has_changed() {
    let wanted = [keyed("tag", vec![key("name", KeyType::Text)], &[])];
    each("create table tag (name text collate nocase primary key) without rowid;", &wanted, |shop| {
        shop.run("insert into tag values ('Foo')");
        shop.events();
        assert_eq!(sorted(shop.made_by("update tag set name = 'foo'")), ["tag Foo", "tag foo"]);
    });
}

#[test]
fn ob_3_composite_keys_are_joined_and_escaped_as_in_rust() {
    let parts = vec![key("a", KeyType::Text), key("n", KeyType::Integer), key("b", KeyType::Blob)];
    let wanted = [keyed("line", parts, &["note"])];
    each(
        "create table line (a text, n integer, b blob, note text, primary key (a, n, b)) without rowid;",
        &wanted,
        |shop| {
            for (text, n, hex) in
                [(r"a|b\c", 1_i64, "00ff"), ("", -5, ""), ("é'\u{1F41D}", i64::MAX, "7c5c"), (r"\\||", i64::MIN, "0a")]
            {
                let quoted = text.replace('\'', "''");
                let made = shop.made_by(&format!("insert into line values ('{quoted}', {n}, x'{hex}', null)"));
                assert_eq!(made, [format!("line {}", honeyflow_event::key::join(&[text, &n.to_string(), hex]))]);
            }
        },
    );
}

#[test]
fn ob_3_a_key_of_one_part_is_left_as_it_is() {
    let wanted =
        [keyed("tag", vec![key("name", KeyType::Text)], &[]), keyed("file", vec![key("hash", KeyType::Blob)], &[])];
    each("create table tag (name text primary key); create table file (hash blob primary key);", &wanted, |shop| {
        assert_eq!(shop.made_by(r"insert into tag values ('a|b\c')"), [r"tag a|b\c"]);
        assert_eq!(shop.made_by("insert into file values (x'DEADBEEF')"), ["file deadbeef"]);
        shop.run("delete from tag; delete from file");
        shop.events();
    });
}

#[test]
fn ob_7_a_null_key_creates_no_event() {
    let wanted = [keyed("line", vec![key("a", KeyType::Text), key("b", KeyType::Text)], &["note"])];
    each("create table line (a text, b text, note text, primary key (a, b));", &wanted, |shop| {
        assert_eq!(shop.made_by("insert into line values ('x', null, 'n')"), [""; 0]);
        assert_eq!(shop.made_by("update line set note = 'm'"), [""; 0]);
        assert_eq!(shop.made_by("update line set b = 'y'"), ["line x|y"], "it gets a key");
        assert_eq!(shop.made_by("update line set a = null"), ["line x|y"], "it loses it");
        assert_eq!(shop.made_by("delete from line"), [""; 0]);
        assert_eq!(shop.made_by("insert or ignore into line values (null, null, 'n')"), [""; 0]);
    });
}

#[test]
fn ob_7_a_table_without_a_key_writes_its_rowid() {
    let wanted = [carrying(keyed("link", vec![], &[]), &["a"])];
    each("create table link (a integer, rowid text);", &wanted, |shop| {
        assert_eq!(shop.made_by("insert into link values (5, 'hidden')"), [r#"link 1 {"new":{"a":5}}"#]);
        assert_eq!(
            sorted(shop.made_by("update link set _rowid_ = 9")),
            [r#"link 1 {"new":{"a":5},"old":{"a":5}}"#, r#"link 9 {"new":{"a":5},"old":{"a":5}}"#]
        );
        assert_eq!(shop.made_by("update link set rowid = 'a column'"), [""; 0]);
        assert_eq!(shop.made_by("delete from link"), [r#"link 9 {"old":{"a":5}}"#]);
    });
}

fn sorted(mut events: Vec<String>) -> Vec<String> {
    events.sort();
    events
}

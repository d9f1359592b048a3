//! What each event says about the change: `change` always, `columns` where a workflow asks for them.

use honeyflow_store::KeyType;

use crate::shop::{each, key, keyed, reporting, table};

const ORDERS: &str = "create table orders (id integer primary key, state text collate nocase, note text);";

#[test]
fn ob_113_triggers_say_what_changed() {
    each(ORDERS, &[table("orders", &["state"])], |shop| {
        assert_eq!(
            shop.changes_by("insert into orders values (1, 'new', ''), (2, 'new', '')"),
            ["1 insert", "2 insert"]
        );
        assert_eq!(shop.changes_by("update orders set state = 'paid' where id = 1"), ["1 update"]);
        assert_eq!(shop.changes_by("update orders set id = 9, state = 'x' where id = 2"), ["2 delete", "9 insert"]);
        assert_eq!(shop.changes_by("update orders set rowid = 8 where id = 9"), ["9 delete", "8 insert"]);
        assert_eq!(shop.changes_by("delete from orders where id = 1"), ["1 delete"]);
    });
}

#[test]
fn ob_113_a_replaced_row_is_an_insert_and_an_upsert_an_update() {
    each(ORDERS, &[table("orders", &["state"])], |shop| {
        shop.run("insert into orders values (1, 'new', '')");
        assert_eq!(shop.changes_by("replace into orders values (1, 'paid', '')"), ["1 insert"]);
        let upsert = "insert into orders values (1, 'sent', '') on conflict do update set state = excluded.state";
        assert_eq!(shop.changes_by(upsert), ["1 update"]);
    });
}

/// A BEFORE trigger reports a row that REPLACE may remove: what happens to it is not known yet.
#[test]
fn ob_12_ob_113_a_row_replaced_through_another_unique_changes_in_an_unknown_way() {
    let unique = "create table book (id integer primary key, isbn text unique, title text);";
    each(unique, &[table("book", &["title"])], |shop| {
        shop.run("insert into book values (1, 'x', 'a')");
        assert_eq!(shop.changes_by("insert or replace into book values (9, 'x', 'n')"), ["1 ?", "9 insert"]);
    });
}

#[test]
fn ob_113_an_update_names_the_reported_columns_that_it_changed() {
    let wanted = [reporting(table("orders", &["state", "note"]), &["state"])];
    each(ORDERS, &wanted, |shop| {
        assert_eq!(shop.changes_by("insert into orders values (1, 'new', '')"), ["1 insert"]);
        assert_eq!(shop.changes_by("update orders set state = 'NEW'"), [r#"1 update ["state"]"#]);
        assert_eq!(shop.changes_by("update orders set note = 'x'"), ["1 update []"]);
        assert_eq!(shop.changes_by("update orders set state = null, note = null"), [r#"1 update ["state"]"#]);
        assert_eq!(shop.changes_by("delete from orders"), ["1 delete"]);
    });
}

#[test]
fn ob_113_names_of_reported_columns_survive_quotes_and_commas() {
    let setup = r#"create table "odd" (k text primary key, "a""b,c" text, "it's" text);"#;
    let odd = keyed("odd", vec![key("k", KeyType::Text)], &["a\"b,c", "it's"]);
    each(setup, &[reporting(odd, &["a\"b,c", "it's"])], |shop| {
        shop.run("insert into odd values ('k', 'a', 'b')");
        let changed = shop.changes_by(r#"update odd set "a""b,c" = 1, "it's" = 2"#);
        assert_eq!(changed, [r#"k update ["a\"b,c","it's"]"#]);
    });
}

/// A table without a key writes its rowid.
#[test]
fn ob_113_a_table_without_a_key_says_what_changed() {
    each("create table link (a text, b text);", &[keyed("link", vec![], &["a"])], |shop| {
        assert_eq!(shop.changes_by("insert into link values ('x', 'y')"), ["1 insert"]);
        assert_eq!(shop.changes_by("update link set a = 'z'"), ["1 update"]);
        assert_eq!(shop.changes_by("update link set rowid = 5"), ["1 delete", "5 insert"]);
    });
}

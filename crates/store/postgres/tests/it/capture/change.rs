//! What each event says about the change: `change` always, `columns` where a workflow asks for them.

use honeyflow_store::KeyType;

use super::{Captured, keyed, reporting, table};
use crate::column;

const ORDERS: &str = "create table orders (id int primary key, state text, note text);";

#[tokio::test]
async fn ob_113_triggers_say_what_changed() {
    let Some(mut shop) = Captured::new(ORDERS, &[table("orders", &["state"])]).await else { return };
    let inserted = shop.changes_by("insert into orders values (1, 'new', ''), (2, 'new', '')").await;
    assert_eq!(inserted, ["1 insert", "2 insert"]);
    assert_eq!(shop.changes_by("update orders set state = 'paid' where id = 1").await, ["1 update"]);
    let rekeyed = shop.changes_by("update orders set id = 9, state = 'x' where id = 2").await;
    assert_eq!(rekeyed, ["2 delete", "9 insert"]);
    let upsert = "insert into orders values (1, 'sent', '') on conflict (id) do update set state = excluded.state";
    assert_eq!(shop.changes_by(upsert).await, ["1 update"]);
    assert_eq!(shop.changes_by("delete from orders where id = 1").await, ["1 delete"]);
}

#[tokio::test]
async fn ob_113_an_update_names_the_reported_columns_that_it_changed() {
    let wanted = [reporting(table("orders", &["state", "note"]), &["state", "note"])];
    let Some(mut shop) = Captured::new(ORDERS, &wanted).await else { return };
    assert_eq!(shop.changes_by("insert into orders values (1, 'new', '')").await, ["1 insert"]);
    assert_eq!(shop.changes_by("update orders set state = 'NEW'").await, [r#"1 update ["state"]"#]);
    assert_eq!(shop.changes_by("update orders set state = null, note = null").await, [r#"1 update ["state","note"]"#]);
    assert_eq!(shop.changes_by("delete from orders").await, ["1 delete"]);
    let wanted = [reporting(table("orders", &["state", "note"]), &["state"])];
    shop.store.install_capture(&wanted).await.unwrap();
    shop.run("insert into orders values (1, 'new', '')").await;
    assert_eq!(shop.changes_by("update orders set note = 'x'").await, ["1 update []"]);
}

#[tokio::test]
async fn ob_113_names_of_reported_columns_survive_quotes_and_commas() {
    let setup = r#"create table odd (k text primary key, "a""b,c" text, "it's \" text);"#;
    let odd = keyed("odd", vec![column("k", KeyType::Text)], &["a\"b,c", "it's \\"]);
    let Some(mut shop) = Captured::new(setup, &[reporting(odd, &["a\"b,c", "it's \\"])]).await else { return };
    shop.run("insert into odd values ('k', 'a', 'b')").await;
    let changed = shop.changes_by(r#"update odd set "a""b,c" = 1, "it's \" = 2"#).await;
    assert_eq!(changed, [r#"k update ["a\"b,c","it's \\"]"#]);
}

#[tokio::test]
async fn ob_113_a_table_without_a_key_says_what_changed() {
    let link = super::carrying(keyed("link", vec![], &["b"]), &["a"]);
    let Some(mut shop) = Captured::new("create table link (a text, b text);", &[link]).await else { return };
    assert_eq!(shop.changes_by("insert into link values ('x', 'y')").await, ["x insert"]);
    assert_eq!(shop.changes_by("update link set a = 'z'").await, ["z update"]);
    assert_eq!(shop.changes_by("update link set a = null").await, [" update"]);
    assert_eq!(shop.changes_by("delete from link").await, [" delete"]);
}

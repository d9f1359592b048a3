//! Document statements: keys in, documents out.

use std::{sync::Arc, time::Duration};

use honeyflow_runtime::Class;
use honeyflow_store::{KeyType, Load, LoadResult, Request, Store};
use serde_json::{Value, json};

use crate::{Shop, column, document, load, outcome};

const BOOKS: &str = "
    create table book(id integer primary key, title text, price real, cover blob, tags text);
    insert into book values (1, 'Ä', 12.5, x'00ff', '[\"a\"]'), (2, null, 3.0, null, '{'),
      (9007199254740993, 'big', -0.0, x'', '1'), (-4, 'inf', 9e999, null, null), (5, cast(x'ff' as text), 1, null, null);";

#[tokio::test]
async fn ob_24_documents_are_answered_in_the_order_of_the_keys() {
    let (_shop, store) = Shop::new(BOOKS).await;
    let statement = document("select id, title, price, cover from book where id in $keys");
    let keys = ["2", "77", "1", "9007199254740993", "2"];
    let loaded = load(&store, &statement, &keys).await.unwrap();
    let documents: Vec<_> = loaded.iter().map(|loaded| outcome(loaded).unwrap()).collect();
    let second = json!({"id": 2, "title": null, "price": 3, "cover": null});
    assert_eq!(
        documents,
        [
            second.clone(),
            Value::Null,
            json!({"id": 1, "title": "Ä", "price": 12.5, "cover": "AP8="}),
            json!({"id": 9_007_199_254_740_993_i64, "title": "big", "price": 0, "cover": ""}),
            second,
        ]
    );
    assert_eq!(documents[0]["price"].to_string(), "3", "a real that is integral is written as an integer");
    assert!(load(&store, &statement, &[]).await.unwrap().is_empty());
}

/// WF-14
#[tokio::test]
async fn f35_a_document_of_more_than_a_mebibyte_rejects_that_key_alone() {
    let (_shop, store) = Shop::new(
        "create table book(id integer primary key, title text, cover blob);
         insert into book values (1, 'small', null), (2, hex(zeroblob(300000)), zeroblob(500000)), (3, null, zeroblob(1048576));",
    )
    .await;
    let statement = document("select id, title, cover from book where id in $keys");
    let loaded = load(&store, &statement, &["1", "2", "3"]).await.unwrap();
    let codes: Vec<_> = loaded.iter().map(|loaded| outcome(loaded).err()).collect();
    assert_eq!(codes, [None, Some("output-too-large"), None]);
}

#[tokio::test]
async fn ob_24_a_value_that_json_cannot_represent_rejects_that_key_alone() {
    let (_shop, store) = Shop::new(BOOKS).await;
    let mut statement = document("select id, title, price, tags from book where id in $keys");
    statement.json = vec!["tags".into()];
    let loaded = load(&store, &statement, &["1", "2", "-4", "5", "abc", "01", "9007199254740993"]).await.unwrap();
    let outcomes: Vec<_> =
        loaded.iter().map(|loaded| outcome(loaded).map(|document| document["tags"].clone())).collect();
    let expected = [
        Ok(json!(["a"])),
        Err("bad-json"),
        Err("not-a-number"),
        Err("invalid-utf8"),
        Err("bad-key"),
        Err("bad-key"),
        Ok(json!(1)),
    ];
    assert_eq!(outcomes, expected);
    let rejected = loaded.iter().filter_map(|loaded| match loaded {
        LoadResult::Rejected(failure) => Some(failure.class),
        LoadResult::Document(_) => None,
    });
    assert!(rejected.into_iter().all(|class| class == Class::Reject));
}

#[tokio::test]
async fn ob_24_two_rows_of_a_key_reject_that_key_alone() {
    let (_shop, store) = Shop::new(BOOKS).await;
    let statement =
        document("select id, title from book where id in $keys union all select id, 'again' from book where id = 1");
    let loaded = load(&store, &statement, &["1", "2"]).await.unwrap();
    assert_eq!(outcome(&loaded[0]), Err("two-rows"));
    assert_eq!(outcome(&loaded[1]), Ok(json!({"id": 2, "title": null})));
}

#[tokio::test]
async fn keys_of_text_blobs_and_several_parts_are_typed() {
    let (_shop, store) = Shop::new(
        "create table word(w text primary key, n integer);
         insert into word values ('1', 1), ('it''s \"$keys\" \\', 2), ('ä|b', 3);
         create table file(hash blob primary key);
         insert into file values (x'00ff'), (x'41');
         create table line(orders integer, \"no of\" text, amount integer, primary key(orders, \"no of\"));
         insert into line values (1, 'a|b', 10), (1, '2', 20), (2, 'a\\', 30);",
    )
    .await;
    let word = vec![column("w", KeyType::Text)];
    let mut statement = document("select w, n from word where w in $keys");
    (statement.key, statement.result_key) = (word.clone(), word);
    let loaded = load(&store, &statement, &["1", "it's \"$keys\" \\", "ä|b", "Ä"]).await.unwrap();
    let numbers: Vec<_> = loaded.iter().map(|loaded| outcome(loaded).unwrap()["n"].clone()).collect();
    assert_eq!(numbers, [json!(1), json!(2), json!(3), json!(null)]);

    let hash = vec![column("hash", KeyType::Blob)];
    let mut statement = document("select f.hash from file f join $keys k on k.hash = f.hash");
    (statement.key, statement.result_key) = (hash.clone(), hash);
    let loaded = load(&store, &statement, &["00ff", "41", "42", "00FF", "1"]).await.unwrap();
    let found: Vec<_> = loaded.iter().map(|loaded| outcome(loaded).map(|document| document["hash"].clone())).collect();
    assert_eq!(found, [Ok(json!("AP8=")), Ok(json!("QQ==")), Ok(json!(null)), Err("bad-key"), Err("bad-key")]);

    let line = vec![column("orders", KeyType::Integer), column("no of", KeyType::Text)];
    for text in [
        "select l.* from line l join $keys k on k.orders = l.orders and k.\"no of\" = l.\"no of\"",
        "select * from line where (orders, \"no of\") in $keys -- done",
    ] {
        let mut statement = document(text);
        (statement.key, statement.result_key) = (line.clone(), line.clone());
        let loaded = load(&store, &statement, &[r"1|a\|b", "1|2", r"2|a\\", "3|x", "1"]).await.unwrap();
        let amounts: Vec<_> =
            loaded.iter().map(|loaded| outcome(loaded).map(|document| document["amount"].clone())).collect();
        assert_eq!(amounts, [Ok(json!(10)), Ok(json!(20)), Ok(json!(30)), Ok(json!(null)), Err("bad-key")], "{text}");
    }
}

#[tokio::test]
async fn a_single_key_uses_the_index() {
    let (_shop, store) = Shop::new(BOOKS).await;
    for text in
        ["select id, title from book where id in $keys", "select b.id, b.title from $keys k join book b on b.id = k.id"]
    {
        let plan = store.explain(Arc::new(document(text))).await.unwrap().join("\n");
        assert!(plan.contains("USING INTEGER PRIMARY KEY"), "{text}\n{plan}");
        assert!(!plan.contains("SCAN b"), "{text}\n{plan}");
    }
}

#[tokio::test]
async fn an_invalid_statement_is_refused_before_it_runs() {
    let (shop, store) = Shop::new(BOOKS).await;
    for (text, code) in [
        ("select id, title from book", "no-keys"),
        ("select id from book where id in $keys; delete from book", "two-statements"),
        ("delete from book where id in $keys", "not-a-query"),
        ("delete from book where id in $keys returning id", "not-a-query"),
        ("select id from book where id in $keys and price > ?2", "bad-parameters"),
        ("select title from book where id in $keys", "no-key-column"),
        ("select id from boook where id in $keys", "missing-table"),
        ("select id, titel from book where id in $keys", "missing-column"),
        ("selct id from book where id in $keys", "bad-statement"),
    ] {
        let failure = store.prepare(Arc::new(document(text))).await.unwrap_err();
        assert_eq!((failure.class, &*failure.code), (Class::Fatal, code), "{text}: {failure}");
        assert!(failure.message.starts_with("entity.book.document: "), "{failure}");
        if !matches!(code, "bad-parameters") {
            assert!(load(&store, &document(text), &["1"]).await.is_err(), "a load does not execute it either: {text}");
        }
    }
    let good = document("select b.id, b.title as name from book b where b.id in $keys");
    assert_eq!(store.prepare(Arc::new(good)).await.unwrap().columns, ["id", "name"]);
    let rows: i64 = shop.application().query_row("select count(*) from book", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 5);
}

#[tokio::test]
async fn a_slow_statement_is_interrupted() {
    let (_shop, store) = Shop::new(BOOKS).await;
    let endless = "with recursive n(i) as (select 1 union all select i + 1 from n)
         select max(i) as id from n where i in $keys";
    let load_endless = Load {
        statement: Arc::new(document(endless)),
        keys: vec!["1".into()],
        expand: None,
        timeout: Duration::from_millis(50),
    };
    let failure = store.call(Request::Load(load_endless)).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "statement-timeout"), "{failure}");
    let statement = document("select id, title from book where id in $keys");
    assert!(load(&store, &statement, &["1"]).await.is_ok(), "the next one has its own time");
}

#[tokio::test]
async fn a_column_added_while_running_is_in_the_next_document() {
    let (shop, store) = Shop::new(BOOKS).await;
    let statement = document("select * from book where id in $keys");
    load(&store, &statement, &["1"]).await.unwrap();
    shop.application().execute_batch("alter table book add column pages integer default 7").unwrap();
    let loaded = load(&store, &statement, &["1"]).await.unwrap();
    assert_eq!(outcome(&loaded[0]).unwrap()["pages"], 7);
}

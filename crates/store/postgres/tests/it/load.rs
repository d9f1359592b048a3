//! Document and edge statements.

use std::time::Duration;

use honeyflow_runtime::{Class, Failure};
use honeyflow_store::{
    Admin, AdminReply, KeyType, Load, LoadResult, Reply, Request, Statement, Store, statement::Expand,
};
use honeyflow_store_postgres::PostgresStore;
use serde_json::{Value, json};

use crate::{Shop, column, document, keys, run, shared};

const BOOKS: &str = "create table publisher(id int primary key, name varchar(40));
     create table book(id int primary key, title text, price numeric(8,2), weight double precision, cover bytea,
       tags text[], meta jsonb, raw text, sold boolean, at timestamptz, publisher_id int);
     insert into publisher values (1, 'Gräfe');
     insert into book values
       (1, 'it''s \"one\"', 19.90, 1.5, '\\x666f6f', array['a','b'], '{\"x\": [1]}', '{\"y\":2}', true,
        '2026-01-02 03:04:05+00', 1),
       (2, null, 3.00, 3, null, null, null, null, null, null, null),
       (3, 'bad', 1, 'NaN', null, null, null, null, null, null, null)";

async fn load(store: &PostgresStore, statement: &Statement, wanted: &[&str]) -> Result<Vec<LoadResult>, Failure> {
    let statement = shared(statement.clone());
    let load = Load { statement, keys: keys(wanted), expand: None, timeout: Duration::from_secs(10) };
    match store.call(Request::Load(load)).await? {
        Reply::Loaded(loaded) => Ok(loaded),
        other => panic!("{other:?}"),
    }
}

/// Returns the document, `null` if there is none, or the code of the rejection.
fn outcome(loaded: &LoadResult) -> Result<Value, &str> {
    match loaded {
        LoadResult::Document(document) => Ok(document.as_deref().cloned().unwrap_or_default()),
        LoadResult::Rejected(failure) => Err(&failure.code),
    }
}

#[tokio::test]
async fn ob_24_documents_come_in_the_order_of_the_keys() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    run(&mut shop.connect().await, BOOKS).await;
    let mut statement = document(
        "select b.*, p.name as publisher from book b left join publisher p on p.id = b.publisher_id where b.id in $keys",
    );
    statement.json = vec!["raw".into()];
    let loaded = load(&store, &statement, &["2", "99", "1", "x", "3", "1"]).await.unwrap();
    let found: Vec<_> = loaded.iter().map(outcome).collect();
    let one = json!({
        "id": 1, "title": "it's \"one\"", "price": 19.9, "weight": 1.5, "cover": "Zm9v", "tags": ["a", "b"],
        "meta": {"x": [1]}, "raw": {"y": 2}, "sold": true, "at": "2026-01-02T03:04:05+00:00", "publisher_id": 1,
        "publisher": "Gräfe",
    });
    assert_eq!(found[0].as_ref().unwrap()["price"], json!(3), "an integral number is an integer");
    assert_eq!(found[0].as_ref().unwrap()["title"], Value::Null);
    assert_eq!(found[1], Ok(Value::Null));
    assert_eq!(found[2].as_ref().unwrap(), &one);
    assert_eq!((&found[3], &found[4]), (&Err("bad-key"), &Err("not-a-number")));
    assert_eq!(found[5], found[2]);
}

#[tokio::test]
async fn composite_text_and_blob_keys_are_found() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    run(
        &mut shop.connect().await,
        "create table line(shop text, n bigint, code bytea, amount int, primary key (shop, n, code));
         insert into line values ('a|b', 1, '\\x0aff', 5), ('a|b', 2, '\\x', 6)",
    )
    .await;
    let key = vec![column("shop", KeyType::Text), column("n", KeyType::Integer), column("code", KeyType::Blob)];
    let statement = Statement {
        key: key.clone(),
        result_key: key.clone(),
        ..document("select l.* from line l join $keys k on (l.shop, l.n, l.code) = (k.shop, k.n, k.code)")
    };
    let loaded = load(&store, &statement, &[r"a\|b|1|0aff", r"a\|b|2|", r"a\|b|2|0g"]).await.unwrap();
    let amounts: Vec<_> =
        loaded.iter().map(|loaded| outcome(loaded).map(|document| document["amount"].clone())).collect();
    assert_eq!(amounts, [Ok(json!(5)), Ok(json!(6)), Err("bad-key")]);
    let listed = |after: Option<&str>| {
        let after = after.map(Into::into);
        store.call(Request::Admin(Admin::TableKeys { table: "line".into(), key: key.clone(), after, limit: 10 }))
    };
    let Ok(Reply::Admin(AdminReply::Keys(all))) = listed(None).await else { panic!("no keys") };
    assert_eq!(all, keys(&[r"a\|b|1|0aff", r"a\|b|2|"]));
    let Ok(Reply::Admin(AdminReply::Keys(rest))) = listed(Some(r"a\|b|1|0aff")).await else { panic!("no keys") };
    assert_eq!(rest, keys(&[r"a\|b|2|"]));
}

#[tokio::test]
async fn ob_24_two_rows_of_a_key_are_rejected_alone() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    run(&mut shop.connect().await, BOOKS).await;
    let statement = document("select id, title from book where id in $keys union all select 2, 'again'");
    let loaded = load(&store, &statement, &["1", "2"]).await.unwrap();
    assert!(outcome(&loaded[0]).is_ok());
    assert_eq!(outcome(&loaded[1]), Err("two-rows"));
}

#[tokio::test]
async fn an_invalid_statement_is_refused_with_its_path_in_the_configuration() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    run(&mut shop.connect().await, BOOKS).await;
    for (text, expected) in [
        ("select * from book", "no-keys"),
        ("select * from bok where id in $keys", "missing-table"),
        ("select titel from book where id in $keys", "missing-column"),
        ("selekt * from book where id in $keys", "bad-statement"),
        ("select title from book where id in $keys", "no-key-column"),
        ("select id, id from book where id in $keys", "two-columns"),
        ("delete from book where id in $keys returning id", "bad-statement"),
        ("select * from book where id in $keys and price > $2", "bad-parameters"),
    ] {
        let failure = store.prepare(shared(document(text))).await.unwrap_err();
        assert_eq!((failure.class, &*failure.code), (Class::Fatal, expected), "{text}: {failure}");
        assert!(failure.message.starts_with("entity.book.document: "), "{failure}");
        let failure = load(&store, &document(text), &["1"]).await.unwrap_err();
        assert_eq!(failure.code, expected, "{text}: {failure}");
    }
    let prepared = store.prepare(shared(document("select id, title from book where id in $keys;"))).await.unwrap();
    assert_eq!(prepared.columns, ["id", "title"]);
    assert_eq!(prepared.types, ["integer", "text"]);
    assert_eq!(load(&store, &document("select id from book where id in $keys"), &["1"]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_slow_statement_times_out_and_others_continue() {
    let Some((_shop, store)) = Shop::new(1).await else { return };
    let slow = document("select part.id, pg_sleep(60) from $keys part");
    let load_slow =
        Load { statement: shared(slow), keys: keys(&["1"]), expand: None, timeout: Duration::from_millis(50) };
    let failure = store.call(Request::Load(load_slow)).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "statement-timeout"), "{failure}");
    assert!(failure.message.starts_with("entity.book.document: "), "{failure}");
    let quick = document("select part.id from $keys part");
    assert_eq!(load(&store, &quick, &["1"]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn ob_26_edges_lead_to_containers_page_by_page() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    run(
        &mut shop.connect().await,
        "create table link(author int, shop text, n int);
         insert into link values (7, 'b|', 1), (7, 'b|', 1), (7, 'a', 10), (7, 'a', 9), (8, 'z', 1), (7, null, 1)",
    )
    .await;
    let mut edge = document("select shop, n from link where author in $keys");
    (edge.key, edge.result_key) = (vec![column("author", KeyType::Integer)], vec![]);
    let edge = shared(edge);
    store.prepare(edge.clone()).await.unwrap();
    let mut after = None;
    for page in [&["a|10", "a|9"][..], &[r"b\||1"], &[]] {
        let expand = Some(Expand { after: after.clone(), limit: 2 });
        let load =
            Load { statement: edge.clone(), keys: keys(&["7", "none"]), expand, timeout: Duration::from_secs(10) };
        let Ok(Reply::Keys(found)) = store.call(Request::Load(load)).await else { panic!("no keys") };
        assert_eq!(found, keys(page));
        after = found.last().cloned().or(after);
    }
}

/// Loads the name of the row with each of the keys from `create table t(k <kind> primary key, name text)`.
async fn names(kind: KeyType, rows: &str, wanted: &[&str]) -> Option<Vec<Result<Value, String>>> {
    let (shop, store) = Shop::new(1).await?;
    run(&mut shop.connect().await, rows).await;
    let key = vec![column("k", kind)];
    let statement =
        Statement { key: key.clone(), result_key: key.clone(), ..document("select k, name from t where k in $keys") };
    let prepared = store.prepare(shared(statement.clone())).await;
    assert!(prepared.is_ok(), "{prepared:?}");
    let loaded = load(&store, &statement, wanted).await.unwrap();
    let listed = Admin::TableKeys { table: "t".into(), key, after: None, limit: 100 };
    let Ok(Reply::Admin(AdminReply::Keys(listed))) = store.call(Request::Admin(listed)).await else {
        panic!("no keys")
    };
    for key in &listed {
        assert!(outcome(&load(&store, &statement, &[key]).await.unwrap()[0]).unwrap().is_object(), "{key} is listed");
    }
    let name = |loaded: &LoadResult| match loaded {
        LoadResult::Rejected(failure) => Err(failure.message.clone()),
        LoadResult::Document(document) => Ok(document.as_deref().map_or(Value::Null, |row| row["name"].clone())),
    };
    Some(loaded.iter().map(name).collect())
}

fn refused(key: &str, why: &str) -> Result<Value, String> {
    Err(format!("key `{key}`: {why}"))
}

#[tokio::test]
async fn ob_3_uuid_keys_are_compared_as_uuids() {
    const A: &str = "6f1c2a00-0000-4000-8000-00000000000a";
    let rows = format!("create table t(k uuid primary key, name text); insert into t values ('{A}', 'a')");
    let upper = A.to_uppercase();
    let absent = A.replace('6', "7");
    let Some(found) = names(KeyType::Uuid, &rows, &[A, &absent, &upper, "x"]).await else { return };
    let wrong = |key: &str| refused(key, "`k` is not a UUID in lower case");
    assert_eq!(found, [Ok(json!("a")), Ok(Value::Null), wrong(&upper), wrong("x")]);
}

/// `char(5)` is filled with blanks where it is shown: the row must not be taken for absent.
#[tokio::test]
async fn ob_3_char_keys_are_found_without_their_blanks() {
    let rows = "create table t(k char(5) primary key, name text); insert into t values ('ab', 'a'), ('abcde', 'e')";
    let Some(found) = names(KeyType::Named("bpchar"), rows, &["ab", "abcde", "x", "ab  "]).await else { return };
    let other_form = refused("ab  ", "the database writes this key as `ab`");
    assert_eq!(found, [Ok(json!("a")), Ok(json!("e")), Ok(Value::Null), other_form]);
}

#[tokio::test]
async fn ob_3_dates_times_and_decimals_have_one_text() {
    let day = "create table t(k date primary key, name text); insert into t values ('2026-01-02', 'a')";
    let Some(found) = names(KeyType::Named("date"), day, &["2026-01-02", "2026-1-2", "2025-01-02"]).await else {
        return;
    };
    let other_form = refused("2026-1-2", "the database writes this key as `2026-01-02`");
    assert_eq!(found, [Ok(json!("a")), other_form, Ok(Value::Null)]);
    let time =
        "create table t(k timestamptz primary key, name text); insert into t values ('2026-01-02 03:04:05.5+02', 'a')";
    let found = names(KeyType::Named("timestamptz"), time, &["2026-01-02T01:04:05.5"]).await;
    assert_eq!(found.unwrap(), [Ok(json!("a"))]);
    let number =
        "create table t(k numeric(20,0) primary key, name text); insert into t values (12345678901234567890, 'a')";
    let found = names(KeyType::Named("numeric"), number, &["12345678901234567890", "1.0"]).await;
    assert_eq!(found.unwrap(), [Ok(json!("a")), refused("1.0", "the database writes this key as `1`")]);
}

#[tokio::test]
async fn ob_3_a_key_in_another_form_is_rejected_and_never_taken_for_absent() {
    let rows = "create table t(k bigint primary key, name text); insert into t values (42, 'a')";
    let Some(found) = names(KeyType::Integer, rows, &["42", "042", "+42", "43"]).await else { return };
    let wrong = |key: &str| refused(key, "`k` is not an integer as the database writes it");
    assert_eq!(found, [Ok(json!("a")), wrong("042"), wrong("+42"), Ok(Value::Null)]);
    let rows = "create table t(k bytea primary key, name text); insert into t values ('\\x0aff', 'a')";
    let found = names(KeyType::Blob, rows, &["0aff", "0AFF"]).await;
    assert_eq!(found.unwrap(), [Ok(json!("a")), refused("0AFF", "`k` is not lower-case hex")]);
}

/// Settings of a role or database change how values are written; a load does not depend on them.
#[tokio::test]
async fn ob_24_settings_of_the_database_change_no_key_and_no_document() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    let mut connection = shop.connect().await;
    run(
        &mut connection,
        "create table t(k bytea primary key, at timestamptz, day date, weight double precision, long interval, raw bytea);
         insert into t values ('\\x0aff', '2026-01-02 03:04:05+00', '2026-01-02', 0.1, '1 day 02:00', '\\x666f6f')",
    )
    .await;
    let key = vec![column("k", KeyType::Blob)];
    let statement = Statement { key: key.clone(), result_key: key, ..document("select * from t where k in $keys") };
    let before = load(&store, &statement, &["0aff"]).await.unwrap();
    let found = outcome(&before[0]).unwrap();
    assert_eq!((&found["raw"], &found["at"]), (&json!("Zm9v"), &json!("2026-01-02T03:04:05+00:00")));
    for setting in [
        "bytea_output = 'escape'",
        "timezone = 'Asia/Kathmandu'",
        "datestyle = 'German, DMY'",
        "intervalstyle = 'iso_8601'",
        "extra_float_digits = -3",
    ] {
        let alter = format!(
            "do $$ begin execute format('alter database %I set {}', current_database()); end $$",
            setting.replace('\'', "''")
        );
        run(&mut connection, &alter).await;
    }
    let fresh = PostgresStore::open(shop.options()).await.unwrap();
    let after = load(&fresh, &statement, &["0aff"]).await.unwrap();
    run(&mut connection, "do $$ begin execute format('alter database %I reset all', current_database()); end $$").await;
    assert_eq!(outcome(&after[0]).unwrap(), found);
}

#[tokio::test]
async fn ob_24_decimals_keep_all_their_digits() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    run(
        &mut shop.connect().await,
        "create table t(id int primary key, price numeric(38,10));
         insert into t values (1, 12345678901234567890.0123456789), (2, 19.90), (3, null), (4, 'NaN')",
    )
    .await;
    let statement = document("select id, price from t where id in $keys");
    let loaded = load(&store, &statement, &["1", "2", "3", "4"]).await.unwrap();
    let price = |n: usize| outcome(&loaded[n]).map(|document| document["price"].clone());
    assert_eq!(price(0), Ok(json!("12345678901234567890.0123456789")));
    assert_eq!((price(1), price(2), price(3)), (Ok(json!(19.9)), Ok(Value::Null), Err("not-a-number")));
}

//! Edge statements: they lead from a changed row to the documents that contain it, page by page.

use std::{sync::Arc, time::Duration};

use honeyflow_event::Key;
use honeyflow_store::{Admin, AdminReply, KeyType, Load, Reply, Request, Statement, Store, statement::Expand};
use honeyflow_store_sqlite::SqliteStore;

use crate::{Shop, column, document};

fn edge(text: &str) -> Arc<Statement> {
    let mut statement = document(text);
    statement.place = "entity.book.edge[0]".into();
    statement.result_key = vec![];
    Arc::new(statement)
}

async fn pages(store: &SqliteStore, statement: &Arc<Statement>, causes: &[&str], limit: u32) -> Vec<String> {
    let (mut after, mut found) = (None, Vec::new());
    loop {
        let load = Load {
            statement: Arc::clone(statement),
            keys: causes.iter().map(|key| Key::from(*key)).collect(),
            expand: Some(Expand { after: after.clone(), limit }),
            timeout: Duration::from_secs(10),
        };
        let Reply::Keys(keys) = store.call(Request::Load(load)).await.unwrap() else { panic!("no keys") };
        assert!(keys.len() <= limit as usize);
        let Some(last) = keys.last() else { return found };
        after = Some(last.clone());
        found.extend(keys.iter().map(ToString::to_string));
    }
}

#[tokio::test]
async fn ob_26_an_edge_is_followed_page_by_page() {
    let (_shop, store) = Shop::new(
        "create table book_author(author_id integer, book_id integer);
         with recursive n(i) as (select 1 union all select i + 1 from n where i < 250)
         insert into book_author select i % 2, i from n;
         insert into book_author select author_id, book_id from book_author;
         insert into book_author values (1, null);",
    )
    .await;
    let statement = edge("select book_id from book_author where author_id in $keys; -- end");
    store.prepare(Arc::clone(&statement)).await.unwrap();
    let found = pages(&store, &statement, &["1"], 7).await;
    assert!(found.is_sorted(), "in the order of the text's bytes");
    let mut expected: Vec<String> = (1..250).step_by(2).map(|n| n.to_string()).collect();
    expected.sort();
    assert_eq!(found, expected, "complete and each once");
    assert_eq!(pages(&store, &statement, &["0", "1", "abc"], 1000).await.len(), 250);
    assert!(pages(&store, &statement, &["5"], 10).await.is_empty());
}

#[tokio::test]
async fn ob_26_containers_with_keys_of_any_type_are_paged() {
    let (_shop, store) = Shop::new(
        "create table uses(cause integer, a text collate nocase, b blob);
         insert into uses values (1, 'x', x'0a'), (1, 'X', x'0a'), (1, 'p|q', x'ff'), (1, '\\', x''), (1, 'x', x'0b');",
    )
    .await;
    let composite = edge("with u as (select * from uses where cause in $keys) select a, b from u");
    let expected = ["X|0a", r"\\|", r"p\|q|ff", "x|0a", "x|0b"];
    for limit in 1..6 {
        assert_eq!(pages(&store, &composite, &["1"], limit).await, expected, "pages of {limit}");
    }
    let single = edge("select a from uses where cause in $keys");
    assert_eq!(pages(&store, &single, &["1"], 2).await, ["X", "\\", "p|q", "x"], "one part is not escaped");
}

#[tokio::test]
async fn ob_75_keys_of_a_table_are_paged_in_their_order() {
    let (_shop, store) = Shop::new(
        "create table \"order line\"(o integer, n text, b blob, primary key(o, n, b));
         insert into \"order line\" values (10, 'a', x'01'), (2, 'b|', x'02'), (2, 'b|', x'03'), (-1, '', x''), (null, 'a', x'01');",
    )
    .await;
    let key = vec![column("o", KeyType::Integer), column("n", KeyType::Text), column("b", KeyType::Blob)];
    let (mut after, mut found) = (None, Vec::new());
    loop {
        let admin = Admin::TableKeys { table: "order line".into(), key: key.clone(), after: after.clone(), limit: 2 };
        let Reply::Admin(AdminReply::Keys(keys)) = store.call(Request::Admin(admin)).await.unwrap() else {
            panic!("no keys")
        };
        let Some(last) = keys.last() else { break };
        after = Some(last.clone());
        found.extend(keys.iter().map(ToString::to_string));
    }
    assert_eq!(found, ["-1||", r"2|b\||02", r"2|b\||03", "10|a|01"]);
}

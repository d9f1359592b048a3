//! Typed columns, rows of one partition in one request, and writes that the cluster itself refuses.

use honeyflow_conformance::sink::{delete, put};
use honeyflow_event::document;
use honeyflow_runtime::Class;
use honeyflow_sink::{Outcome, Sink};
use honeyflow_sink_cassandra::{CassandraSink, KeyKind, VERSION};
use serde_json::{Value, json};

use crate::cluster::{Cluster, part, stamp};

const LINES: &str = "order_id bigint, sku text, title text, amount int, price decimal, tags set<text>, sold timestamp, \
                     honeyflow_version bigint, PRIMARY KEY (order_id, sku)";

async fn lines(cluster: &Cluster) -> (CassandraSink, String) {
    let table = cluster.table(LINES).await;
    let key = vec![part("order_id", KeyKind::Integer), part("sku", KeyKind::Text)];
    let sink = CassandraSink::open(cluster.session.clone(), cluster.options(&table, key)).await;
    (sink.expect("the table fits"), format!("honeyflow_sink.{table}"))
}

fn line(amount: impl Into<Value>) -> Value {
    let amount = amount.into();
    json!({"title": "Bees", "amount": amount, "price": "12.50", "tags": ["b", "a"], "sold": "2024-02-29 12:30", "else": 1})
}

/// CQ-14: every statement has the timestamp of its own row, also if several rows are sent in one request.
#[tokio::test]
async fn cq_14_rows_of_a_partition_keep_their_own_versions() {
    let Some(cluster) = Cluster::join().await else { return };
    let (sink, table) = lines(&cluster).await;
    let writes = (0..250).map(|n| put(&format!("7|sku {n:03}"), stamp(3, n), line(n))).collect();
    assert_eq!(sink.write(writes).await, vec![Outcome::Done; 250]);
    let rows =
        cluster.run(&format!("SELECT {VERSION}, writetime(title), amount FROM {table} WHERE order_id = 7")).await;
    let rows: Vec<(i64, i64, i32)> = rows.typed().map(|row| row.expect("a row")).collect();
    assert_eq!(rows.len(), 250);
    for (n, (version, written, amount)) in (0..).zip(rows) {
        let expected = i64::try_from(stamp(3, n).0).expect("fits");
        assert_eq!((version, written, amount.cast_unsigned()), (expected, expected, n));
    }
    let stat = sink.stat(vec!["7|sku 009".into()]).await.expect("stat answers")[0].clone().expect("it is there");
    let held = sink.as_held(&line(9).into()).expect("it fits");
    assert_eq!((stat.stamp, stat.hash), (stamp(3, 9), document::hash(&held)));
    let (hits, _) = sink.list(None, 1).await.expect("list answers");
    let expected = json!({"order_id": 7, "sku": "sku 000", "title": "Bees", "amount": 0, "price": "12.5",
                          "tags": ["a", "b"], "sold": "2024-02-29T12:30:00.000Z"});
    assert_eq!((hits[0].key.as_str(), &*hits[0].document), ("7|sku 000", &expected));
}

/// F-2: a node has judged its write as valid, slept until its lease was lost, and sends the write now.
#[tokio::test]
async fn f_2_the_cluster_itself_refuses_older_writes() {
    let Some(cluster) = Cluster::join().await else { return };
    let (sink, table) = lines(&cluster).await;
    assert_eq!(sink.write(vec![put("1|a", stamp(9, 1), line(9))]).await, [Outcome::Done]);
    assert_eq!(sink.write(vec![put("1|b", stamp(9, 2), line(9))]).await, [Outcome::Done]);
    assert_eq!(sink.write(vec![delete("1|b", stamp(9, 3))]).await, [Outcome::Done]);
    // What such a node would send, without reading and judging again.
    for (sku, epoch) in [("a", 8), ("b", 9)] {
        let old = stamp(epoch, 0).0;
        cluster
            .run(&format!(
                "INSERT INTO {table} (order_id, sku, amount, {VERSION}) VALUES (1, '{sku}', 1, {old}) USING TIMESTAMP {old}"
            ))
            .await;
        cluster.run(&format!("DELETE FROM {table} USING TIMESTAMP {old} WHERE order_id = 1 AND sku = 'a'")).await;
    }
    let rows = cluster.run(&format!("SELECT sku, amount FROM {table} WHERE order_id = 1")).await;
    let rows: Vec<(String, i32)> = rows.typed().map(|row| row.expect("a row")).collect();
    assert_eq!(rows, [("a".to_owned(), 9)]);
    let late = sink.write(vec![put("1|a", stamp(8, 0), line(1)), put("1|b", stamp(9, 1), line(1))]).await;
    assert_eq!(late, [Outcome::Stale { stored: stamp(9, 1) }, Outcome::Stale { stored: stamp(9, 3) }]);
}

/// RL-15
#[tokio::test]
async fn rl_15_a_poison_row_fails_alone() {
    let Some(cluster) = Cluster::join().await else { return };
    let (sink, _) = lines(&cluster).await;
    // A clustering column takes at most 64 KiB, which only the server checks; a key of Honeyflow is shorter. An amount
    // that is not a number is refused before it is sent; a title that is too long for a mutation is refused by the
    // server.
    let huge = Value::String("x".repeat(17 << 20));
    let answers = sink
        .write(vec![
            put("5|a", stamp(1, 1), line(1)),
            put("5|b", stamp(1, 2), line("many")),
            put("5|c", stamp(1, 3), json!({"title": huge})),
            put("five|d", stamp(1, 4), line(1)),
            put("5|e", stamp(1, 5), line(5)),
        ])
        .await;
    assert_eq!((&answers[0], &answers[4]), (&Outcome::Done, &Outcome::Done), "{answers:?}");
    let rejected = |at: usize| match &answers[at] {
        Outcome::Failed(failure) => (failure.class, failure.code.to_string(), failure.message.clone()),
        other => panic!("{other:?}"),
    };
    let (class, code, message) = rejected(1);
    assert_eq!((class, code.as_str()), (Class::Reject, "bad-field"));
    assert!(message.contains("`amount` is int") && message.contains("text"), "{message}");
    assert_eq!((rejected(2).0, rejected(2).1.as_str()), (Class::Reject, "cassandra-refused"), "{}", rejected(2).2);
    assert_eq!(rejected(3).1, "bad-key");
    assert_eq!(sink.count().await, Ok(2));
}

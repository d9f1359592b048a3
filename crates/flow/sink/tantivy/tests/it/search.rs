//! Queries, and hostile documents and queries.

use honeyflow_conformance::sink::put;
use honeyflow_runtime::Class;
use honeyflow_sink::{Outcome, Sink};
use honeyflow_sink_tantivy::{Field, FieldKind, TantivySink};
use serde_json::{Value, json};

use crate::{fields, open, options, stamp};

async fn found(sink: &TantivySink, query: &str) -> Vec<String> {
    let hits = sink.search(query.to_owned(), 10).await.unwrap_or_else(|failure| panic!("{query}: {failure}"));
    let mut keys: Vec<_> = hits.into_iter().map(|hit| hit.key).collect();
    keys.sort();
    keys
}

#[tokio::test]
async fn fields_are_searched_by_their_kind() {
    let home = tempfile::tempdir().unwrap();
    let sink = open(home.path());
    let wonderland = json!({"title": "Alice's adventures in Wonderland", "isbn": "978-0-14", "price": 7.5, "pages": 96,
        "in_print": 1, "published": "1865-11-26", "authors": ["Lewis Carroll"]});
    let snark = json!({"title": "The hunting of the Snark", "isbn": "978-1-85", "price": "12.50", "pages": 48,
        "in_print": false, "published": "1876-03-29T10:00:00Z", "authors": [{"first": "Lewis"}, "Holiday, Henry"]});
    let answers = sink.write(vec![put("1", stamp(1, 1), wonderland.clone()), put("2", stamp(1, 2), snark)]).await;
    assert_eq!(answers, [Outcome::Done, Outcome::Done]);
    for (query, keys) in [
        ("", &["1", "2"][..]),
        ("adventure", &["1"]),
        ("title:hunt", &["2"]),
        ("lewis", &["1", "2"]),
        ("authors:\"henry holiday\"", &[]),
        ("isbn:978-0-14", &["1"]),
        ("price:[10 TO 13]", &["2"]),
        ("pages:>50", &["1"]),
        ("in_print:true", &["1"]),
        ("published:[1870-01-01T00:00:00Z TO 1880-01-01T00:00:00Z]", &["2"]),
        ("_key:2", &["2"]),
        ("lewis -snark", &["1"]),
        ("\"wonderland", &["1"]),
        ("*", &["1", "2"]),
    ] {
        assert_eq!(found(&sink, query).await, keys, "{query}");
    }
    let hit = sink.search("wonderland".into(), 10).await.unwrap().remove(0);
    assert_eq!((&*hit.document, hit.stamp), (&wonderland, stamp(1, 1)));
    assert!(hit.score > 0.0);
    assert_eq!(sink.search("lewis".into(), 0).await, Ok(Vec::new()));
    assert_eq!(sink.search("lewis".into(), u32::MAX).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_bad_query_is_rejected_with_an_explanation() {
    let home = tempfile::tempdir().unwrap();
    let sink = open(home.path());
    for (query, word) in [
        ("color:red", "title"),
        ("price:cheap", "number"),
        ("pages:[a TO b]", ""),
        ("-alice", ""),
        (&*"(".repeat(3000), "nested"),
        (&*"x ".repeat(5000), "longer"),
    ] {
        let failure = sink.search(query.to_owned(), 10).await.expect_err(query);
        assert_eq!((failure.class, &*failure.code), (Class::Reject, "bad-query"), "{query}");
        assert!(failure.message.contains(word), "{}", failure.message);
    }
    for query in [
        "(((",
        ")",
        "\"",
        ":",
        "title:",
        "[ TO",
        "a AND",
        "\\",
        "^",
        "title:^5",
        "~",
        "NOT",
        "+",
        "'",
        "_source:x",
        "\0",
    ] {
        let _ = sink.search(query.to_owned(), 10).await;
    }
}

#[tokio::test]
async fn rl_15_a_document_that_does_not_fit_fails_alone() {
    let home = tempfile::tempdir().unwrap();
    let sink = open(home.path());
    let writes = vec![
        put("1", stamp(1, 1), json!({"price": 1})),
        put("2", stamp(1, 2), json!({"price": "cheap"})),
        put("3", stamp(1, 3), json!({"price": null})),
    ];
    let answers = sink.write(writes).await;
    assert_eq!((&answers[0], &answers[2]), (&Outcome::Done, &Outcome::Done));
    let Outcome::Failed(failure) = &answers[1] else { panic!("taken: {answers:?}") };
    assert_eq!((failure.class, &*failure.code), (Class::Reject, "bad-field"));
    assert_eq!(sink.count().await, Ok(2));
    let alone = sink.write(vec![put("2", stamp(1, 4), json!({"price": {}}))]).await;
    assert!(matches!(&alone[..], [Outcome::Failed(failure)] if failure.code == "bad-field"));
}

#[tokio::test]
async fn no_json_shape_and_no_key_breaks_the_writer() {
    let home = tempfile::tempdir().unwrap();
    let sink = open(home.path());
    let shapes = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1.5),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("x"),
        json!("\u{0}\u{ffff}"),
        json!("w".repeat(200_000)),
        json!("w ".repeat(20_000)),
        json!([]),
        json!({}),
        json!([[[]]]),
        json!([{"a": [1, "b", null]}]),
        json!({"": {"": [""]}}),
    ];
    let mut sequence = 0;
    for field in fields() {
        for shape in &shapes {
            sequence += 1;
            let document: Value = json!({ field.name.as_str(): shape });
            let key = format!("{}\u{0}\n{sequence}", field.name);
            let answers = sink.write(vec![put(&key, stamp(1, sequence), document)]).await;
            let fits = match &answers[..] {
                [Outcome::Done] => true,
                [Outcome::Failed(failure)] => failure.class != Class::Reject,
                _ => true,
            };
            let known = sink.stat(vec![key.as_str().into()]).await.unwrap();
            assert_eq!(known[0].is_some(), fits, "{} = {shape}: {answers:?}", field.name);
        }
    }
    let count = sink.count().await.unwrap();
    assert_eq!(sink.list(None, 10_000).await.unwrap().0.len() as u64, count);
    assert_eq!(sink.counters().commits_failed.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test]
async fn reserved_field_names_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let with = |fields| TantivySink::open(honeyflow_sink_tantivy::Options { fields, ..options(home.path()) });
    assert_eq!(with(vec![Field::new("_key", FieldKind::Keyword)]).err().unwrap().code, "bad-field-configuration");
    assert!(with(fields()).is_ok());
}

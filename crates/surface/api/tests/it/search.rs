//! Searches of a sink, by programs and on the page without its script.

use honeyflow_api::SinkView;
use honeyflow_sink::MemorySink;
use serde_json::json;
use std::sync::Arc;

use crate::harness::{start, start_with};

#[tokio::test]
async fn hits_have_entity_key_version_and_document() {
    let server = start().await;
    server.index("42", 7 << 22, json!({ "title": "Dune" }));
    server.index("43", 8 << 22, json!({ "title": "Solaris" }));
    let found = server.get("/v1/search?sink=books&q=Dune&limit=10").await;
    let hit = json!({ "entity": "book", "key": "42", "version": "29360128", "document": { "title": "Dune" } });
    assert_eq!(found.json(), json!({ "hits": [hit] }));
    assert_eq!(server.get("/v1/search").await.json()["hits"].as_array().unwrap().len(), 2, "the only sink, everything");
    server.index("42", 9 << 22, json!({ "title": "Dune Messiah" }));
    let again = server.get("/v1/search?q=Dune+Messiah").await.json();
    assert_eq!(again["hits"][0]["document"]["title"], "Dune Messiah", "the change just made");
}

#[tokio::test]
async fn a_refused_search_says_what_is_wrong() {
    let server = start_with(|node| {
        let sink = Arc::new(MemorySink::default());
        node.sinks.push(SinkView { name: "authors".into(), entity: "author".into(), sink });
    })
    .await;
    for (path, code) in [
        ("/v1/search?q=a", "sink-missing"),
        ("/v1/search?sink=boks&q=a", "unknown-sink"),
        ("/v1/search?sink=books&limit=501", "bad-limit"),
        ("/v1/search?sink=books&limit=500000", "bad-limit"),
        ("/v1/search?sink=books&limit=0", "bad-limit"),
        ("/v1/search?sink=books&limit=-1", "bad-limit"),
        ("/v1/search?sink=books&limt=1", "unknown-parameter"),
        ("/v1/search?sink=books&sink=authors", "repeated-parameter"),
    ] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, code), "{path}");
    }
    assert_eq!(server.get("/v1/search?sink=books&limit=500").await.status, 200);
    let hint = &server.get("/v1/search?sink=boks").await.json()["error"]["hint"];
    assert_eq!(hint, "did you mean `books`?");
}

#[tokio::test]
async fn the_page_searches_without_its_script() {
    let server = start().await;
    server.index("42", 7 << 22, json!({ "title": "Dune <b>", "authors": ["Frank Herbert"] }));
    let page = server.get("/?sink=books&q=Dune").await;
    assert!(page.body.contains("Dune &lt;b&gt;") && page.body.contains("Frank Herbert"), "{}", page.body);
    assert!(page.body.contains(">1 hit<"));
    let page = server.get("/?sink=nothing&q=Dune").await;
    assert!(page.status == 200 && page.body.contains("there is no sink"), "a wrong sink leaves the page whole");
}

//! Events sent over HTTP: an event that was answered with 202 is processed, even if the node is killed in between.

use serde_json::json;

use crate::{node::Node, shop::Shop};

/// An entity whose documents are built from messages, not from the table.
const NOTES: &str = r#"
[entity.note]
source   = "shop"
key      = ["id"]
document = "select id from note where id in $keys"

[sink.note]
url   = "tantivy:note"
field = { text = "text" }

[workflow.note]
on = [{ source = "shop", entity = "note" }]
step.shape = { use = "transform", expression = "{text: (.payload.text | ascii_upcase), key: .key}" }
step.index = { use = "search.index", needs = ["shape"], into = "note" }
"#;

fn with_notes() -> (Shop, Node) {
    let shop = Shop::new(5);
    shop.sql("create table note (id text primary key);");
    shop.write_config(&format!("{}{NOTES}", shop.config()));
    let node = shop.start();
    shop.until_quiet(&node);
    (shop, node)
}

#[test]
fn wf_137_an_accepted_event_survives_the_death_of_the_node() {
    let (shop, node) = with_notes();
    shop.run_well(&["workflow", "pause", "note"]);
    node.until("the pause takes effect", |status| {
        status["engine"]["closed"].as_array()?.iter().any(|gate| gate["name"] == "note").then_some(())
    });
    let event = r#"[{"entity": "note", "key": "a", "payload": {"text": "first"}},
                    {"entity": "note", "key": "b", "payload": {"text": "second"}}]"#;
    let answer = node.post_event("once", event);
    assert_eq!(answer.status, 202, "{}", answer.body);
    let ids = answer.json()["ids"].clone();
    assert_eq!(ids.as_array().map(Vec::len), Some(2), "{ids}");
    node.kill();
    assert!(shop.documents("note").is_empty(), "the events were not processed before the node died");
    let node = shop.start();
    shop.run_well(&["workflow", "resume", "note"]);
    shop.until_quiet(&node);
    let again = node.post_event("once", event);
    assert_eq!((again.status, &again.json()["ids"]), (202, &ids), "{}", again.body);
    assert_eq!(shop.waiting(), 0, "a repeated request stores no second event");
    assert_eq!(node.post_event("once", r#"{"entity": "note", "key": "c"}"#).status, 409, "another body");
    let notes = shop.documents("note");
    assert_eq!(notes["a"], json!({ "key": "a", "text": "FIRST" }));
    assert_eq!(notes["b"], json!({ "key": "b", "text": "SECOND" }));
    shop.assert_equal();
}

#[test]
fn ob_59_messages_of_a_key_are_processed_in_order() {
    let (shop, node) = with_notes();
    for nth in 1..=40 {
        let event = format!(r#"{{"entity": "note", "key": "k{}", "payload": {{"text": "n{nth}"}}}}"#, nth % 4);
        assert_eq!(node.post_event("", &event).status, 202);
    }
    shop.until_quiet(&node);
    let notes = shop.documents("note");
    let texts: Vec<_> = ["k0", "k1", "k2", "k3"].map(|key| notes[key]["text"].clone()).to_vec();
    assert_eq!(texts, ["N40", "N37", "N38", "N39"]);
    // A message that cannot be transformed is parked with its payload; other messages continue.
    assert_eq!(node.post_event("", r#"{"entity": "note", "key": "k0", "payload": {"text": 1}}"#).status, 202);
    assert_eq!(node.post_event("", r#"{"entity": "note", "key": "k1", "payload": {"text": "on"}}"#).status, 202);
    node.until("the next one is done", |_| (shop.documents("note")["k1"]["text"] == "ON").then_some(()));
    shop.assert_equal();
}

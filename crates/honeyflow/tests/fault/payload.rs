//! A payload of 64 MiB where 1 MiB is allowed: the event endpoint refuses it, or it is parked inside the database. It
//! is never in the node's memory.

use crate::shop::Shop;

const BYTES: u64 = 64 << 20;
/// In MiB; an idle node with an open index writer uses about a third of it.
const MEMORY_MAX: u64 = 200;

#[test]
fn f35_the_event_endpoint_refuses_a_large_body_before_it_is_sent() {
    let shop = Shop::new(3);
    let node = shop.start();
    shop.until_quiet(&node);
    // No byte of the body has been sent when the answer comes.
    let answer = node.post(&[format!("Content-Length: {BYTES}")], "");
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_str()),
        (413, Some("body-too-large")),
        "{}",
        answer.body
    );
    let large = format!(r#"{{"entity": "book", "key": "1", "payload": "{}"}}"#, "x".repeat(2 << 20));
    let answer = node.post_event("", &large);
    assert_eq!(answer.status, 413, "{}", answer.body);
    assert_eq!((shop.waiting(), shop.parked().len()), (0, 0), "nothing was stored");
    assert!(node.memory_peak() < MEMORY_MAX, "{} MiB", node.memory_peak());
    shop.assert_equal();
}

#[test]
fn f35_a_large_payload_is_parked_whole_inside_the_database() {
    let shop = Shop::new(3);
    let node = shop.start();
    shop.until_quiet(&node);
    shop.sql_by_program(&format!(
        "begin;
         insert into honeyflow_outbox(entity, entity_key) values ('book', 1);
         insert into honeyflow_outbox(kind, entity, entity_key, payload) values ('message', 'book', 2, hex(zeroblob({})));
         update book set title = 'Neighbour' where id = 3;
         commit;",
        BYTES / 2
    ));
    shop.until_quiet(&node);
    let parked = shop.parked();
    assert_eq!((parked.len(), parked[0]["code"].as_str()), (1, Some("payload-too-large")), "{parked:?}");
    assert_eq!(parked[0]["payload_bytes"], BYTES);
    let id = parked[0]["id"].to_string();
    let shown = shop.run_well(&["parked", "show", &id]).out;
    assert!(
        shown.contains("payload   64MiB") || shown.contains("payload   64 MiB"),
        "{}",
        &shown[..500.min(shown.len())]
    );
    assert!(shown.contains("00000000") && shown.len() < 8_192, "only the start is shown: {} bytes", shown.len());
    assert_eq!(shop.documents("book")["3"]["title"], "Neighbour");
    assert!(node.memory_peak() < MEMORY_MAX, "{} MiB", node.memory_peak());
    shop.assert_equal();
    shop.run_well(&["parked", "drop", &id, "--yes"]);
    assert!(shop.parked().is_empty());
}

/// WF-14: a document may have at most 1 MiB.
#[test]
fn f35_a_large_row_is_parked_and_its_neighbours_are_not() {
    let shop = Shop::new(3);
    let node = shop.start();
    shop.until_quiet(&node);
    shop.sql_by_program(&format!(
        "begin;
         update book set title = hex(zeroblob({})) where id = 2;
         update book set title = 'Neighbour' where id = 3;
         commit;",
        BYTES / 2
    ));
    shop.until_quiet(&node);
    let parked = shop.parked();
    assert_eq!((parked.len(), parked[0]["code"].as_str()), (1, Some("output-too-large")), "{parked:?}");
    assert_eq!(shop.documents("book")["3"]["title"], "Neighbour");
    assert!(node.memory_peak() < MEMORY_MAX, "{} MiB", node.memory_peak());
    shop.sql("update book set title = 'Short again' where id = 2;");
    shop.until_quiet(&node);
    assert!(shop.parked().is_empty());
    shop.assert_equal();
}

//! One row of 500 gives no document: it is parked with its error, the other rows are not affected, and fixing the row
//! is enough.

use crate::{node::Node, shop::Shop};

const ROWS: u32 = 500;
const POISONED: u32 = 250;

/// A shop with 500 books from one transaction, one of them bad, after the node has processed them.
fn poisoned(poison: &str) -> (Shop, Node) {
    let shop = Shop::new(0);
    let node = shop.start();
    let mut text = String::from("begin immediate;");
    for id in 1..=ROWS {
        let values = if id == POISONED { poison.to_owned() } else { format!("{id}, 'Book {id}', {id}, '[]'") };
        text.push_str(&format!("insert into book values ({values});"));
    }
    shop.sql(&(text + "commit;"));
    shop.until_quiet(&node);
    (shop, node)
}

fn parks_one_and_heals(poison: &str, step: &str, code: &str) {
    let (shop, node) = poisoned(poison);
    let rejects = node.until("it is parked", |status| status["engine"]["rejects"].as_u64().filter(|count| *count > 0));
    assert_eq!(rejects, 1, "only this row was refused");
    let documents = shop.documents("book");
    assert_eq!(documents.len(), ROWS as usize - 1);
    assert!(!documents.contains_key(&POISONED.to_string()));
    let parked = shop.parked();
    assert_eq!(parked.len(), 1, "{parked:?}");
    assert_eq!(
        (parked[0]["key"].as_str(), parked[0]["step"].as_str(), parked[0]["code"].as_str()),
        (Some("250"), Some(step), Some(code)),
        "{parked:?}"
    );
    assert_eq!(parked[0]["attempts"], 1, "{parked:?}");
    let table = shop.run_well(&["parked", "list"]).out;
    assert!(table.contains(code), "{table}");
    let explained = shop.run_well(&["explain", "book", "250"]).out;
    assert!(explained.contains("parked    ") && explained.contains(code), "{explained}");
    shop.sql("update book set title = 'Mended', price = 1, tags = '[1]' where id = 250;");
    shop.until_quiet(&node);
    assert_eq!(shop.parked(), Vec::<serde_json::Value>::new());
    shop.assert_equal();
    assert_eq!(shop.documents("book")["250"]["title"], "Mended");
}

#[test]
fn ob_50_invalid_utf8_parks_its_row_alone() {
    parks_one_and_heals("250, cast(x'42c3' as text), 1, '[]'", "load", "invalid-utf8");
}

#[test]
fn ob_50_bad_json_parks_its_row_alone() {
    parks_one_and_heals("250, 'Book', 1, '{\"half\":'", "load", "bad-json");
}

#[test]
fn ob_50_a_value_that_does_not_fit_its_field_parks_its_row_alone() {
    parks_one_and_heals("250, 'Book', 'not for sale', '[]'", "index", "bad-field");
}

/// OB-47: attempts are counted, with a pause between them, and a retry starts counting again.
#[test]
fn ob_48_parked_events_are_retried_and_dropped() {
    let shop = Shop::new(10);
    shop.replace_in_config("\"sql.load\", tries = 1", "\"sql.load\", tries = 2");
    let node = shop.start();
    shop.until_quiet(&node);
    shop.sql("update book set tags = 'none' where id in (1, 2);");
    let failing = node.until("both wait for their second attempt", |_| {
        let explained = shop.run(&["explain", "book", "1"]).out;
        (explained.contains("failing   ") || shop.parked().len() == 2).then_some(explained)
    });
    assert!(failing.contains("1 attempts so far") || failing.contains("parked "), "{failing}");
    shop.until_quiet(&node);
    let parked = shop.parked();
    assert_eq!(parked.iter().map(|row| row["attempts"].as_u64()).collect::<Vec<_>>(), [Some(2), Some(2)]);
    // Retried without a fix: parked again, after the same number of attempts.
    assert_eq!(shop.run(&["parked", "retry", "--key", "1"]).code, 0);
    shop.until_quiet(&node);
    let again = shop.parked();
    let keys: Vec<_> = again.iter().map(|row| (row["key"].as_str().unwrap(), row["attempts"].as_u64())).collect();
    assert_eq!(keys, [("2", Some(2)), ("1", Some(2))]);
    // Dropped: the document stays as it was, and the next change of the row is processed normally.
    let id = again[0]["id"].to_string();
    assert_eq!(shop.run(&["parked", "drop", &id]).code, 2, "without a terminal it needs --yes");
    shop.run_well(&["parked", "drop", &id, "--yes"]);
    assert_eq!(shop.run(&["parked", "drop", &id, "--yes"]).code, 1, "the event no longer exists");
    assert_eq!(shop.parked().len(), 1);
    assert_eq!(shop.documents("book")["2"]["tags"], serde_json::json!(["paper", 2]));
    shop.sql("update book set tags = '[]' where id in (1, 2);");
    shop.until_quiet(&node);
    assert!(shop.parked().is_empty());
    shop.assert_equal();
}

/// Any program may write outbox rows, so they can contain anything.
#[test]
fn wf_130_invalid_outbox_rows_are_parked_one_by_one() {
    let shop = Shop::new(5);
    let node = shop.start();
    shop.until_quiet(&node);
    shop.sql(
        "begin immediate;
         insert into honeyflow_outbox(kind, entity, entity_key) values ('nonsense', 'book', '1');
         insert into honeyflow_outbox(entity, entity_key) values ('stranger', '1');
         insert into honeyflow_outbox(entity, entity_key) values ('book', hex(zeroblob(1000)));
         insert into honeyflow_outbox(entity, entity_key) values ('book', 'not a number');
         insert into honeyflow_outbox(entity, entity_key, format, payload) values ('book', '2', 2, 'not;as:written');
         insert into honeyflow_outbox(entity, entity_key, kind) values ('book', '3', 'truncate');
         insert into honeyflow_outbox(entity, entity_key, priority, workflow) values ('book', '4', -7, 'stranger');
         update book set title = 'Neighbour' where id = 5;
         commit;",
    );
    // Only a sweep finds a row with an invalid priority.
    shop.until_quiet(&node);
    let parked = shop.parked();
    let mut codes: Vec<_> = parked.iter().map(|row| row["code"].as_str().unwrap_or_default()).collect();
    codes.sort_unstable();
    let wanted = ["bad-key", "key-too-long", "unknown-entity", "unknown-kind", "unreadable-row", "unreadable-row"];
    assert_eq!(codes, wanted, "{parked:?}");
    shop.assert_equal();
    assert_eq!(shop.documents("book")["5"]["title"], "Neighbour");
}

/// A row of a newer release waits for a node that can read it. The other rows of its entity wait, too, and the status
/// says so.
#[test]
fn ob_23_a_newer_format_is_held_and_not_dropped() {
    let shop = Shop::new(5);
    let node = shop.start();
    shop.until_quiet(&node);
    shop.sql("insert into honeyflow_outbox(entity, entity_key, format) values ('book', '1', 99);");
    let why = node.until("it is held", |status| status["engine"]["sources"][0]["held"][0].as_str().map(str::to_owned));
    assert!(why.contains("book") && why.contains("format 99"), "{why}");
    assert_eq!((shop.waiting(), shop.parked().len()), (1, 0));
    shop.sql("delete from honeyflow_outbox where format = 99; create table anything (at_all);");
    shop.sql("update book set title = 'After' where id = 1;");
    shop.until_quiet(&node);
    shop.assert_equal();
}

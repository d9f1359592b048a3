//! A renamed table takes its triggers with it, so its rows are gone without delete events. The delete guard keeps the
//! documents until an operator confirms.

use crate::{
    node::Node,
    shop::{Shop, TABLE},
    wait,
};

const BOOKS: usize = 1500;
const HIDE: &str = "alter table book rename to book_hidden; create table book";

/// A shop whose table was replaced by an empty one by mistake.
fn hidden() -> (Shop, Node) {
    let shop = Shop::new(u32::try_from(BOOKS).expect("a small number"));
    let node = shop.start();
    shop.until_quiet(&node);
    shop.sql(&format!("begin immediate; {HIDE} {TABLE}; commit;"));
    node.until_says("without a delete event; they are kept until");
    shop.until_quiet(&node);
    (shop, node)
}

#[test]
fn ob_38_a_hidden_table_loses_no_document_and_equals_again_when_it_is_back() {
    let (shop, node) = hidden();
    assert_eq!(shop.documents("book").len(), BOOKS);
    let listed = shop.ask(&["source", "list"]);
    assert!(listed[0]["state"].as_str().expect("a state").starts_with("held: book"), "{listed:?}");
    let repaired = shop.run(&["verify", "book", "--repair"]);
    assert_eq!(repaired.code, 1, "{}{}", repaired.out, repaired.err);
    assert!(repaired.out.contains("1500 documents without a row are held"), "{}", repaired.out);
    // Deletes that a trigger captures are not held.
    shop.sql("insert into book values (1, 'Seen', 1, '[]');");
    shop.sql("delete from book;");
    shop.until_quiet(&node);
    assert_eq!(shop.documents("book").len(), BOOKS - 1);
    shop.sql("begin immediate; drop table book; alter table book_hidden rename to book; commit;");
    wait::until("the table is compared again", || (shop.run(&["verify"]).code == 0).then_some(()));
    shop.assert_equal();
    assert!(shop.run_well(&["source", "confirm", "shop", "book"]).err.contains("no documents are held"));
    shop.insert(2001, 2010);
    shop.until_quiet(&node);
    shop.assert_equal();
}

#[test]
fn ob_38_confirmed_documents_are_deleted() {
    let (shop, node) = hidden();
    assert_eq!(shop.run(&["source", "confirm", "shop", "boook"]).code, 2);
    shop.run_well(&["source", "confirm", "shop"]);
    wait::until("the documents are gone", || shop.documents("book").is_empty().then_some(()));
    shop.until_quiet(&node);
    shop.assert_equal();
    assert_eq!(shop.ask(&["source", "list"])[0]["state"], "installed");
}

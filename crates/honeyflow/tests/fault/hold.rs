//! A table that goes out of sight takes its triggers with it, so nothing says that its rows are gone: the documents stay
//! until someone confirms.

use crate::{
    node::Node,
    shop::{Shop, TABLE},
    wait,
};

const BOOKS: usize = 1500;
const HIDE: &str = "alter table book rename to book_hidden; create table book";

/// Its table hidden behind an empty one, by someone who did not mean it.
fn hidden() -> (Shop, Node) {
    let shop = Shop::new(u32::try_from(BOOKS).expect("not so many"));
    let node = shop.start();
    shop.until_quiet(&node);
    shop.sql(&format!("begin immediate; {HIDE} {TABLE}; commit;"));
    node.until_says("nobody said why: they are kept until");
    shop.until_quiet(&node);
    (shop, node)
}

#[test]
fn ob_38_a_hidden_table_costs_no_document_and_all_is_well_once_it_is_back() {
    let (shop, node) = hidden();
    assert_eq!(shop.documents("book").len(), BOOKS);
    let listed = shop.ask(&["source", "list"]);
    assert!(listed[0]["state"].as_str().expect("a state").starts_with("held: book"), "{listed:?}");
    let repaired = shop.run(&["verify", "book", "--repair"]);
    assert_eq!(repaired.code, 1, "{}{}", repaired.out, repaired.err);
    assert!(repaired.out.contains("1500 documents without a row are kept"), "{}", repaired.out);
    // rows that are deleted in sight of a trigger are not held up
    shop.sql("insert into book values (1, 'Seen', 1, '[]');");
    shop.sql("delete from book;");
    shop.until_quiet(&node);
    assert_eq!(shop.documents("book").len(), BOOKS - 1);
    shop.sql("begin immediate; drop table book; alter table book_hidden rename to book; commit;");
    wait::until("it is compared again", || (shop.run(&["verify"]).code == 0).then_some(()));
    shop.assert_equal();
    assert!(shop.run_well(&["source", "confirm", "shop", "book"]).err.contains("nothing is held"));
    shop.insert(2001, 2010);
    shop.until_quiet(&node);
    shop.assert_equal();
}

#[test]
fn ob_38_what_is_confirmed_goes() {
    let (shop, node) = hidden();
    assert_eq!(shop.run(&["source", "confirm", "shop", "boook"]).code, 2);
    shop.run_well(&["source", "confirm", "shop"]);
    wait::until("the documents are gone", || shop.documents("book").is_empty().then_some(()));
    shop.until_quiet(&node);
    shop.assert_equal();
    assert_eq!(shop.ask(&["source", "list"])[0]["state"], "installed");
}

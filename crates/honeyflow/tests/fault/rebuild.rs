//! Migration tools rebuild tables and thereby drop the triggers. Changes in that time have no event; a comparison finds
//! them, whether or not a node was running.

use crate::{
    shop::{Shop, TABLE},
    wait,
};

/// Renames the old table first.
fn rename_then_drop() -> String {
    format!(
        "alter table book rename to book_old; create table book {TABLE};
         insert into book select * from book_old; drop table book_old;"
    )
}

fn drop_then_rename() -> String {
    format!(
        "create table book_new {TABLE}; insert into book_new select * from book;
         drop table book; alter table book_new rename to book;"
    )
}

/// An insert, an update and a delete without triggers.
const UNSEEN: &str = "insert into book values (1001, 'Unseen', 1, '[]');
    update book set title = 'Changed unseen' where id = 7;
    delete from book where id = 8;";

fn triggers(shop: &Shop) -> i64 {
    shop.number("select count(*) from sqlite_master where type = 'trigger' and tbl_name = 'book'")
}

fn is_equal_and_captured(shop: &Shop, before: i64) {
    assert_eq!(triggers(shop), before);
    shop.assert_equal();
    let documents = shop.documents("book");
    assert_eq!(documents["1001"]["title"], "Unseen");
    assert_eq!(documents["7"]["title"], "Changed unseen");
    assert!(!documents.contains_key("8"));
}

fn while_the_node_runs(rebuild: &str) {
    let shop = Shop::new(300);
    let node = shop.start();
    shop.until_quiet(&node);
    let before = triggers(&shop);
    assert!(before > 0);
    shop.sql(&format!("begin immediate; {rebuild} {UNSEEN} commit;"));
    node.until_says("dropped or changed triggers of Honeyflow");
    node.until_says("verified, because changes may have been missed");
    shop.until_quiet(&node);
    is_equal_and_captured(&shop, before);
    shop.sql("update book set title = 'Seen' where id = 9;");
    shop.until_quiet(&node);
    shop.assert_equal();
}

fn while_no_node_runs(rebuild: &str) {
    let shop = Shop::new(300);
    let node = shop.start();
    shop.until_quiet(&node);
    let before = triggers(&shop);
    node.stop();
    shop.sql(&format!("begin immediate; {rebuild} {UNSEEN} commit;"));
    let node = shop.start();
    node.until_says("dropped or changed triggers of Honeyflow");
    node.until_says("verified, because changes may have been missed");
    shop.until_quiet(&node);
    is_equal_and_captured(&shop, before);
}

#[test]
fn ob_20_a_table_renamed_and_rebuilt_under_a_running_node() {
    while_the_node_runs(&rename_then_drop());
}

#[test]
fn ob_20_a_table_dropped_and_replaced_under_a_running_node() {
    while_the_node_runs(&drop_then_rename());
}

#[test]
fn ob_20_a_table_renamed_and_rebuilt_while_no_node_runs() {
    while_no_node_runs(&rename_then_drop());
}

#[test]
fn ob_20_a_table_dropped_and_replaced_while_no_node_runs() {
    while_no_node_runs(&drop_then_rename());
}

/// From the moment the node says that it has started, every change of a rebuilt table is captured.
#[test]
fn ob_112_the_triggers_are_back_when_the_node_says_started() {
    for rebuild in [rename_then_drop(), drop_then_rename()] {
        let shop = Shop::new(300);
        let node = shop.start();
        shop.until_quiet(&node);
        let before = triggers(&shop);
        node.stop();
        shop.sql(&format!("begin immediate; {rebuild} {UNSEEN} commit;"));
        assert!(triggers(&shop) < before);
        std::fs::remove_file(shop.home().join("node.log")).expect("the log of the first node");
        let node = shop.launch();
        node.until_says("started: http://");
        assert_eq!(triggers(&shop), before, "{}", node.log());
        shop.sql("update book set title = 'Right after' where id = 9;");
        node.until_says("verified, because changes may have been missed");
        shop.until_quiet(&node);
        assert_eq!(shop.documents("book")["9"]["title"], "Right after");
        is_equal_and_captured(&shop, before);
    }
}

/// A start that is killed between the triggers and the comparison has owed the comparison before.
#[test]
fn ob_112_a_start_owes_the_comparison_before_it_puts_triggers_back() {
    let shop = Shop::new(300);
    let node = shop.start();
    shop.until_quiet(&node);
    let before = triggers(&shop);
    node.stop();
    shop.sql(&format!("begin immediate; {} {UNSEEN} commit;", drop_then_rename()));
    // It puts the triggers back, then it cannot open the node, because another process writes to the index.
    let lock = std::fs::File::options().write(true).open(shop.home().join("data/index/book/lock")).expect("a lock");
    lock.lock().expect("no other holder");
    let refused = shop.run(&["start", "--yes"]);
    assert!(refused.err.contains("index-locked"), "{}", refused.err);
    assert_eq!(triggers(&shop), before, "{}", refused.err);
    drop(lock);
    let node = shop.start();
    node.until_says("verified, because changes may have been missed");
    shop.until_quiet(&node);
    is_equal_and_captured(&shop, before);
}

/// Without a transaction, and slow enough for the node to see every intermediate state: no table, then an empty one.
#[test]
fn ob_20_a_table_rebuilt_step_by_step_under_a_running_node() {
    let shop = Shop::new(300);
    let node = shop.start();
    shop.until_quiet(&node);
    let before = triggers(&shop);
    shop.sql("update book set title = 'Just before' where id < 100; alter table book rename to book_old;");
    shop.sql(&format!("create table book {TABLE};"));
    wait::until("the new table has triggers", || (triggers(&shop) == before).then_some(()));
    shop.sql("insert into book select * from book_old where id <= 150;");
    shop.until_quiet(&node);
    shop.sql(&format!("insert into book select * from book_old where id > 150; drop table book_old; {UNSEEN}"));
    shop.until_quiet(&node);
    is_equal_and_captured(&shop, before);
}

/// The node is stopped between restoring the triggers and comparing: the comparison is still owed.
#[test]
fn ob_20_an_owed_comparison_survives_a_restart() {
    let shop = Shop::new(300);
    let node = shop.start();
    shop.until_quiet(&node);
    let before = triggers(&shop);
    node.stop();
    shop.sql(&format!("begin immediate; {} {UNSEEN} commit;", drop_then_rename()));
    // Restores the triggers while no node runs that could compare.
    shop.run_well(&["source", "upgrade", "--yes"]);
    assert_eq!(triggers(&shop), before);
    let node = shop.start();
    node.until_says("verified, because changes may have been missed");
    shop.until_quiet(&node);
    is_equal_and_captured(&shop, before);
}

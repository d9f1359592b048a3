//! A second node where only one may run: it is refused with the name of the first, which continues; once the first is
//! dead, it may start.

use crate::{node::Node, shop::Shop};

/// Starts another node, which must end by itself, and returns its log.
fn refused(shop: &Shop, config: &str) -> String {
    let log = shop.home().join("second.log");
    let second = Node::launch(shop.command_with(config, &["start", "--yes"]), &log, shop.home().join("nowhere"));
    let status = second.wait();
    let text = std::fs::read_to_string(log).expect("a log");
    assert_eq!(status.code(), Some(1), "{text}");
    text
}

/// The number of events ever stored.
fn events(shop: &Shop) -> i64 {
    shop.number("select seq from sqlite_sequence where name = 'honeyflow_outbox'")
}

fn assert_it_continues(shop: &Shop, node: &Node, epoch: u64) {
    shop.insert(101, 200);
    shop.until_quiet(node);
    assert_eq!(node.epoch(), epoch);
    shop.assert_equal();
}

#[test]
fn hv_39_a_second_node_on_the_same_data_folder_is_refused() {
    let shop = Shop::new(100);
    let first = shop.start();
    let epoch = first.epoch();
    let log = refused(&shop, "honeyflow.toml");
    assert!(log.contains("another-node") && log.contains(&format!("process {}", first.pid())), "{log}");
    assert_it_continues(&shop, &first, epoch);
    first.kill();
    let second = shop.start();
    assert!(second.epoch() > epoch);
    shop.insert(201, 300);
    shop.until_quiet(&second);
    shop.assert_equal();
}

#[test]
fn hv_39_a_second_node_on_the_same_database_is_refused() {
    let shop = Shop::new(100);
    let first = shop.start();
    let epoch = first.epoch();
    let config = shop.config().replace("\"data\"", "\"other\"");
    std::fs::write(shop.home().join("other.toml"), config).expect("a file");
    shop.until_quiet(&first);
    let before = events(&shop);
    let log = refused(&shop, "other.toml");
    assert_eq!(events(&shop), before, "the refused node queues nothing for its empty index");
    assert!(log.contains("another-node") && log.contains(&first.pid().to_string()), "{log}");
    assert_it_continues(&shop, &first, epoch);
    let peers = shop.number("select count(*) from hive_node");
    assert_eq!(peers, 1, "the refused node has left no row behind");
    first.kill();
    // The other data folder has its own index, which is empty at first.
    let command = shop.command_with("other.toml", &["start", "--yes"]);
    let began = std::time::Instant::now();
    let second = Node::launch(command, &shop.home().join("second.log"), shop.home().join("other/node.json")).ready();
    assert!(second.epoch() > epoch);
    assert!(began.elapsed() < std::time::Duration::from_secs(30), "immediately, not after the lease has expired");
    second.stop();
    let third = shop.start();
    shop.until_quiet(&third);
    shop.assert_equal();
}

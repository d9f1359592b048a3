//! A second node where there may be one only: refused by name, while the first goes on; welcome once that is dead.

use crate::{node::Node, shop::Shop};

/// Starts another node, which must end by itself; says what it had to say.
fn refused(shop: &Shop, config: &str) -> String {
    let log = shop.home().join("second.log");
    let second = Node::launch(shop.command_with(config, &["start", "--yes"]), &log, shop.home().join("nowhere"));
    let status = second.wait();
    let said = std::fs::read_to_string(log).expect("a log");
    assert_eq!(status.code(), Some(1), "{said}");
    said
}

/// How many there ever were.
fn events(shop: &Shop) -> i64 {
    shop.number("select seq from sqlite_sequence where name = 'honeyflow_outbox'")
}

fn goes_on(shop: &Shop, node: &Node, epoch: u64) {
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
    let said = refused(&shop, "honeyflow.toml");
    assert!(said.contains("another-node") && said.contains(&format!("process {}", first.pid())), "{said}");
    goes_on(&shop, &first, epoch);
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
    let said = refused(&shop, "other.toml");
    assert_eq!(events(&shop), before, "its empty index is no reason to queue anything");
    assert!(said.contains("another-node") && said.contains(&first.pid().to_string()), "{said}");
    goes_on(&shop, &first, epoch);
    let peers = shop.number("select count(*) from hive_node");
    assert_eq!(peers, 1, "the one that was refused has left nothing behind");
    first.kill();
    // The other data folder has an index of its own, which begins empty.
    let command = shop.command_with("other.toml", &["start", "--yes"]);
    let began = std::time::Instant::now();
    let second = Node::launch(command, &shop.home().join("second.log"), shop.home().join("other/node.json")).ready();
    assert!(second.epoch() > epoch);
    assert!(began.elapsed() < std::time::Duration::from_secs(30), "at once, not after the lease has run out");
    second.stop();
    let third = shop.start();
    shop.until_quiet(&third);
    shop.assert_equal();
}

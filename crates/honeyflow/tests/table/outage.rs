//! The node dies, or the cluster is silent: that costs time, but loses no change.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{cluster::TableShop, node::Node, shop::Shop};

/// Updates, inserts and deletes rows until `on` is false.
fn traffic(shop: &Shop, on: &AtomicBool) {
    let database = shop.database();
    for n in 0_u32.. {
        if !on.load(Ordering::Relaxed) {
            return;
        }
        let (one, other) = (n % 200 + 1, 1000 + n);
        let text = format!(
            "begin immediate; update book set title = 'at {n}', price = {n} where id = {one};
             insert into book values ({other}, 'new {n}', null, '[]');
             delete from book where id = {} ; commit;",
            other - 5
        );
        database.execute_batch(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Runs `during` under load; returns when the outbox is empty again.
fn under_load(table: &TableShop, node: Node, during: impl FnOnce(Node) -> Node) -> Node {
    let on = AtomicBool::new(true);
    let node = std::thread::scope(|scope| {
        scope.spawn(|| traffic(&table.shop, &on));
        let node = during(node);
        on.store(false, Ordering::Relaxed);
        node
    });
    table.shop.until_quiet(&node);
    node
}

fn until_steps_done(node: &Node, least: u64) {
    node.until("it is at work", |status| status["engine"]["steps"].as_u64().filter(|steps| *steps > least));
}

/// F-1
#[test]
fn f_1_a_node_killed_under_load_loses_nothing() {
    let Some(table) = TableShop::new(200) else { return };
    let node = table.shop.start();
    let node = under_load(&table, node, |node| {
        until_steps_done(&node, 500);
        node.kill();
        let node = table.shop.start();
        until_steps_done(&node, 500);
        node
    });
    table.assert_equal();
    assert!(table.shop.parked().is_empty());
    node.stop();
}

/// PL-161 OB-53: a silent cluster parks nothing; changes committed meanwhile are written when it answers again.
#[test]
fn pl_161_a_silent_cluster_costs_only_time() {
    let Some(table) = TableShop::new(200) else { return };
    let node = table.shop.start();
    let node = under_load(&table, node, |node| {
        until_steps_done(&node, 300);
        table.proxy.hold();
        node.until("writes are refused", |status| {
            let failing = status["engine"]["workflows"][0]["steps"].as_array()?;
            failing.iter().any(|step| step["retried"].as_u64() > Some(0)).then_some(())
        });
        assert!(table.shop.waiting() > 0);
        table.proxy.release();
        node
    });
    table.assert_equal();
    assert!(table.shop.parked().is_empty());
    node.stop();
}

/// The node may start before the cluster.
#[test]
fn a_node_starts_without_its_cluster() {
    let Some(table) = TableShop::new(20) else { return };
    table.proxy.hold();
    let node = table.shop.start();
    table.shop.insert(21, 40);
    assert_eq!(table.shop.waiting(), 40);
    table.proxy.release();
    table.shop.until_quiet(&node);
    table.assert_equal();
}

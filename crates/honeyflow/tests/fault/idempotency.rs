//! RL-23: two changes never go out under one `Idempotency-Key`, although their outbox rows have the same number.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use crate::{http_call::Scripted, node::Node, shop::Shop, wait};

const CHARGE: &str = r#"
[node]
data   = "data"
listen = "127.0.0.1:0"

[source.shop]
url = "sqlite:shop.db"

[entity.book]
source   = "shop"
key      = ["id"]
document = "select id, price from book where id in $keys"

[workflow.charge]
on = [{ source = "shop", entity = "book" }]
step.load = { use = "sql.load" }
step.call = { use = "http.call", needs = ["load"], url = "http://127.0.0.1:PORT/SHOP/{.price}", http = true, allow-networks = ["127.0.0.0/8"], backoff = { base = "50ms", cap = "200ms" } }
"#;

/// Creates a shop whose changes of a book are charged at `/name/price`.
fn charging(name: &str, port: u16) -> Shop {
    let shop = Shop::new(0);
    shop.write_config(&CHARGE.replace("PORT", &port.to_string()).replace("SHOP", name));
    shop
}

/// Changes the price, and waits for the call that charges it.
fn charge(shop: &Shop, node: &Node, scripted: &Scripted, price: u32) {
    shop.sql(&format!("insert or replace into book(id, title, price) values (1, 'Momo', {price})"));
    until_called(node, scripted, &format!("/{price}"));
    shop.until_quiet(node);
}

fn until_called(node: &Node, scripted: &Scripted, end: &str) {
    let called = wait::within(wait::DEADLINE, || scripted.paths().iter().any(|path| path.ends_with(end)).then_some(()));
    assert!(called.is_some(), "{end} is never called: {:?}\n{}", scripted.paths(), node.log());
}

/// Each key belongs to one path, and the other way round.
fn assert_distinct(scripted: &Arc<Scripted>, paths: usize) {
    let calls = scripted.calls();
    let by_key: BTreeMap<&str, &str> = calls.iter().map(|call| (&*call.idempotency_key, &*call.path)).collect();
    let by_path: BTreeMap<&str, &str> = calls.iter().map(|call| (&*call.path, &*call.idempotency_key)).collect();
    assert_eq!((by_key.len(), by_path.len()), (paths, paths), "{calls:?}");
}

#[test]
fn rl_23_a_new_install_numbers_its_events_again_under_other_keys() {
    let (scripted, port) = Scripted::serve();
    let shop = charging("shop", port);
    let node = shop.start();
    charge(&shop, &node, &scripted, 10);
    node.stop();
    shop.run_well(&["source", "uninstall", "shop", "--yes"]);
    shop.sql("delete from book");
    let node = shop.start();
    charge(&shop, &node, &scripted, 20);
    node.stop();
    assert_distinct(&scripted, 2);
}

/// Both databases have an event of the same number and time for the same key.
#[test]
fn rl_23_a_second_database_has_its_own_keys() {
    let (scripted, port) = Scripted::serve();
    for name in ["shop", "depot"] {
        let shop = charging(name, port);
        shop.start().stop();
        shop.sql(
            "insert into book(id, title, price) values (1, 'Momo', 10); delete from honeyflow_outbox;
             insert into honeyflow_outbox(id, entity, entity_key, created_at) values (7, 'book', '1', 1700000000000);",
        );
        let node = shop.start();
        until_called(&node, &scripted, &format!("/{name}/10"));
        shop.until_quiet(&node);
        node.stop();
    }
    assert_distinct(&scripted, 2);
}

/// The copy has the install id of its original, and goes on with the same numbers.
#[test]
fn rl_23_a_copied_file_has_other_keys_for_its_own_changes() {
    let (scripted, port) = Scripted::serve();
    let (shop, copy) = (charging("shop", port), charging("copy", port));
    let node = shop.start();
    charge(&shop, &node, &scripted, 10);
    node.stop();
    copy.sqlite3(&format!(".restore {}", shop.home().join("shop.db").display())).expect("a copy");
    let node = copy.start();
    charge(&copy, &node, &scripted, 20);
    node.stop();
    let node = shop.start();
    charge(&shop, &node, &scripted, 30);
    node.stop();
    assert_distinct(&scripted, 3);
}

#[test]
fn rl_23_a_restored_file_uses_numbers_twice_under_other_keys() {
    let (scripted, port) = Scripted::serve();
    let shop = charging("shop", port);
    let backup = shop.home().join("backup.db");
    let node = shop.start();
    charge(&shop, &node, &scripted, 10);
    node.stop();
    shop.sqlite3(&format!(".backup {}", backup.display())).expect("a backup");
    let node = shop.start();
    charge(&shop, &node, &scripted, 20);
    node.stop();
    shop.sqlite3(&format!(".restore {}", backup.display())).expect("restored");
    let node = shop.start();
    charge(&shop, &node, &scripted, 30);
    node.stop();
    assert_distinct(&scripted, 3);
}

/// The node is killed while its calls fail; the next one sends them under the same key.
#[test]
fn rl_23_a_call_in_doubt_keeps_its_key_over_a_kill() {
    let (scripted, port) = Scripted::serve();
    let shop = charging("shop", port);
    let node = shop.start();
    scripted.down.store(true, Ordering::SeqCst);
    shop.sql("insert into book(id, title, price) values (1, 'Momo', 10)");
    until_called(&node, &scripted, "/10");
    node.kill();
    let before = scripted.calls().len();
    scripted.down.store(false, Ordering::SeqCst);
    let node = shop.start();
    shop.until_quiet(&node);
    node.stop();
    let calls = scripted.calls();
    assert!(calls.len() > before && calls.iter().any(|call| call.answered == 200), "{calls:?}");
    assert_distinct(&scripted, 1);
}

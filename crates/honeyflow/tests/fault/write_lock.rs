//! An application holds the write lock for longer than a lease is valid.

use std::time::Duration;

use crate::shop::Shop;

#[test]
fn hv_39_a_held_write_lock_does_not_take_the_lease_from_a_lone_node() {
    let shop = Shop::new(100);
    let node = shop.start();
    shop.until_quiet(&node);
    let epoch = node.epoch();
    let application = shop.database();
    application
        .execute_batch("begin immediate; update book set title = 'Slowly' where id <= 50;")
        .expect("the write lock");
    // A real pause is needed here, longer than a lease is valid.
    std::thread::sleep(Duration::from_secs(8));
    let status = node.status().expect("it answers");
    assert_eq!(status["engine"]["leases_lost"], 0, "{status}\n{}", node.log());
    application.execute_batch("delete from book where id > 90; commit;").expect("a commit");
    shop.until_quiet(&node);
    assert_eq!(node.epoch(), epoch, "{}", node.log());
    shop.assert_equal();
    node.stop();
}

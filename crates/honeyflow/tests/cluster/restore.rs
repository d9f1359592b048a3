//! A database that is restored to an older state while its nodes run.

use serde_json::Value;

use crate::{node::Node, shop::Shop, wait};

fn until_it_holds_no_lease(node: &Node) {
    node.until("it holds no lease", |status| {
        let sources = status["engine"]["sources"].as_array()?;
        let held = status["hives"][0]["hold"] == "restore";
        (held && sources.iter().all(|source| source["epoch"].is_null())).then_some(())
    });
}

fn epochs(shop: &Shop) -> Vec<i64> {
    let rows = shop.psql("select epoch from hive_lease order by name");
    rows.lines().filter_map(|epoch| epoch.parse().ok()).collect()
}

/// HV-23: after a restore no node takes a lease, because another node may hold it, too. Once an operator has accepted
/// the restored state, all work continues, under epochs above the lost ones.
#[test]
fn hv_23_after_a_restore_no_node_takes_a_lease_until_it_is_accepted() {
    let Some(shop) = Shop::new(60) else { return };
    let a = shop.start("a");
    shop.until_shared(&["a"]);
    let version = shop.number("select version from hive_view");
    let backup = shop.back_up();
    // These changes are not in the backup.
    let b = shop.start("b");
    shop.until_shared(&["a", "b"]);
    shop.change("lost", "true");
    shop.until_quiet(&[&a, &b]);
    let lost = epochs(&shop);
    shop.restore(&backup);
    until_it_holds_no_lease(&a);
    until_it_holds_no_lease(&b);
    a.until_says("honeyflow hive accept-restore");
    shop.change("held", "true");
    let minted = "kind in ('taken', 'handed-over')";
    assert_eq!(shop.number(&format!("select count(*) from hive_event where {minted} and version > {version}")), 0);
    assert_eq!(
        shop.number("select count(distinct entity_key) from honeyflow_outbox"),
        60,
        "no node processes the events"
    );
    assert_ne!(shop.run("b", &["hive", "accept-restore"]).code, 0, "without a terminal it needs --yes");
    until_it_holds_no_lease(&a);
    let accepted = shop.ask("b", &["hive", "accept-restore", "--yes"]);
    assert_eq!(accepted.iter().map(|row| &row["accepted"]).collect::<Vec<_>>(), [&Value::from(true)], "{accepted:?}");
    shop.until_quiet(&[&a, &b]);
    shop.assert_done();
    wait::until("all leases are held again, with higher epochs than before", || {
        let now = epochs(&shop);
        (lost.len() == now.len() && lost.iter().zip(&now).all(|(lost, now)| now > lost)).then_some(())
    });
    assert_eq!(shop.psql("select cause from hive_event where kind = 'restored'"), "by hand");
    assert_eq!(shop.run("a", &["hive", "accept-restore", "--yes"]).code, 1, "it can be accepted only once");
    wait::until("both are ready again", || {
        let listed = shop.ask("a", &["hive", "list"]);
        (listed.len() == 2 && listed.iter().all(|row| row["ready"] == true)).then_some(())
    });
}

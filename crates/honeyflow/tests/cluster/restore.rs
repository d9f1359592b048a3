//! A database that goes back in time under its nodes, as a restore from a backup makes it do.

use serde_json::Value;

use crate::{node::Node, shop::Shop, wait};

fn leads_nothing(node: &Node) {
    node.until("it leads nothing", |status| {
        let sources = status["engine"]["sources"].as_array()?;
        let held = status["hives"][0]["hold"] == "restore";
        (held && sources.iter().all(|source| source["epoch"].is_null())).then_some(())
    });
}

fn epochs(shop: &Shop) -> Vec<i64> {
    let rows = shop.psql("select epoch from hive_lease order by name");
    rows.lines().filter_map(|epoch| epoch.parse().ok()).collect()
}

/// HV-23: nobody leads what may be led elsewhere too; once a person has accepted the restored state all of it goes on, under
/// epochs above those that were lost.
#[test]
fn hv_23_after_a_restore_nobody_leads_until_a_person_accepts_it() {
    let Some(shop) = Shop::new(60) else { return };
    let a = shop.start("a");
    shop.until_shared(&["a"]);
    let version = shop.number("select version from hive_view");
    let backup = shop.back_up();
    // What the backup knows nothing of.
    let b = shop.start("b");
    shop.until_shared(&["a", "b"]);
    shop.change("lost", "true");
    shop.until_quiet(&[&a, &b]);
    let lost = epochs(&shop);
    shop.restore(&backup);
    leads_nothing(&a);
    leads_nothing(&b);
    a.until_says("honeyflow hive accept-restore");
    shop.change("held", "true");
    let minted = "kind in ('taken', 'handed-over')";
    assert_eq!(shop.number(&format!("select count(*) from hive_event where {minted} and version > {version}")), 0);
    assert_eq!(shop.number("select count(*) from honeyflow_outbox"), 60, "nobody works on it");
    assert_ne!(shop.run("b", &["hive", "accept-restore"]).code, 0, "nobody was there to say yes");
    leads_nothing(&a);
    let accepted = shop.ask("b", &["hive", "accept-restore", "--yes"]);
    assert_eq!(accepted.iter().map(|row| &row["accepted"]).collect::<Vec<_>>(), [&Value::from(true)], "{accepted:?}");
    shop.until_quiet(&[&a, &b]);
    shop.assert_done();
    wait::until("all of it is led again, above what was lost", || {
        let now = epochs(&shop);
        (lost.len() == now.len() && lost.iter().zip(&now).all(|(lost, now)| now > lost)).then_some(())
    });
    assert_eq!(shop.psql("select cause from hive_event where kind = 'restored'"), "by hand");
    assert_eq!(shop.run("a", &["hive", "accept-restore", "--yes"]).code, 1, "once");
    wait::until("both are ready again", || {
        let listed = shop.ask("a", &["hive", "list"]);
        (listed.len() == 2 && listed.iter().all(|row| row["ready"] == true)).then_some(())
    });
}

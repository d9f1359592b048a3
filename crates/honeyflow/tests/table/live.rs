//! Committed rows reach the table, a bad row is parked alone, and changes by other programs are found and repaired.

use crate::cluster::TableShop;

#[test]
fn from_the_outbox_into_the_table() {
    let Some(table) = TableShop::new(300) else { return };
    let shop = &table.shop;
    let node = shop.start();
    shop.until_quiet(&node);
    assert_eq!(table.books().len(), 300);
    shop.sql(
        "update book set title = title || '!', price = price + 1 where id % 3 = 0; delete from book where id % 10 = 0;",
    );
    shop.until_quiet(&node);
    table.assert_equal();

    // A price that is not a number affects only its own row.
    shop.sql("update book set title = 'changed' where id < 10; update book set price = 'cheap' where id = 5;");
    shop.until_quiet(&node);
    let parked = shop.parked();
    assert_eq!(parked.len(), 1, "{parked:?}");
    assert_eq!((&parked[0]["key"], &parked[0]["code"]), (&"5".into(), &"bad-field".into()), "{parked:?}");
    assert_eq!(table.books()[&4].0, "changed");
    shop.sql("update book set price = 5 where id = 5;");
    shop.until_quiet(&node);
    table.assert_equal();
    assert!(shop.parked().is_empty());

    // The commands show the row and its version.
    let found = shop.ask(&["search", "book", "7"]);
    assert_eq!(found[0]["document"]["title"], "changed", "{found:?}");
    let explained = shop.run_well(&["explain", "book", "7"]).out;
    assert!(explained.contains("book"), "{explained}");
}

/// OB-80: the cells themselves are compared, so that every change is found.
#[test]
fn ob_80_verify_finds_and_repairs_changes_by_other_programs() {
    let Some(table) = TableShop::new(50) else { return };
    let shop = &table.shop;
    let node = shop.start();
    shop.until_quiet(&node);
    table.assert_equal();
    let name = &table.table;
    // An ordinary write has the clock as its timestamp, which is lower than any of Honeyflow's versions.
    table.cql(&format!("UPDATE {name} SET name = 'by hand' WHERE id = 1"));
    table.assert_equal();
    let version = table.cql(&format!("SELECT max(honeyflow_version) FROM {name}"));
    let version = version.first::<(i64,)>().expect("a row").expect("a row").0 - 1;
    table.cql(&format!("UPDATE {name} USING TIMESTAMP {version} SET name = 'by force' WHERE id = 2"));
    table.cql(&format!("DELETE FROM {name} USING TIMESTAMP {version} WHERE id = 3"));
    table.cql(&format!("INSERT INTO {name} (id, name) VALUES (999, 'extra') USING TIMESTAMP {version}"));
    let found = shop.run(&["verify", "--output", "json"]);
    assert_eq!(found.code, 1, "{}{}", found.out, found.err);
    let found: serde_json::Value = serde_json::from_str(&found.out).expect("JSON");
    assert_eq!(found["differences"], serde_json::json!({"2": "stale", "3": "missing", "999": "extra"}), "{found}");
    shop.run_well(&["verify", "--repair"]);
    table.assert_equal();

    // `reindex` repairs it, too, by writing every row again.
    let version = table.cql(&format!("SELECT max(honeyflow_version) FROM {name}"));
    let version = version.first::<(i64,)>().expect("a row").expect("a row").0 - 1;
    table.cql(&format!("UPDATE {name} USING TIMESTAMP {version} SET price = 0 WHERE id = 4"));
    shop.run_well(&["reindex", "book"]);
    table.assert_equal();
    node.stop();
}

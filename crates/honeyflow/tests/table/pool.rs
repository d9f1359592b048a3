//! Inspecting and controlling a pool while the node runs, and settings from a compiled file.

use serde_json::Value;

use crate::{cluster::TableShop, http};

/// PL-70 PL-71: the commands, the metrics and the page show the node's state.
#[test]
fn pl_70_a_pool_is_shown_drained_and_activated() {
    let Some(table) = TableShop::new(20) else { return };
    let shop = &table.shop;
    // The highest protocol version does not support it, so the pool makes a remark.
    shop.replace_in_config("password = \"file:password\"", "password = \"file:password\"\ncompression = \"snappy\"");
    let node = shop.start();
    shop.until_quiet(&node);
    let pools = shop.ask(&["pool", "list"]);
    assert_eq!((&pools[0]["name"], &pools[0]["state"]), (&"main".into(), &"active".into()), "{pools:?}");
    assert!(pools[0]["counters"]["checkouts"].as_u64() > Some(20), "{pools:?}");
    let shown = shop.run_well(&["pool", "show", "main"]);
    assert!(shown.err.contains("compression Snappy was asked for"), "{}", shown.err);
    let shown = shown.out;
    assert!(shown.contains(&format!("127.0.0.1:{}", table.proxy.port())) && shown.contains("checkouts"), "{shown}");

    let drained = shop.ask(&["pool", "drain", "main"]);
    assert_eq!((&drained[0]["before"], &drained[0]["now"]), (&"active".into(), &"inactive".into()), "{drained:?}");
    assert!(shop.run_well(&["pool", "drain", "main"]).out.contains("is already inactive"));
    shop.insert(21, 30);
    node.until("writes are refused", |status| {
        let pool = &status["pools"][0];
        let steps = status["engine"]["workflows"][0]["steps"].as_array()?;
        let retried = steps.iter().any(|step| step["retried"].as_u64() > Some(0));
        (retried && pool["open"] == 0 && pool["state"] == "inactive").then_some(())
    });
    assert_eq!(shop.waiting(), 10, "events stay where they are");
    let address = node.address().expect("an address");
    let metrics = http::get(&address, "/metrics").expect("an answer").body;
    for line in ["honeyflow_pool_state{pool=\"main\",state=\"inactive\"} 1", "honeyflow_pool_open{pool=\"main\"} 0"] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    assert!(metrics.contains("honeyflow_pool_checkouts_total{pool=\"main\"}"), "{metrics}");
    let page = http::get(&address, "/").expect("an answer").body;
    assert!(page.contains("Cluster main") && page.contains(">inactive<"), "{page}");

    shop.run_well(&["pool", "activate", "main"]);
    shop.until_quiet(&node);
    table.assert_equal();
    let unknown = shop.run(&["pool", "drain", "mian"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("did you mean `main`?"), "{}", unknown.err);
    node.stop();
    assert_eq!(shop.run(&["pool", "list"]).code, 1, "no node runs");
}

/// PL-60: the same settings from a compiled file; its problems are shown at their place.
#[test]
fn pl_60_settings_come_from_a_compiled_file() {
    let Some(table) = TableShop::new(5) else { return };
    let shop = &table.shop;
    let written: Value = shop.ask(&["config", "compile", "main"]).remove(0);
    let file = shop.home().join("main.pool");
    assert_eq!(written["bytes"].as_u64(), std::fs::metadata(&file).ok().map(|file| file.len()), "{written}");
    let config = shop.config();
    let (before, rest) = config.split_once("servers   =").expect("settings");
    let (_, after) = rest.split_once("[cassandra.main.cql]").expect("a table");
    shop.write_config(&format!("{before}compiled = \"main.pool\"\n\n[cassandra.main.cql]{after}"));
    let node = shop.start();
    shop.until_quiet(&node);
    table.assert_equal();
    assert_eq!(shop.run(&["config", "compile", "main"]).code, 2, "the configuration contains no settings to compile");
    node.stop();

    let mut bytes = std::fs::read(&file).expect("a file");
    *bytes.last_mut().expect("bytes") ^= 1;
    std::fs::write(&file, bytes).expect("a file");
    let output = shop.run(&["check", "--offline"]).out;
    assert!(output.contains("error[bad-compiled]") && output.contains("checksum"), "{output}");
    shop.replace_in_config("compiled = \"main.pool\"", "compiled = \"main.pool\"\ntries = 2");
    assert!(shop.run(&["check", "--offline"]).out.contains("`tries` cannot be used with `compiled`"));
}

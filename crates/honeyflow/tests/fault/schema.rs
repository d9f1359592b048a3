//! A configuration that does not fit its database, at the start and while a node runs.

use crate::shop::Shop;

/// Exit code 2 means wrong usage or configuration.
#[test]
fn ob_25_a_configuration_that_does_not_fit_is_refused_at_the_start() {
    for (from, to, hint) in [
        ("select id, title, price", "selct id, title, price", "entity.book.document"),
        ("select id, title, price", "select id, titel, price", "titel"),
        ("in $keys", "= 1", "$keys"),
        ("[entity.book]\n", "[entity.book]\ntable = \"tome\"\n", "no table `tome`"),
    ] {
        let shop = Shop::new(3);
        let fitting = shop.config();
        shop.replace_in_config(from, to);
        let ran = shop.run(&["start", "--yes"]);
        assert_eq!(ran.code, 2, "{to}: {}", ran.err);
        assert!(ran.err.contains(hint), "{to}: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
        assert_eq!(shop.number("select count(*) from sqlite_master where type = 'trigger'"), 0, "nothing was touched");
        shop.write_config(&fitting);
        let node = shop.start();
        shop.until_quiet(&node);
        shop.assert_equal();
    }
}

#[test]
fn ob_46_a_missing_table_stops_only_its_own_workflow() {
    let shop = Shop::new(50);
    shop.sql("create table shelf (id integer primary key, name text); insert into shelf values (1, 'A');");
    shop.write_config(&format!(
        "{}\n{}",
        shop.config(),
        r#"
[entity.shelf]
source   = "shop"
key      = ["id"]
document = "select id, name from shelf where id in $keys"
[sink.shelf]
url   = "tantivy:shelf"
[workflow.shelf]
on = [{ source = "shop", entity = "shelf" }]
step.load  = { use = "sql.load" }
step.index = { use = "search.index", needs = ["load"], into = "shelf" }
"#
    ));
    let node = shop.start();
    shop.until_quiet(&node);
    shop.sql(
        "begin immediate; update book set title = 'Just before' where id < 20;
         alter table book rename to book_away; commit;",
    );
    let why = node.until("the reason is shown", |status| {
        let closed = status["engine"]["closed"].as_array()?;
        let gate = closed.iter().find(|gate| gate["name"] == "book")?;
        gate["detail"].as_str().map(str::to_owned)
    });
    assert!(why.contains("no such table: book"), "{why}");
    shop.sql("update shelf set name = 'B';");
    node.until("the other workflow continues", |_| (shop.documents("shelf")["1"]["name"] == "B").then_some(()));
    assert!(shop.waiting() > 0);
    assert!(shop.parked().is_empty(), "the rows are not parked for a missing table");
    shop.sql("update book_away set title = 'Meanwhile' where id = 30; alter table book_away rename to book;");
    shop.until_quiet(&node);
    shop.assert_equal();
    assert_eq!(shop.documents("book")["19"]["title"], "Just before");
    assert_eq!(shop.documents("book")["30"]["title"], "Meanwhile");
    node.until("the gate is open", |status| status["engine"]["closed"].as_array()?.is_empty().then_some(()));
}

/// The running node keeps its configuration: a new one whose start would fail is refused before the node is stopped.
#[test]
fn ob_110_a_reload_looks_before_the_running_node_is_stopped() {
    let shop = Shop::new(3);
    let node = shop.start();
    shop.until_quiet(&node);
    let fitting = shop.config();
    let call = r#"
[workflow.tell]
on = [{ source = "shop", entity = "book" }]
step.call = { use = "http.call", url = "https://example.org/book", headers = { Authorization = "Bearer env:HONEYFLOW_TEST_NEVER_SET" } }
"#;
    shop.write_config(&format!("{fitting}{call}"));
    node.until_says("the environment variable HONEYFLOW_TEST_NEVER_SET is not set");
    shop.sql("update book set title = 'Still here' where id = 1;");
    shop.until_quiet(&node);
    assert_eq!(shop.documents("book")["1"]["title"], "Still here");
    assert!(node.log().contains("ignored the changed configuration"), "{}", node.log());
    assert!(!node.log().contains("then uses the new one"), "{}", node.log());
    shop.write_config(&fitting);
    node.stop();
}

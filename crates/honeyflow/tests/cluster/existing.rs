//! Rows that exist already, and rows that give no document, on PostgreSQL.

use serde_json::Value;

use crate::{node::Node, shop::Shop, wait};

const BOOKS: u32 = 20;

const SINK: &str = r#"
[sink.book]
url   = "tantivy:book"
field = { title = "keyword", id = "integer", author = "text" }

[workflow.index]
on = [{ source = "shop", entity = "book" }]
step.load  = { use = "sql.load" }
step.index = { use = "search.index", needs = ["load"], into = "book", tries = 1 }
"#;

/// Starts node `a`, which calls for each book and indexes it. `existing` is added to the `on` of the calls.
fn start(shop: &Shop, existing: &str) -> Node {
    shop.configure("a", "");
    let file = shop.home().join("a.toml");
    let text = std::fs::read_to_string(&file).expect("a configuration");
    let on = format!("entity = \"book\"{existing} }}]\nstep.load = {{ use = \"sql.load\" }}\nstep.call");
    let text = text.replace("entity = \"book\" }]\nstep.load = { use = \"sql.load\" }\nstep.call", &on);
    std::fs::write(&file, text + SINK).expect("a file");
    shop.launch("a").ready()
}

fn calls(shop: &Shop) -> usize {
    shop.recorder.calls().len()
}

/// Changes one book: calls for earlier rows would have come before its call.
fn one_change_calls_once(shop: &Shop, node: &Node, before: usize) {
    shop.change(&format!("change {before}"), "id = 3");
    wait::until("the change is called", || (calls(shop) > before).then_some(()));
    shop.until_quiet(&[node]);
    assert_eq!(calls(shop), before + 1);
}

#[test]
fn ob_97_ob_98_existing_rows_are_called_only_where_that_is_asked_for() {
    let Some(shop) = Shop::new(BOOKS) else { return };
    let node = start(&shop, "");
    shop.until_quiet(&[&node]);
    one_change_calls_once(&shop, &node, 0);
    assert_eq!(shop.run("a", &["reindex", "book"]).code, 0);
    one_change_calls_once(&shop, &node, 1);
    node.stop();

    let node = start(&shop, ", existing = true");
    shop.until_quiet(&[&node]);
    assert_eq!(calls(&shop), 2 + BOOKS as usize);
    node.stop();
    let node = start(&shop, ", existing = true");
    shop.until_quiet(&[&node]);
    one_change_calls_once(&shop, &node, 2 + BOOKS as usize);
    node.stop();
}

#[test]
fn ob_99_a_row_that_gives_no_document_is_named_and_a_repair_ends_under_traffic() {
    let Some(shop) = Shop::new(BOOKS) else { return };
    let node = start(&shop, "");
    shop.until_quiet(&[&node]);
    // Two changes without an event, as replication applies them; book 5 is larger than a document may be.
    shop.psql(
        "set session_replication_role = replica; update book set title = 'Behind our back' where id = 4;
         update book set title = repeat('x', 1100000) where id = 5",
    );
    let (ran, report) = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            for _ in 0..200 {
                shop.psql("insert into honeyflow_outbox(entity, entity_key) values ('book', '1')");
            }
        });
        let ran = shop.run("a", &["verify", "--repair", "--output", "json"]);
        let report: Value = serde_json::from_str(ran.out.lines().next().unwrap_or_default()).expect("JSON");
        traffic.join().expect("traffic");
        (ran, report)
    });
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let counts = ["missing", "stale", "extra", "unreadable", "repaired"].map(|name| report[name].as_u64());
    assert_eq!(counts, [Some(0), Some(1), Some(0), Some(1), Some(1)], "{report}");
    let parked = &report["not_repaired"]["5"]["parked"];
    assert_eq!(parked["code"], "output-too-large", "{report}");
    let id = shop.number("select id from honeyflow_parked where entity_key = '5' and workflow = 'index'");
    assert_eq!(parked["id"].as_i64(), Some(id));
    assert_eq!(shop.number("select count(*) from honeyflow_parked"), 1, "the repair went to the compared workflow");
    shop.until_quiet(&[&node]);
    node.stop();
}

//! Rows that were there before a workflow, and rows that are read again: they fill sinks, and run no side effect unless
//! the workflow asks for it.

use std::{sync::Arc, time::Duration};

use crate::{http_call::Scripted, node::Node, shop::Shop, wait};

const BOOKS: u32 = 5;

/// A shop whose workflow `charge` calls for every change of a book. `on` is added to its `on`.
fn charging(on: &str) -> (Shop, Arc<Scripted>) {
    let (scripted, port) = Scripted::serve();
    let shop = Shop::new(BOOKS);
    shop.write_config(&format!("{}{}", shop.config(), charge(on, port)));
    (shop, scripted)
}

fn charge(on: &str, port: u16) -> String {
    format!(
        "\n[workflow.charge]\non = [{{ source = \"shop\", entity = \"book\"{on} }}]\nexclusion = \"none\"\n\
         step.load = {{ use = \"sql.load\" }}\n\
         step.call = {{ use = \"http.call\", needs = [\"load\"], url = \"http://127.0.0.1:{port}/charge/{{.id}}\", \
         http = true, allow-networks = [\"127.0.0.0/8\"] }}\n\
         step.tell = {{ use = \"event.emit\", needs = [\"load\"], input = \"{{entity: \\\"paper\\\", key: \\\"1\\\"}}\" }}\n\
         \n[entity.paper]\nsource = \"shop\"\nkey = [\"id\"]\ndocument = \"select id from paper where id in $keys\"\n\
         \n[workflow.paper]\non = [{{ source = \"shop\", entity = \"paper\" }}]\nstep.load = {{ use = \"sql.load\" }}\n"
    )
}

fn with_paper(shop: &Shop) {
    shop.sql("create table paper(id integer primary key);");
}

fn called(scripted: &Scripted) -> Vec<String> {
    let mut paths = scripted.paths();
    paths.sort();
    paths
}

/// The calls for all books that there are.
fn once_each() -> Vec<String> {
    (1..=BOOKS).map(|id| format!("/charge/{id}")).collect()
}

/// Changes one book and waits for its call: the calls of earlier rows would have come before.
fn one_change_calls_once(shop: &Shop, node: &Node, scripted: &Scripted, before: usize) {
    shop.sql("update book set price = price + 1 where id = 3;");
    wait::until("the change is charged", || (scripted.paths().len() > before).then_some(()));
    shop.until_quiet(node);
    assert_eq!(scripted.paths()[before..], ["/charge/3"]);
}

#[test]
fn ob_97_a_first_start_and_a_reindex_charge_no_row_that_was_there() {
    let (shop, scripted) = charging("");
    with_paper(&shop);
    let node = shop.start();
    shop.until_quiet(&node);
    assert_eq!(shop.documents("book").len(), BOOKS as usize);
    one_change_calls_once(&shop, &node, &scripted, 0);
    shop.run_well(&["reindex", "book"]);
    shop.until_quiet(&node);
    one_change_calls_once(&shop, &node, &scripted, 1);
    node.stop();
    shop.run_well(&["reindex", "book", "--new-generation"]);
    let node = shop.start();
    shop.until_quiet(&node);
    one_change_calls_once(&shop, &node, &scripted, 2);
}

#[test]
fn ob_97_a_workflow_that_asks_for_existing_rows_gets_them_once() {
    let (shop, scripted) = charging(", existing = true");
    with_paper(&shop);
    let announced = "5 rows of book will run workflow charge, with `call` (http.call), `tell` (event.emit)";
    let checked = shop.run_well(&["check"]).out;
    assert!(checked.contains(announced), "{checked}");
    let node = shop.start();
    shop.until_quiet(&node);
    assert!(node.log().contains(announced), "{}", node.log());
    assert_eq!(called(&scripted), once_each());
    let checked = shop.run_well(&["check"]).out;
    assert!(!checked.contains("will run workflow"), "{checked}");
    node.stop();
    let node = shop.start();
    shop.run_well(&["reindex", "book"]);
    shop.until_quiet(&node);
    one_change_calls_once(&shop, &node, &scripted, BOOKS as usize);
    node.stop();
    // Only workflows into the empty index are filled again.
    std::fs::remove_dir_all(shop.home().join("data/index/book")).expect("an index");
    let node = shop.start();
    shop.until_quiet(&node);
    shop.assert_equal();
    one_change_calls_once(&shop, &node, &scripted, BOOKS as usize + 1);
}

#[test]
fn ob_98_the_fill_begins_when_a_reload_asks_for_existing_rows() {
    let (shop, scripted) = charging("");
    with_paper(&shop);
    let node = shop.start();
    shop.until_quiet(&node);
    one_change_calls_once(&shop, &node, &scripted, 0);
    shop.replace_in_config("entity = \"book\" }]\nexclusion", "entity = \"book\", existing = true }]\nexclusion");
    node.until_says("5 rows of book will run workflow charge, with `call` (http.call), `tell` (event.emit)");
    wait::until("all are charged", || (scripted.paths().len() > BOOKS as usize).then_some(()));
    shop.until_quiet(&node);
    let mut all = [once_each(), vec!["/charge/3".to_owned()]].concat();
    all.sort();
    assert_eq!(called(&scripted), all);
}

/// The rows of a new entity lead to its own workflow alone, also if it has the name of a table that leads to others.
#[test]
fn ob_98_a_new_entity_runs_no_other_workflow() {
    let (shop, scripted) = charging("");
    with_paper(&shop);
    shop.sql(
        "create table line(id integer primary key, book_id integer); insert into line values (1, 1), (2, 1), (3, 2);",
    );
    let edge = "[[entity.book.edge]]\ntable = \"line\"\nkey = [\"book_id\"]\n\n[sink.book]";
    shop.replace_in_config("[sink.book]", edge);
    let node = shop.start();
    shop.until_quiet(&node);
    let line = "\n[entity.line]\nsource = \"shop\"\nkey = [\"id\"]\ndocument = \"select id, book_id from line where id in $keys\"\n\
                \n[sink.line]\nurl = \"tantivy:line\"\nfield = { book_id = \"integer\" }\n\
                \n[workflow.line]\non = [{ source = \"shop\", entity = \"line\" }]\n\
                step.load = { use = \"sql.load\" }\nstep.index = { use = \"search.index\", needs = [\"load\"], into = \"line\" }\n";
    shop.write_config(&format!("{}{line}", shop.config()));
    wait::until("the lines are indexed", || {
        (shop.run(&["search", "line", "--all"]).out.lines().count() >= 3).then_some(())
    });
    shop.until_quiet(&node);
    assert_eq!(shop.documents("line").len(), 3);
    one_change_calls_once(&shop, &node, &scripted, 0);
    // A live change of a line still reaches the book.
    shop.sql("insert into line values (4, 5);");
    wait::until("the edge is followed", || (scripted.paths().len() > 1).then_some(()));
    assert_eq!(scripted.paths()[1], "/charge/5");
}

/// An earlier release has stored one position for all workflows of the entity.
#[test]
fn ob_98_an_upgrade_fills_and_charges_nothing_again() {
    let (shop, scripted) = charging("");
    with_paper(&shop);
    let node = shop.start();
    shop.until_quiet(&node);
    node.stop();
    shop.sql(
        "delete from honeyflow_task where noun = 'reindex';
         insert into honeyflow_task(noun, name, state, created_at)
           values ('reindex', 'book', '{\"after\":\"5\",\"events\":5,\"done\":true}', 1);
         delete from book where id = 1; delete from honeyflow_outbox;",
    );
    shop.replace_in_config("entity = \"book\" }]\nexclusion", "entity = \"book\", existing = true }]\nexclusion");
    let checked = shop.run_well(&["check"]).out;
    assert!(!checked.contains("will run workflow"), "{checked}");
    let node = shop.start();
    shop.until_quiet(&node);
    assert!(shop.documents("book").contains_key("1"), "no row was queued again");
    one_change_calls_once(&shop, &node, &scripted, 0);
    // A workflow that comes later has not had the rows.
    shop.write_config(&format!("{}{}", shop.config(), &later(&shop)));
    wait::until("the new workflow is filled", || (scripted.paths().len() >= BOOKS as usize).then_some(()));
    std::thread::sleep(Duration::from_millis(300));
    shop.until_quiet(&node);
    let later: Vec<String> = scripted.paths().into_iter().filter(|path| path.starts_with("/later/")).collect();
    assert_eq!(later.len(), BOOKS as usize - 1, "{later:?}");
    assert_eq!(scripted.paths().len(), BOOKS as usize, "{:?}", scripted.paths());
}

/// A workflow `later` that calls the same server.
fn later(shop: &Shop) -> String {
    let config = shop.config();
    let from = config.find("\n[workflow.charge]").expect("the workflow");
    let to = config[from..].find("step.tell").expect("its last step") + from;
    config[from..to].replace("workflow.charge", "workflow.later").replace("/charge/", "/later/")
}

/// The node's own repair, after triggers were missing: the document is put right, the charge cannot be known.
#[test]
fn ob_97_a_repair_after_drift_charges_nothing_and_names_who_may_have_missed_it() {
    let (shop, scripted) = charging("");
    with_paper(&shop);
    let node = shop.start();
    shop.until_quiet(&node);
    let triggers = "select group_concat('drop trigger \"' || name || '\";', ' ') from sqlite_master where type = 'trigger' and tbl_name = 'book'";
    let drop: String = shop.database().query_row(triggers, [], |row| row.get(0)).expect("triggers");
    shop.sql(&format!("begin immediate; {drop} update book set title = 'Unseen' where id = 2; commit;"));
    node.until_says("these workflows write no documents");
    assert!(node.log().contains("workflows=[\"charge\"]"), "{}", node.log());
    shop.until_quiet(&node);
    assert_eq!(shop.documents("book")["2"]["title"], "Unseen");
    shop.assert_equal();
    one_change_calls_once(&shop, &node, &scripted, 0);
}

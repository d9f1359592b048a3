//! "An order was placed": workflows that begin for certain changes only, and for changes of other tables' rows.

use std::sync::Arc;

use crate::{http_call::Scripted, node::Node, shop::Shop, wait};

/// A step that calls `/<path>`.
fn call(name: &str, path: &str, port: u16, more: &str) -> String {
    format!(
        "step.{name} = {{ use = \"http.call\", url = \"http://127.0.0.1:{port}/{path}\", http = true, \
         allow-networks = [\"127.0.0.0/8\"]{more} }}\n"
    )
}

fn workflow(name: &str, entity: &str, on: &str, steps: &str) -> String {
    format!(
        "\n[workflow.{name}]\non = [{{ source = \"shop\", entity = \"{entity}\"{on} }}]\nexclusion = \"none\"\n{steps}"
    )
}

/// Orders with lines. `workflows` gets the port of a server that notes the calls.
fn orders(workflows: impl Fn(u16) -> String) -> (Shop, Arc<Scripted>) {
    let (scripted, port) = Scripted::serve();
    let shop = Shop::new(0);
    shop.sql(
        "create table orders (id integer primary key, state text, note text);
         create table line (order_id integer, n integer, article text, primary key (order_id, n));",
    );
    let orders = "\n[entity.orders]\nsource = \"shop\"\nkey = [\"id\"]\n\
                  document = \"select id, state, note from orders where id in $keys\"\n\
                  [[entity.orders.edge]]\ntable = \"line\"\nkey = [\"order_id\"]\n";
    let payment = "\n[entity.payment]\nsource = \"shop\"\nkind = \"message\"\n";
    shop.write_config(&format!("{}{orders}{payment}{}", shop.config(), workflows(port)));
    (shop, scripted)
}

/// Returns the paths that were called since the last `seen` ones, once nothing waits any more.
fn called_since(seen: usize, shop: &Shop, node: &Node, scripted: &Scripted) -> Vec<String> {
    shop.until_quiet(node);
    let mut paths = scripted.paths().split_off(seen);
    paths.sort();
    paths
}

#[test]
fn wf_142_a_workflow_runs_for_placed_orders_and_another_for_changed_states() {
    let (shop, scripted) = orders(|port| {
        let placed = call("call", "placed/{$event.key}", port, "");
        let state = call("call", "state/{$event.key}", port, "");
        workflow("placed", "orders", ", change = [\"insert\"]", &placed)
            + &workflow("state", "orders", ", columns = [\"state\"]", &state)
    });
    shop.sql("insert into orders values (1, 'new', '');");
    let node = shop.start();
    assert_eq!(called_since(0, &shop, &node, &scripted), [""; 0], "the order was there before");
    shop.sql("insert into orders values (2, 'new', '');");
    assert_eq!(called_since(0, &shop, &node, &scripted), ["/placed/2"]);
    // A line, a note and a rewritten value are no new order and no new state.
    shop.sql(
        "insert into line values (2, 1, 'hive'); update orders set note = 'x'; update orders set state = state;
         update line set article = 'frame';",
    );
    assert_eq!(called_since(1, &shop, &node, &scripted), [""; 0]);
    shop.sql("update orders set state = 'paid' where id = 1;");
    assert_eq!(called_since(1, &shop, &node, &scripted), ["/state/1"]);
    shop.sql("update orders set id = 3 where id = 2;");
    assert_eq!(called_since(2, &shop, &node, &scripted), ["/placed/3"], "another key is another order");
    // The application may say itself what happened.
    shop.sql("insert into honeyflow_outbox(entity, entity_key, change) values ('orders', '1', 'insert');");
    assert_eq!(called_since(3, &shop, &node, &scripted), ["/placed/1"]);
    node.stop();
}

/// A row that a plain INSERT left without `change` meets no filter; that is counted, and `explain` says it.
#[test]
fn wf_142_an_unknown_change_is_passed_over_and_counted() {
    let (shop, scripted) = orders(|port| {
        workflow("placed", "orders", ", change = [\"insert\"]", &call("call", "placed/{$event.key}", port, ""))
    });
    let node = shop.start();
    shop.sql("insert into honeyflow_outbox(entity, entity_key) values ('orders', '1');");
    assert_eq!(called_since(0, &shop, &node, &scripted), [""; 0]);
    let metric = "honeyflow_events_change_unknown_total 1";
    wait::until("it is counted", || node.metrics().contains(metric).then_some(()));
    node.stop();
    shop.sql("insert into honeyflow_outbox(entity, entity_key) values ('orders', '1');");
    let told = shop.run_well(&["explain", "orders", "1"]).out;
    assert!(told.contains("its change is unknown: a workflow whose `on` names `change` passes over it"), "{told}");
}

/// The run of an order that a line began works on the order, and says which line it was.
#[test]
fn wf_143_a_run_that_a_line_began_has_the_key_of_its_order() {
    let (shop, scripted) = orders(|port| {
        let tell = "step.tell = { use = \"event.emit\", input = '{ entity: \"payment\", key: $event.key, \
                    payload: { line: $event.cause.key } }' }\n";
        let paid = call("call", "paid/{$event.key}/{$event.payload.line}", port, "");
        workflow("line", "orders", ", change = [\"related\"]", tell) + &workflow("paid", "payment", "", &paid)
    });
    shop.sql("insert into orders values (1, 'new', '');");
    let node = shop.start();
    shop.sql("insert into line values (1, 2, 'hive');");
    assert_eq!(called_since(0, &shop, &node, &scripted), ["/paid/1/1%7C2"]);
    node.stop();
}

/// An event that an edge led to an order, or that a step has emitted for it, is met by the order's wait.
#[test]
fn wf_144_a_wait_meets_a_message_for_the_key_of_its_run() {
    let (shop, scripted) = orders(|port| {
        let wait = "step.paid = { use = \"event.wait\", name = \"payment\", key = \"$run.key\", timeout = \"1h\" }\n";
        let ship = call("ship", "ship/{.key}", port, ", needs = [\"paid\"]");
        workflow("ship", "orders", ", change = [\"insert\"]", &format!("{wait}{ship}"))
    });
    let node = shop.start();
    shop.sql("insert into orders values (1, 'new', ''); insert into orders values (2, 'new', '');");
    node.until("both wait", |status| (status["engine"]["open_runs"].as_u64()? >= 2).then_some(()));
    shop.sql("insert into honeyflow_outbox(kind, entity, entity_key, payload) values ('message', 'payment', '2', '{\"sum\": 9}');");
    wait::until("the order is shipped", || (scripted.paths() == ["/ship/2"]).then_some(()));
    // An event of a message entity needs no payload, and no `kind`.
    let answer = node.post_event("k", r#"{"entity": "payment", "key": "1"}"#);
    assert_eq!(answer.status, 202, "{}", answer.body);
    wait::until("the order is shipped", || (scripted.paths().len() == 2).then_some(()));
    assert_eq!(scripted.paths()[1], "/ship/1");
    shop.until_quiet(&node);
    node.stop();
    assert_eq!(shop.parked().len(), 0);
}

/// A workflow that is added later asks for a column: the triggers of a running node are replaced, and as nothing was
/// missed, nothing is compared.
#[test]
fn ob_20_a_workflow_that_asks_for_columns_replaces_triggers_without_a_comparison() {
    let (shop, scripted) = orders(|port| {
        workflow("state", "orders", ", change = [\"insert\"]", &call("call", "state/{$event.key}", port, ""))
    });
    shop.sql("insert into orders values (1, 'new', '');");
    let node = shop.start();
    // The hive has created its tables in the same file after the triggers.
    wait::until("the node has looked at its triggers again", || {
        let noted = "select cast(value as integer) = (select schema_version from pragma_schema_version) from honeyflow_meta \
                     where name = 'capture-schema-version'";
        (shop.number(noted) == 1).then_some(())
    });
    shop.replace_in_config("change = [\"insert\"]", "columns = [\"state\"]");
    wait::until("the triggers report the column", || {
        let query = "select count(*) from sqlite_master where type = 'trigger' and sql like '%\"state\"%' and sql like '%columns%'";
        (shop.number(query) > 0).then_some(())
    });
    wait::until("the node goes on", || node.status().map(drop));
    shop.sql("update orders set note = 'x'; update orders set state = 'paid';");
    wait::until("the state is told", || (!scripted.paths().is_empty()).then_some(()));
    shop.until_quiet(&node);
    assert_eq!(scripted.paths(), ["/state/1"]);
    assert_eq!(shop.number("select count(*) from honeyflow_task where noun = 'compare'"), 0);
    node.stop();
}

//! Nodes whose hive is on another server than the events: `[hive] url`.

use std::os::unix::fs::PermissionsExt;

use honeyflow_services::Throwaway;
use serde_json::Value;

use crate::{http, node::Node, shop::Shop, wait};

const BOOKS: u32 = 60;

/// Configures a node with its hive at this address, which may contain a password.
fn configure(shop: &Shop, name: &str, url: &str) {
    shop.configure(name, "");
    let address = shop.home().join("hive-address");
    std::fs::write(&address, url).expect("a file");
    std::fs::set_permissions(address, PermissionsExt::from_mode(0o600)).expect("a file of ours");
    let file = shop.home().join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&file).expect("a file");
    let changed = text.replace("[hive]\n", "[hive]\nurl = \"file:hive-address\"\n");
    assert_ne!(changed, text);
    std::fs::write(file, changed).expect("a file");
}

fn two(shop: &Shop, url: &str) -> [Node; 2] {
    let nodes = ["a", "b"].map(|name| {
        configure(shop, name, url);
        shop.launch(name).ready()
    });
    shop.until_shared(&["a", "b"]);
    nodes
}

/// Waits until both nodes have joined the separate hive and one of them is queen.
fn until_joined(shop: &Shop, scheme: &str) -> Value {
    wait::until("both have joined, and one is queen", || {
        let rows = shop.ask("a", &["hive", "list"]);
        let there = |row: &&Value| row["hive"].as_str().is_some_and(|hive| hive.starts_with(scheme));
        let joined: Vec<&Value> = rows.iter().filter(there).filter(|row| row["state"] != "gone").collect();
        let queen = joined.iter().find(|row| row["queen"] == true)?;
        (joined.len() == 2).then(|| (*queen).clone())
    })
}

fn readiness(node: &Node) -> Value {
    let answer = http::get(&node.address().expect("an address"), "/ready").expect("an answer");
    serde_json::from_str(&answer.body).expect("JSON")
}

/// HV-43: the leases of a source are in the source's database. Without the hive's server events are still processed
/// (without limits), and the server may come back empty.
#[test]
fn hv_43_losing_the_hives_redis_with_its_data_loses_no_event() {
    let (Some(shop), Some(mut redis)) = (Shop::new(BOOKS), honeyflow_services::throwaway_redis()) else { return };
    let [a, b] = two(&shop, redis.url());
    until_joined(&shop, "redis:");
    assert_eq!(readiness(&a)["status"], "ready");
    redis.kill();
    shop.change("without it", "true");
    shop.until_quiet(&[&a, &b]);
    shop.assert_done();
    let away =
        wait::until("the node reports it", || Some(readiness(&a)).filter(|answer| answer["status"] == "degraded"));
    assert_eq!(away["reasons"][0]["code"], "hive-away", "{away}");
    assert!(["no-connection", "no-answer"].map(Value::from).contains(&away["reasons"][0]["cause"]), "{away}");
    a.until_says("the hive's store cannot be used");
    redis.start().expect("it starts again, empty");
    until_joined(&shop, "redis:");
    a.until_says("the hive's store answers again");
    shop.change("with it", "true");
    shop.until_quiet(&[&a, &b]);
    shop.assert_done();
    wait::until("the node is ready again", || (readiness(&a)["status"] == "ready").then_some(()));
    for node in [a, b] {
        node.stop();
    }
}

/// HV-1: the queen of a hive on MariaDB, over events on PostgreSQL.
#[test]
fn hv_1_a_hive_can_be_on_mariadb() {
    let (Some(shop), Some(mariadb)) = (Shop::new(BOOKS), honeyflow_services::throwaway_mariadb()) else { return };
    let [a, b] = two(&shop, mariadb.url());
    let queen = until_joined(&shop, "mysql:");
    assert!(["a", "b"].map(Value::from).contains(&queen["name"]), "{queen}");
    // The queen counts with her next heartbeat.
    let watched = wait::until("both are counted", || {
        let watched = shop.ask("b", &["hive", "watch", "--looks", "1"]);
        Some(watched).filter(|watched| watched[0]["alive"] == 2 && watched[0]["ready"] == 2)
    });
    assert_eq!(watched[0]["queen"], queen["id"], "{watched:?}");
    let epoch = watched[0]["epoch"].as_str().and_then(|epoch| epoch.parse::<u64>().ok());
    assert!(epoch.is_some_and(|epoch| epoch > 0), "{watched:?}");
    let drawn = shop.run("a", &["hive", "watch", "--looks", "1"]);
    let head = drawn.out.lines().next().unwrap_or_default();
    assert!(head.contains(&format!("queen {}", queen["name"].as_str().unwrap_or("?"))), "{}", drawn.out);
    assert!(head.contains("2 alive, 2 ready"), "{}", drawn.out);
    shop.change("on two servers", "true");
    shop.until_quiet(&[&a, &b]);
    shop.assert_done();
    for node in [a, b] {
        node.stop();
    }
}

/// A server that refuses the login is reported immediately, with its name and what to do. The node does not start, and
/// no secret is shown.
#[test]
fn a_node_that_the_hives_server_refuses_does_not_start() {
    let refused = |server: Option<Throwaway>, wrong: fn(&str) -> String| {
        let (Some(shop), Some(server)) = (Shop::new(BOOKS), server) else { return };
        configure(&shop, "a", &wrong(server.url()));
        let ran = shop.run("a", &["start", "--yes"]);
        assert_ne!(ran.code, 0, "{}", ran.out);
        assert!(ran.err.contains("access-denied") && ran.err.contains("password"), "{}", ran.err);
        assert!(!ran.err.contains("wr0ng"), "{}", ran.err);
    };
    let with_password = |url: &str| {
        let (scheme, rest) = url.split_once("://").expect("a URL");
        let server = rest.rsplit_once('@').map_or(rest, |(_, server)| server);
        format!("{scheme}://stranger:wr0ng@{server}")
    };
    refused(honeyflow_services::throwaway_redis(), with_password);
    refused(honeyflow_services::throwaway_mariadb(), with_password);
    refused(honeyflow_services::throwaway_postgres(), with_password);
}

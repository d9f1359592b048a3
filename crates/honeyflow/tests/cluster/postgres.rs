//! Several nodes on one outbox with 64 shards on PostgreSQL.

use rustix::process::Signal;

use crate::{node::Node, shop::Shop, wait};

const BOOKS: u32 = 600;

/// Changes all books once per round, in small transactions.
fn load(shop: &Shop, rounds: std::ops::Range<u32>) {
    for round in rounds {
        for part in 0..6 {
            shop.change(&format!("title {round}"), &format!("id % 6 = {part}"));
        }
    }
}

fn epochs(shop: &Shop) -> Vec<(String, u64)> {
    let rows = shop.psql("select name || '|' || epoch from hive_lease order by name");
    let pair = |row: &str| {
        let (name, epoch) = row.split_once('|')?;
        Some((name.to_owned(), epoch.parse().ok()?))
    };
    rows.lines().filter_map(pair).collect()
}

fn three(shop: &Shop) -> Vec<(&'static str, Node)> {
    let nodes: Vec<_> = ["a", "b", "c"].map(|name| (name, shop.start(name))).into();
    shop.until_shared(&["a", "b", "c"]);
    nodes
}

/// OB-61, HV-56: kill -9 under load; the other nodes take over, every event is processed, and epochs rise.
#[test]
fn ob_61_three_nodes_share_an_outbox_and_survive_the_death_of_one() {
    let Some(shop) = Shop::new(BOOKS) else { return };
    let mut nodes = three(&shop);
    load(&shop, 0..2);
    let before = epochs(&shop);
    let queen = shop.queen();
    let victim = nodes.iter().position(|(name, _)| *name != queen).expect("a node that is not queen");
    let (victim, killed) = nodes.remove(victim);
    killed.kill();
    load(&shop, 2..4);
    let names: Vec<&str> = nodes.iter().map(|(name, _)| *name).collect();
    shop.until_shared(&names);
    load(&shop, 4..5);
    shop.until_quiet(&nodes.iter().map(|(_, node)| node).collect::<Vec<_>>());
    shop.assert_done();
    let after = epochs(&shop);
    let risen = before.iter().zip(&after).filter(|(before, after)| after.1 > before.1).count();
    assert!(risen >= 21, "the shards of {victim} have new owners: {risen}");
    assert!(
        before.iter().zip(&after).all(|(before, after)| before.0 == after.0 && after.1 >= before.1),
        "no epoch fell"
    );
    assert_eq!(shop.shards(victim), 0);
    for (_, node) in nodes {
        node.stop();
    }
}

/// HV-44: the queen's death loses no event, and another node becomes queen.
#[test]
fn hv_44_after_the_queen_is_killed_another_node_becomes_queen() {
    let Some(shop) = Shop::new(BOOKS) else { return };
    let mut nodes = three(&shop);
    let queen = shop.queen();
    let epoch = epochs(&shop).into_iter().find(|(name, _)| name == "queen").expect("a queen").1;
    load(&shop, 0..1);
    let at = nodes.iter().position(|(name, _)| *name == queen).expect("the queen");
    nodes.remove(at).1.kill();
    load(&shop, 1..3);
    let next = wait::until("another queen", || Some(shop.queen()).filter(|name| *name != queen));
    assert!(nodes.iter().any(|(name, _)| *name == next));
    let now = epochs(&shop).into_iter().find(|(name, _)| name == "queen").expect("a queen").1;
    assert!(now > epoch);
    shop.until_quiet(&nodes.iter().map(|(_, node)| node).collect::<Vec<_>>());
    shop.assert_done();
    let history = shop.ask("a", &["hive", "why"]);
    let taken = history.last().expect("an event");
    assert_eq!((taken["what"].as_str(), taken["node"].as_str()), (Some("taken"), Some(next.as_str())), "{history:?}");
}

/// OB-62, OB-72: a node transfers its leases on SIGTERM; no other node waits for a time-to-live.
#[test]
fn ob_62_a_stopped_node_transfers_its_leases() {
    let Some(shop) = Shop::new(BOOKS) else { return };
    let mut nodes = three(&shop);
    load(&shop, 0..1);
    let (name, leaving) = nodes.remove(0);
    let id = shop.psql(&format!("select id from hive_node where name = '{name}'"));
    wait::until("it is ready", || {
        let ready = format!("select count(*) from hive_event where kind = 'ready' and node = '{id}'");
        (shop.number(&ready) > 0).then_some(())
    });
    leaving.signal(Signal::TERM);
    load(&shop, 1..2);
    let log = shop.home().join(format!("{name}.log"));
    assert!(leaving.wait().success(), "{}", std::fs::read_to_string(log).unwrap_or_default());
    assert_eq!(
        shop.number(&format!("select count(*) from hive_node where name = '{name}'")),
        0,
        "the node has left; it was not removed as dead"
    );
    assert_eq!(shop.number(&format!("select count(*) from hive_event where kind = 'left' and node = '{id}'")), 1);
    let kinds = shop.psql(&format!(
        "select string_agg(kind, ' ' order by version) from hive_event
         where node = '{id}' and kind in ('joined', 'ready', 'unready', 'draining')"
    ));
    assert!(kinds.starts_with("joined ready"), "{kinds}");
    let before_leaving = kinds.split(" draining").next().unwrap_or_default();
    assert!(before_leaving.ends_with(" ready"), "HV-17: ready until all accepted requests are served: {kinds}");
    shop.until_shared(&["b", "c"]);
    let back = shop.start(name);
    shop.until_shared(&["a", "b", "c"]);
    load(&shop, 2..3);
    shop.until_quiet(&[&back, &nodes[0].1, &nodes[1].1]);
    shop.assert_done();
}

/// OB-30: an author's books are on other shards than the author; the owner of its shard processes each book.
#[test]
fn ob_30_the_keys_of_a_fan_out_are_processed_by_their_own_shards() {
    let Some(shop) = Shop::new(BOOKS) else { return };
    let nodes = three(&shop);
    shop.until_quiet(&nodes.iter().map(|(_, node)| node).collect::<Vec<_>>());
    for round in 0..5 {
        shop.psql(&format!(
            "begin; update author set name = 'author {round}-' || id;
             insert into honeyflow_outbox(entity, entity_key) select 'author', id from author; commit"
        ));
        // Change the same books at the same time, so that two owners of one key would be noticed.
        shop.change(&format!("title {round}"), "id % 3 = 0");
    }
    shop.until_quiet(&nodes.iter().map(|(_, node)| node).collect::<Vec<_>>());
    shop.assert_done();
}

/// HV-32: the commands of the hive, with running nodes and without.
#[test]
fn hv_32_the_hive_is_listed_shown_handed_over_and_drained() {
    let Some(shop) = Shop::new(10) else { return };
    let nodes = three(&shop);
    let listed = shop.ask("a", &["hive", "list"]);
    let names: Vec<_> = listed.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["a", "b", "c"], "{listed:?}");
    assert_eq!(listed.iter().filter(|row| row["queen"] == true).count(), 1);
    let shown = &shop.ask("b", &["hive", "show"])[0];
    assert_eq!((shown["alive"].as_u64(), shown["shards"][0]["held"].as_u64()), (Some(3), Some(64)), "{shown}");
    let before = shop.queen();
    let successor = ["a", "b", "c"].into_iter().find(|name| *name != before).expect("another");
    wait::until("the lease is transferred", || {
        (shop.run("a", &["hive", "hand-over", "--to", successor]).code == 0).then_some(())
    });
    assert_eq!(shop.queen(), successor);
    let odd = shop.run("a", &["hive", "hand-over", "--to", "stranger"]);
    assert_eq!(odd.code, 2, "{}", odd.err);
    wait::until("it is drained", || (shop.run("a", &["hive", "drain", successor]).code == 0).then_some(()));
    assert_eq!(shop.shards(successor), 0);
    let listed = shop.ask("a", &["hive", "list"]);
    let state = |name: &str| listed.iter().find(|row| row["name"] == name).map(|row| row["state"].clone());
    assert_eq!(state(successor), Some("draining".into()), "{listed:?}");
    for (_, node) in nodes {
        node.kill();
    }
    assert_eq!(shop.ask("a", &["hive", "list"]).len(), 3, "the list also works with every node stopped");
    assert_eq!(shop.run("a", &["hive", "accept-restore", "--yes"]).code, 1, "nothing was restored");
}

/// HV-17: a new node is not ready before it, or another node, holds the shards; all nodes see that it is ready.
#[test]
fn hv_17_a_node_is_ready_once_the_shards_are_held() {
    let Some(shop) = Shop::new(10) else { return };
    let node = shop.start("a");
    let row =
        wait::until("it is ready", || shop.ask("a", &["hive", "list"]).into_iter().find(|row| row["ready"] == true));
    assert!(["ready", "engaged"].map(Into::into).contains(&row["state"]), "{row}");
    let first = |kind: &str| shop.number(&format!("select min(version) from hive_event where kind = '{kind}'"));
    assert!(first("joined") < first("taken") && first("taken") < first("ready"), "not with its first heartbeat");
    node.stop();
}

/// HV-8: two nodes with the same name are two members.
#[test]
fn same_name_two_leaders() {
    let Some(shop) = Shop::new(BOOKS) else { return };
    let first = shop.start("twin");
    shop.configure("other", "");
    let text = std::fs::read_to_string(shop.home().join("other.toml")).expect("a file");
    std::fs::write(shop.home().join("other.toml"), text.replace("\"other\"", "\"twin\"")).expect("a file");
    let second = shop.launch("other").ready();
    wait::until("both hold some", || {
        let held = shop.number("select count(distinct holder) from hive_lease where name like 'shard/%'");
        (held == 2 && shop.shards("twin") == 64).then_some(())
    });
    load(&shop, 0..2);
    shop.until_quiet(&[&first, &second]);
    shop.assert_done();
    let refused = shop.run("twin", &["hive", "drain", "twin"]);
    assert!(refused.code == 2 && refused.err.contains("2 nodes have the name"), "{}", refused.err);
}

/// A server that is unreachable, and one that refuses the login.
#[test]
fn an_unreachable_server_is_reported() {
    let Some(shop) = Shop::new(1) else { return };
    shop.configure("a", "");
    let good = std::fs::read_to_string(shop.home().join("address")).expect("a file");
    let (_, rest) = good.split_once('@').expect("a user");
    for (address, wanted) in [
        ("postgres://bee:hidden@127.0.0.1:1/shop".to_owned(), "127.0.0.1"),
        (format!("postgres://stranger:hidden@{rest}"), "stranger"),
    ] {
        std::fs::write(shop.home().join("address"), address).expect("a file");
        for verb in [&["start", "--yes"][..], &["hive", "list"], &["source", "list"]] {
            let ran = shop.run("a", verb);
            let output = format!("{}{}", ran.out, ran.err);
            assert!(!output.contains("hidden"), "{verb:?}: {output}");
            if verb[0] != "source" {
                assert_ne!(ran.code, 0, "{verb:?}: {output}");
                assert!(output.to_lowercase().contains("connect") || output.contains(wanted), "{verb:?}: {output}");
            }
        }
    }
}

/// OB-67: a node gets the shards to which it is pinned; if it dies, other nodes take them.
#[test]
fn ob_67_a_node_gets_the_shards_to_which_it_is_pinned() {
    let Some(shop) = Shop::new(BOOKS) else { return };
    shop.configure("pinned", "pin = { shop = \"0-7\" }");
    let pinned = shop.launch("pinned").ready();
    let other = shop.start("other");
    wait::until("each node has its shards", || {
        (shop.shards("pinned") == 8 && shop.shards("other") == 56).then_some(())
    });
    let held = shop.number(
        "select count(*) from hive_lease l join hive_node n on n.id = l.holder where n.name = 'pinned'
         and l.name ~ '^shard/shop/[0-7]$'",
    );
    assert_eq!(held, 8);
    pinned.kill();
    wait::until("the other takes them", || (shop.shards("other") == 64).then_some(()));
    load(&shop, 0..1);
    shop.until_quiet(&[&other]);
    shop.assert_done();
}

//! The configuration changes while runs are open: each run ends with the definition version with which it began.

use std::sync::Arc;

use crate::{http_call::Scripted, node::Node, shop::Shop, wait};

const PLAIN: &str = r#"step.load  = { use = "sql.load", tries = 1 }
step.index = { use = "search.index", needs = ["load"], into = "book", tries = 1 }"#;

/// A shop whose workflow calls, sleeps and calls again.
fn calling_shop() -> (Shop, Arc<Scripted>) {
    let (server, port) = Scripted::serve();
    let call = |needs: &str, path: &str| {
        format!(
            r#"{{ use = "http.call", needs = [{needs}], input = "$steps.load", url = "http://127.0.0.1:{port}/{path}/{{.id}}", http = true, allow-networks = ["127.0.0.0/8"] }}"#
        )
    };
    let steps = format!(
        "history = \"all\"\nstep.load = {{ use = \"sql.load\" }}\nstep.first = {}\nstep.wait = {SLEEP}\nstep.last = {}\n",
        call(r#""load""#, "first"),
        call(r#""load", "wait""#, "old"),
    );
    let shop = Shop::new(0);
    shop.replace_in_config(PLAIN, &steps);
    (shop, server)
}

const SLEEP: &str = r#"{ use = "sleep", needs = ["first"], for = "4s" }"#;

/// Waits until the sleep of the key has begun and is stored.
fn until_asleep(shop: &Shop, key: &str) {
    let asleep = format!(
        "select count(*) from honeyflow_checkpoint where entity_key = '{key}' and step = 'wait' and parked = 0"
    );
    wait::until("the run sleeps", || (shop.number(&asleep) == 1).then_some(()));
}

fn called(shop: &Shop, node: &Node, server: &Scripted) -> Vec<String> {
    shop.until_quiet(node);
    let mut paths = server.paths();
    paths.sort();
    paths
}

/// RL-24, I15
#[test]
fn wf_21_a_run_killed_while_sleeping_ends_with_its_own_version() {
    let (shop, server) = calling_shop();
    let node = shop.start();
    shop.insert(1, 1);
    until_asleep(&shop, "1");
    node.kill();

    shop.replace_in_config("/old/", "/new/");
    let node = shop.start();
    shop.insert(2, 2);
    assert_eq!(called(&shop, &node, &server), ["/first/1", "/first/2", "/new/2", "/old/1"], "{}", node.log());
    let version = |key: &str| shop.number(&format!("select version from honeyflow_run where entity_key = '{key}'"));
    assert_eq!((version("1"), version("2")), (1, 2));

    assert_eq!(shop.ask(&["workflow", "list"])[0]["version"], 2);
    let shown = shop.run_well(&["workflow", "show", "book", "--diff", "1..2"]).out;
    assert!(shown.starts_with("--- book version 1\n+++ book version 2\n"), "{shown}");
    let changed: Vec<&str> = shown.lines().skip(2).filter(|line| line.starts_with(['-', '+'])).collect();
    let [before, after] = changed[..] else { panic!("{shown}") };
    assert!(before.starts_with('-') && before.contains("/old/"), "{shown}");
    assert!(after.starts_with('+') && after.contains("/new/"), "{shown}");
    let shown = shop.ask(&["workflow", "show", "book", "--diff", "1.."]);
    assert!(shown[0]["diff"].as_str().is_some_and(|diff| diff.contains("+++ book as configured")), "{shown:?}");
    assert!(shop.run_well(&["workflow", "show", "book", "--version", "1"]).out.contains("/old/"));
    assert_eq!(shop.run(&["workflow", "show", "book", "--version", "9"]).code, 2);

    // Restoring the old definition brings its version number back.
    shop.replace_in_config("/new/", "/old/");
    node.until("the old version is in use again", |status| {
        (status["engine"]["workflows"][0]["version"] == 1).then_some(())
    });
    assert_eq!(shop.number("select count(*) from honeyflow_definition"), 2);
    node.stop();
}

#[test]
fn wf_21_a_reload_lets_open_runs_end_with_their_own_version() {
    let (shop, server) = calling_shop();
    let node = shop.start();
    shop.insert(1, 1);
    until_asleep(&shop, "1");
    shop.replace_in_config("/old/", "/new/");
    node.until("the new version is in use", |status| (status["engine"]["workflows"][0]["version"] == 2).then_some(()));
    shop.insert(2, 2);
    assert_eq!(called(&shop, &node, &server), ["/first/1", "/first/2", "/new/2", "/old/1"], "{}", node.log());
    node.stop();
}

/// A replay uses the checkpoints with the version that made them, unless the operator asks for another start.
#[test]
fn wf_74_a_replay_repeats_only_the_requested_steps() {
    let (shop, server) = calling_shop();
    shop.replace_in_config(SLEEP, &SLEEP.replace("4s", "10ms"));
    shop.replace_in_config("/old/", "/bad/");
    shop.replace_in_config(r#"["127.0.0.0/8"] }"#, r#"["127.0.0.0/8"], tries = 1 }"#);
    let node = shop.start();
    shop.insert(1, 1);
    wait::until("the run is parked", || (shop.parked().len() == 1).then_some(()));
    assert_eq!(server.paths(), ["/first/1", "/bad/1"]);
    let replay = |more: &[&str]| {
        let before = server.paths().len();
        shop.run_well(&[&["run", "replay", "book", "book", "1"], more].concat());
        shop.until_quiet(&node);
        server.paths().split_off(before)
    };
    assert_eq!(replay(&[]), ["/bad/1"]);
    assert_eq!(replay(&["--from", "first"]), ["/first/1", "/bad/1"]);
    assert_eq!(shop.run(&["run", "replay", "book", "book", "1", "--from", "nothing"]).code, 2);

    shop.replace_in_config("/bad/", "/good/");
    node.until("the fixed version is in use", |status| {
        (status["engine"]["workflows"][0]["version"] == 2).then_some(())
    });
    assert_eq!(replay(&[]), ["/bad/1"], "it continues with its own version");
    assert_eq!(shop.parked()[0]["version"], 1);
    assert_eq!(replay(&["--newest"]), ["/first/1", "/good/1"]);
    assert!(shop.parked().is_empty());
    node.stop();
}

fn is_indexed(shop: &Shop, key: &str) -> bool {
    shop.documents("book").contains_key(key)
}

/// RL-18
#[test]
fn wf_22_a_run_whose_version_cannot_be_built_waits() {
    let shop = Shop::new(0);
    let steps = format!(
        r#"step.load  = {{ use = "sql.load" }}
step.first = {{ use = "transform", needs = ["load"], expression = "." }}
step.wait  = {SLEEP}
step.index = {{ use = "search.index", needs = ["load", "wait"], input = "$steps.load", into = "book", tries = 1 }}"#
    );
    shop.replace_in_config(PLAIN, &steps);
    shop.replace_in_config("entity = \"book\" }]", "entity = \"book\", existing = true }]");
    let sink = "[sink.other]\nurl = \"tantivy:other\"\nfield = { title = \"text\" }\n";
    let into_other = r#"into = "other", tries = 1 }"#;
    let config = shop.config().replace(r#"into = "book", tries = 1 }"#, into_other) + sink;
    shop.write_config(&config);
    let node = shop.start();
    shop.insert(1, 1);
    until_asleep(&shop, "1");
    node.kill();

    // Remove the sink into which the run writes.
    shop.write_config(&config.replace(into_other, r#"into = "book", tries = 1 }"#).replace(sink, ""));
    let node = shop.start();
    node.until_says("no-worker");
    let status = node.until("the status shows it", |status| {
        let waiting = &status["engine"]["no_worker"][0];
        (waiting["runs"] == 1).then(|| waiting.clone())
    });
    assert_eq!((&status["workflow"], &status["version"]), (&"book".into(), &1.into()));
    assert!(status["why"].as_str().is_some_and(|why| why.contains("no sink other")), "{status}");
    let shown = shop.run_well(&["run", "show", "1"]).out;
    assert!(shown.contains("waits for: no-worker"), "{shown}");
    shop.insert(2, 2);
    node.until("another key is processed, and the event of the first stays", |_| {
        let indexed = is_indexed(&shop, "2");
        let others = shop.number("select count(*) from honeyflow_outbox where entity_key <> '1'");
        (indexed && others == 0).then_some(())
    });
    assert!(shop.waiting() >= 1, "its event stays");
    assert!(!is_indexed(&shop, "1"), "no newer event of its key overtakes it");
    node.stop();

    shop.write_config(&config);
    let node = shop.start();
    shop.until_quiet(&node);
    let found: Vec<String> = shop.documents("other").into_keys().collect();
    assert!(found.contains(&"1".to_owned()), "{found:?}\n{}", node.log());
    node.stop();
}

//! A limit that several nodes share, measured by the server that they call.

use std::time::{Duration, Instant};

use crate::{http, node::Node, shop::Shop, wait};

const BOOKS: u32 = 100;
const RATE: f64 = 20.0;
/// The burst: the permits of 200 ms.
const BURST: f64 = 4.0;
/// The longest time between the issue of a permit and its use.
const ON_THE_WAY: Duration = Duration::from_secs(2);

fn start(shop: &Shop, name: &str) -> Node {
    start_under(shop, name, &format!("rate = \"{RATE}/s\""))
}

fn start_under(shop: &Shop, name: &str, limit: &str) -> Node {
    shop.configure(name, "");
    let file = shop.home().join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&file).expect("a file");
    let networks = r#"allow-networks = ["127.0.0.0/8"]"#;
    let limited = text.replace(networks, &format!(r#"{networks}, limit = "api""#));
    assert_ne!(limited, text);
    std::fs::write(&file, format!("{limited}\n[limit.api]\n{limit}\n")).expect("a file");
    shop.launch(name).ready()
}

/// Checks that no window contains more calls than the rate and the burst allow.
fn assert_within(calls: &[Instant]) {
    for (first, from) in calls.iter().enumerate() {
        for (last, until) in calls.iter().enumerate().skip(first) {
            let window = until.duration_since(*from) + ON_THE_WAY;
            let called = (last - first + 1) as f64;
            let allowed = window.as_secs_f64() * RATE + BURST;
            assert!(called <= allowed, "{called} calls within {:?}", until.duration_since(*from));
        }
    }
}

/// Changes every book, and checks that nodes `a` and `b` together call once for each.
fn every_book_is_called_once(shop: &Shop, nodes: [&Node; 2]) {
    shop.until_shared(&["a", "b"]);
    // The first start has already called for every book.
    shop.until_quiet(&nodes);
    let before = shop.recorder.calls().len();
    shop.change("limited", "true");
    shop.until_quiet(&nodes);
    shop.assert_done();
    assert_eq!(
        shop.recorder.calls().len() - before,
        BOOKS as usize,
        "each book once: waiting for a permit is not a failure"
    );
}

/// HV-60, HV-74: a step waits for its permits, and two nodes together get no more permits than one.
#[test]
fn hv_74_two_nodes_together_call_no_more_often_than_the_limit_says() {
    let Some(shop) = Shop::new(BOOKS) else { return };
    let (a, b) = (start(&shop, "a"), start(&shop, "b"));
    every_book_is_called_once(&shop, [&a, &b]);
    assert_within(&shop.recorder.calls());
    let admitted = |node: &Node| {
        let metrics = http::get(&node.address().expect("an address"), "/metrics").expect("an answer").body;
        let line = metrics.lines().find(|line| line.starts_with("honeyflow_limit_admitted_total"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_else(|| panic!("{metrics}"))
    };
    let (by_a, by_b) = (admitted(&a), admitted(&b));
    assert!(by_a >= 1.0 && by_b >= 1.0, "both nodes got permits: {by_a} and {by_b}");
    for node in [a, b] {
        node.stop();
    }
}

/// HV-68, HV-74: two nodes together never have more open calls than slots, and release all slots at the end.
#[test]
fn hv_68_two_nodes_together_have_no_more_open_calls_than_slots() {
    let Some(shop) = Shop::new(BOOKS) else { return };
    // Long enough that a fourth open call would be noticed.
    shop.recorder.slow_down(Duration::from_millis(40));
    let limit = "concurrent = 3";
    let (a, b) = (start_under(&shop, "a", limit), start_under(&shop, "b", limit));
    every_book_is_called_once(&shop, [&a, &b]);
    assert_eq!(shop.recorder.most_open(), 3, "all slots are used, and no more");
    let free = |limit: &serde_json::Value| limit["held"] == 0;
    let listed = wait::until("no slot is held", || shop.ask("a", &["limit", "list"]).pop().filter(free));
    assert_eq!(
        (&listed["rate"], &listed["concurrent"], &listed["configured"], &listed["set"]),
        (&"3 at once".into(), &3.into(), &"3 at once".into(), &false.into()),
        "{listed}"
    );
    for node in [a, b] {
        node.stop();
    }
}

/// HV-68, HV-77: a concurrency limit is set, shown and audited like a rate.
#[test]
fn hv_77_a_concurrency_limit_is_listed_set_and_audited() {
    let Some(shop) = Shop::new(BOOKS) else { return };
    let node = start_under(&shop, "a", "concurrent = 3");
    shop.until_quiet(&[&node]);
    for (words, hint) in [
        (&["limit", "set", "api", "40/s"][..], "not the kind"),
        (&["limit", "set", "api", "4", "--burst", "2"], "no --burst"),
        (&["limit", "set", "api", "0"], "between 1 and"),
    ] {
        let ran = shop.run("a", words);
        assert!(ran.code > 0 && ran.err.contains(hint), "{words:?}: {} {}", ran.code, ran.err);
    }
    let set = shop.ask("a", &["limit", "set", "api", "1"]).remove(0);
    assert_eq!((&set["rate"], &set["concurrent"]), (&"1 at once".into(), &1.into()), "{set}");
    let listed = || shop.ask("a", &["limit", "list"]).remove(0);
    wait::until("it is in force", || Some(listed()).filter(|limit| limit["concurrent"] == 1));
    assert!(shop.run("a", &["limit", "list"]).out.contains("0 of 1"), "{}", shop.run("a", &["limit", "list"]).out);
    let audit = std::thread::scope(|scope| {
        let audit = scope.spawn(|| shop.ask("a", &["limit", "audit", "api", "--for", "3s", "--every", "10ms"]));
        shop.change("limited", "true");
        audit.join().expect("an audit")
    });
    assert!(audit.iter().all(|row| row["allowed"] == 1 && row["issued"] == 1), "{audit:?}");
    assert!(!audit.is_empty(), "some slots were held during the audit");
    shop.until_quiet(&[&node]);
    let shown = shop.ask("a", &["limit", "show", "api"]).remove(0);
    assert_eq!(shown["buckets"][0]["key"], "(the limit as a whole)", "{shown}");
    node.stop();
}

/// HV-71, HV-77: a limit that an operator sets applies to all nodes without a restart, survives a restart, and is
/// shown.
#[test]
fn hv_77_a_limit_is_listed_set_and_audited() {
    let Some(shop) = Shop::new(BOOKS) else { return };
    let node = start(&shop, "a");
    shop.until_quiet(&[&node]);
    let listed = || shop.ask("a", &["limit", "list"]).remove(0);
    let first = listed();
    assert_eq!(
        (&first["limit"], &first["rate"], &first["set"]),
        (&"api".into(), &"20/s".into(), &false.into()),
        "{first}"
    );

    let set = shop.ask("a", &["limit", "set", "api", "10/s", "--burst", "8", "--after", "15s"]).remove(0);
    assert_eq!((&set["rate"], &set["burst"]), (&"10/s".into(), &8.into()), "{set}");
    assert!(set["version"].as_u64() > first["version"].as_u64(), "{set}");
    let pending = shop.run("a", &["limit", "set", "api", "50/s"]);
    assert!(pending.code != 0 && pending.err.contains("is pending"), "{}", pending.err);
    let in_force = wait::until("it is in force", || Some(listed()).filter(|limit| limit["rate"] == "10/s"));
    assert_eq!(
        (&in_force["burst"], &in_force["set"], &in_force["configured"]),
        (&8.into(), &true.into(), &"20/s".into())
    );

    // The configuration is unchanged, so a restart must not undo the change.
    node.stop();
    let node = shop.launch("a").ready();
    shop.change("limited", "true");
    let audited = shop.ask("a", &["limit", "audit", "api", "--for", "3s"]);
    assert!(audited.iter().all(|row| row["issued"].as_u64() <= row["allowed"].as_u64()), "{audited:?}");
    assert!(!audited.is_empty(), "some permits were issued during the audit");
    assert_eq!(listed()["rate"], "10/s");
    shop.until_quiet(&[&node]);
    let shown = shop.ask("a", &["limit", "show", "api"]).remove(0);
    assert!(shown["buckets"][0]["issued"].as_u64() >= Some(u64::from(BOOKS)), "{shown}");
    node.stop();
}

/// A wrong command says what is wrong and changes nothing.
#[test]
fn a_limit_that_cannot_be_set_says_why() {
    let Some(shop) = Shop::new(1) else { return };
    let node = start(&shop, "a");
    let before = wait::until("the node has declared its limit", || {
        Some(shop.ask("a", &["limit", "list"])).filter(|listed| listed.iter().all(|one| !one["version"].is_null()))
    });
    for (words, hint) in [
        (&["limit", "set", "api", "40"][..], "40"),
        (&["limit", "set", "api", "0/s"], "0/s"),
        (&["limit", "set", "api", "-4/s"], "-4"),
        (&["limit", "set", "api", "10/fortnight"], "fortnight"),
        (&["limit", "set", "api", "10000/month"], "not the kind"),
        (&["limit", "set", "api", "40/s", "--after", "soon"], "soon"),
        (&["limit", "set", "aip", "40/s"], "api"),
        (&["limit", "show", "aip"], "api"),
        (&["limit", "audit", "api", "--for", "1"], "duration"),
    ] {
        let ran = shop.run("a", words);
        assert!(ran.code > 0 && ran.err.contains(hint), "{words:?}: {} {}", ran.code, ran.err);
    }
    assert_eq!(shop.ask("a", &["limit", "list"]), before);
    node.stop();
}

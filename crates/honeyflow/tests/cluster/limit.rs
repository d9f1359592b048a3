//! A limit that several nodes share, as the one who is called sees it.

use std::time::{Duration, Instant};

use crate::{http, node::Node, shop::Shop};

const BOOKS: u32 = 100;
const RATE: f64 = 20.0;
/// What may be called at once: 200 ms of the rate.
const BURST: f64 = 4.0;
/// A permit is used a moment after it was given; some wait longer for their turn than others.
const ON_THE_WAY: Duration = Duration::from_secs(1);

fn start(shop: &Shop, name: &str) -> Node {
    shop.configure(name, "");
    let file = shop.home().join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&file).expect("a file");
    let networks = r#"allow-networks = ["127.0.0.0/8"]"#;
    let limited = text.replace(networks, &format!(r#"{networks}, limit = "api""#));
    assert_ne!(limited, text);
    std::fs::write(&file, format!("{limited}\n[limit.api]\nrate = \"{RATE}/s\"\n")).expect("a file");
    shop.launch(name).ready()
}

/// Whatever part of them is looked at, no more than the rate and the burst allow.
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

/// HV-60, HV-74: a step waits for its permits, and two nodes together have no more of them than one.
#[test]
fn hv_74_two_nodes_together_call_no_more_often_than_the_limit_says() {
    let Some(shop) = Shop::new(BOOKS) else { return };
    let (a, b) = (start(&shop, "a"), start(&shop, "b"));
    shop.until_shared(&["a", "b"]);
    // The first start has called for every book already.
    shop.until_quiet(&[&a, &b]);
    let before = shop.recorder.calls().len();
    shop.change("limited", "true");
    shop.until_quiet(&[&a, &b]);
    shop.assert_done();
    let calls = shop.recorder.calls();
    assert_eq!(calls.len() - before, BOOKS as usize, "each once: waiting is no failure");
    assert_within(&calls);
    let admitted = |node: &Node| {
        let metrics = http::get(&node.address().expect("an address"), "/metrics").expect("an answer").body;
        let line = metrics.lines().find(|line| line.starts_with("honeyflow_limit_admitted_total"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_else(|| panic!("{metrics}"))
    };
    let (by_a, by_b) = (admitted(&a), admitted(&b));
    assert!(by_a >= 1.0 && by_b >= 1.0, "both have had their part: {by_a} and {by_b}");
    for node in [a, b] {
        node.stop();
    }
}

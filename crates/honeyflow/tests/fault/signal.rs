//! Actions on a running node: pausing a workflow, stopping the node twice, suspending it.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::{shop::Shop, wait};

#[test]
fn wf_78_a_pause_takes_effect_quickly_and_survives_a_restart() {
    let shop = Shop::new(20);
    let node = shop.start();
    shop.until_quiet(&node);
    shop.run_well(&["workflow", "pause", "book", "--why", "the index moves"]);
    let is_paused = |status: &serde_json::Value| {
        let closed = status["engine"]["closed"].as_array()?;
        closed.iter().any(|gate| gate["name"] == "book" && gate["reason"] == "paused").then_some(())
    };
    node.until("the pause takes effect", is_paused);
    shop.insert(21, 40);
    let node = {
        node.stop();
        shop.start()
    };
    node.until("it is still paused", is_paused);
    assert_eq!(shop.waiting(), 20);
    assert_eq!(shop.documents("book").len(), 20);
    let explained = shop.run_well(&["explain", "book", "21"]).out;
    assert!(explained.contains("the index moves"), "{explained}");
    shop.run_well(&["workflow", "resume", "book"]);
    shop.until_quiet(&node);
    shop.assert_equal();
}

/// F58: work that does not end in time is left for the next node.
#[test]
fn f58_a_second_term_ends_the_node_immediately() {
    let shop = Shop::new(20);
    // A call to a server that never answers keeps the drain waiting.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let before = shop.config();
    shop.replace_in_config("entity = \"book\" }]", "entity = \"book\", existing = true }]");
    shop.replace_in_config("listen = ", "drain  = \"10m\"\nlisten = ");
    shop.replace_in_config(
        "step.index = { use = \"search.index\", needs = [\"load\"]",
        &format!(
            "step.call  = {{ use = \"http.call\", needs = [\"load\"], url = \"http://127.0.0.1:{port}/\", http = true, \
             allow-networks = [\"127.0.0.0/8\"], timeout = \"5m\" }}\n\
             step.index = {{ use = \"search.index\", needs = [\"load\", \"call\"]"
        ),
    );
    let mut node = shop.start();
    node.until("calls are in flight", |status| status["engine"]["held_by_workers"].as_u64().filter(|held| *held > 0));
    node.signal(Signal::TERM);
    node.until_says("draining");
    assert!(node.ended().is_none(), "it waits for the work in progress");
    let began = Instant::now();
    node.signal(Signal::TERM);
    let status = node.wait();
    assert!(began.elapsed() < Duration::from_secs(60), "it did not wait for the calls: {:?}", began.elapsed());
    assert!(status.code().is_some(), "it exited by itself: {status}");
    assert_eq!(shop.waiting(), 20);
    shop.write_config(&before);
    let node = shop.start();
    shop.until_quiet(&node);
    shop.assert_equal();
}

/// F02: no other node took over, so it may continue, under any epoch that is not lower than before.
#[test]
fn f02_a_node_suspended_past_its_lease_continues_safely() {
    let shop = Shop::new(200);
    let node = shop.start();
    shop.until_quiet(&node);
    let epoch = node.epoch();
    wait::until("it is suspended while it holds no lock", || {
        node.signal(Signal::STOP);
        let database = shop.database();
        let _ = database.busy_timeout(Duration::from_millis(200));
        if database.execute_batch("update book set price = price + 1").is_ok() {
            return Some(());
        }
        node.signal(Signal::CONT);
        None
    });
    // A real pause is needed here, longer than a lease is valid.
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(shop.waiting(), 200);
    node.signal(Signal::CONT);
    shop.insert(201, 300);
    shop.until_quiet(&node);
    assert!(node.epoch() >= epoch);
    shop.assert_equal();
    node.stop();
}

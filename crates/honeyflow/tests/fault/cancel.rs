//! Cancels runs while the node runs and while it does not.

use crate::{shop::Shop, wait};

/// A shop with an additional workflow that sleeps.
fn asleep() -> Shop {
    let shop = Shop::new(3);
    let nap = "[workflow.nap]\non = [{ source = \"shop\", entity = \"book\", existing = true }]\nstep.nap = { use = \"sleep\", for = \"1h\" }\n";
    shop.write_config(&(shop.config() + nap));
    shop
}

fn until_done(shop: &Shop, key: &str) {
    let row = format!("select count(*) from honeyflow_task where name = 'nap/book/{key}' and state = 'done'");
    wait::until("the request is done", || (shop.number(&row) == 1).then_some(()));
}

fn open(shop: &Shop) -> Vec<String> {
    let runs = shop.ask(&["run", "list"]);
    runs.iter()
        .filter(|run| run["state"] == "open" && run["workflow"] == "nap")
        .filter_map(|run| run["key"].as_str().map(str::to_owned))
        .collect()
}

fn parked(shop: &Shop) -> Vec<(String, String)> {
    let text = |row: &serde_json::Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    shop.parked().iter().map(|row| (text(row, "key"), text(row, "code"))).collect()
}

/// WF-54, WF-81: the next node carries out a request that was made while no node ran; `--drop` deletes the event.
#[test]
fn wf_54_a_cancelled_run_is_parked_or_dropped() {
    let shop = asleep();
    let node = shop.start();
    wait::until("three runs sleep", || (open(&shop).len() == 3).then_some(()));
    wait::until("all are indexed", || (shop.documents("book").len() == 3).then_some(()));
    shop.run_well(&["run", "cancel", "nap", "book", "1"]);
    until_done(&shop, "1");
    assert_eq!(parked(&shop), [("1".to_owned(), "cancelled".to_owned())]);
    let refused = shop.run(&["run", "cancel", "nap", "book", "2", "--drop"]);
    assert!(refused.code != 0 && refused.err.contains("--yes"), "{}", refused.err);
    node.kill();
    shop.run_well(&["run", "cancel", "nap", "book", "2", "--drop", "--yes"]);
    let node = shop.start();
    until_done(&shop, "2");
    assert_eq!(parked(&shop).len(), 1, "the event is dropped, and the one parked before is kept");
    wait::until("the third run still sleeps", || (open(&shop) == ["3"]).then_some(()));
    node.stop();
}

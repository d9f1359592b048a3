//! `verify` and `reindex` tell the truth: about rows that give no document, about repairs that fail, and while other
//! work goes on.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    node::Node,
    shop::{CommandOutput, Shop},
    wait,
};

fn json(ran: &CommandOutput) -> Value {
    serde_json::from_str(ran.out.lines().next().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {}{}", ran.out, ran.err))
}

fn indexed(books: u32) -> (Shop, Node) {
    let shop = Shop::new(books);
    let node = shop.start();
    shop.until_quiet(&node);
    (shop, node)
}

/// Breaks book 2 and checks what `verify` says.
fn is_unreadable(shop: &Shop, node: &Node, change: &str, step: &str, code: &str) {
    shop.sql(change);
    shop.until_quiet(node);
    let ran = shop.run(&["verify"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("book: DIFFERENT") && ran.out.contains(", 1 unreadable"), "{}", ran.out);
    assert!(ran.out.contains(&format!("  2: unreadable: {code}: ")), "{}", ran.out);
    let report = json(&shop.run(&["verify", "--output", "json"]));
    assert_eq!((&report["unreadable"], &report["differences"]["2"]), (&1.into(), &"unreadable".into()), "{report}");
    assert_eq!(report["reasons"]["2"]["code"], *code, "{report}");

    let ran = shop.run(&["verify", "--repair"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let parked = shop.parked();
    assert_eq!((parked.len(), &parked[0]["step"]), (1, &step.into()), "{parked:?}");
    let said = format!("2: not repaired: parked ({}, {code}, ", parked[0]["id"]);
    assert!(
        ran.out.contains(&said) && !ran.out.contains(" repaired\n  2: not") | ran.out.contains("1 not repaired"),
        "{}",
        ran.out
    );
    let report = json(&shop.run(&["verify", "--repair", "--output", "json"]));
    assert_eq!((&report["repaired"], &report["not_repaired"]["2"]["parked"]["code"]), (&0.into(), &code.into()));
}

#[test]
fn ob_99_a_row_that_cannot_be_loaded_is_named() {
    let (shop, node) = indexed(5);
    is_unreadable(&shop, &node, "update book set title = cast(x'ff41' as text) where id = 2;", "load", "invalid-utf8");
    // Other differences are repaired all the same.
    node.stop();
    shop.sql("update book set title = 'Behind our back' where id = 4; delete from honeyflow_outbox;");
    let ran = shop.run(&["verify", "--repair"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("  1 repaired\n") && ran.out.contains("  1 not repaired\n"), "{}", ran.out);
    assert_eq!(shop.documents("book")["4"]["title"], "Behind our back");
    let node = shop.start();
    shop.sql("begin immediate; update book set title = 'Mended' where id = 2; delete from honeyflow_outbox; commit;");
    assert!(shop.run_well(&["verify", "--repair"]).out.contains("  1 repaired\n"));
    shop.assert_equal();
    drop(node);
}

#[test]
fn ob_99_a_row_that_the_sink_cannot_hold_is_named() {
    let (shop, node) = indexed(5);
    is_unreadable(&shop, &node, "update book set price = 'not for sale' where id = 2;", "index", "bad-field");
}

#[test]
fn ob_99_a_row_whose_transform_fails_is_named() {
    let shop = Shop::new(5);
    shop.replace_in_config(
        "step.index = { use = \"search.index\", needs = [\"load\"]",
        "step.shape = { use = \"transform\", needs = [\"load\"], expression = \". + {price: (.price + 1)}\", tries = 1 }\n\
         step.index = { use = \"search.index\", needs = [\"shape\"]",
    );
    let node = shop.start();
    shop.until_quiet(&node);
    is_unreadable(&shop, &node, "update book set price = 'dear' where id = 2;", "shape", "expression-failed");
}

/// Lets one document differ from its row: the change of book 4 was not captured.
fn fall_behind(shop: &Shop) {
    shop.sql("begin immediate; update book set title = 'Behind our back' where id = 4; delete from honeyflow_outbox; commit;");
}

/// Changes book 1 all the time while `action` runs.
fn under_traffic<T>(shop: &Shop, action: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let database = shop.database();
            while !stop.load(Ordering::Relaxed) {
                database.execute("update book set price = price + 1 where id = 1", []).expect("an update");
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(action));
        stop.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Adds an entity whose single run sleeps for an hour.
fn with_a_sleeping_run(shop: &Shop) {
    shop.sql("create table nap(id integer primary key);");
    let nap = "\n[entity.nap]\nsource = \"shop\"\nkey = [\"id\"]\ndocument = \"select id from nap where id in $keys\"\n\
               \n[workflow.nap]\non = [{ source = \"shop\", entity = \"nap\" }]\nstep.nap = { use = \"sleep\", for = \"1h\" }\n";
    shop.write_config(&format!("{}{nap}", shop.config()));
}

#[test]
fn ob_99_a_repair_and_a_reindex_end_under_steady_traffic() {
    let (shop, node) = indexed(200);
    node.stop();
    fall_behind(&shop);
    let node = shop.start();
    under_traffic(&shop, || {
        let ran = shop.run(&["verify", "--repair"]);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        assert!(ran.out.contains("  1 repaired\n"), "{}", ran.out);
        let ran = shop.run_well(&["reindex", "book"]);
        assert!(ran.out.contains("book: 200 rows, 0 still waiting"), "{}", ran.out);
    });
    shop.until_quiet(&node);
    shop.assert_equal();
}

#[test]
fn ob_99_a_repair_and_a_reindex_end_while_a_run_sleeps() {
    let shop = Shop::new(50);
    with_a_sleeping_run(&shop);
    let node = shop.start();
    shop.until_quiet(&node);
    node.stop();
    fall_behind(&shop);
    shop.sql("insert into nap values (1);");
    let node = shop.start();
    assert_eq!(shop.waiting(), 1);
    let ran = shop.run_well(&["reindex", "book"]);
    assert!(ran.out.contains("book: 50 rows, 0 still waiting"), "{}", ran.out);
    node.stop();
    shop.sql("begin immediate; update book set title = 'Again' where id = 4; delete from honeyflow_outbox where entity = 'book'; commit;");
    // Without a running node: the command starts one for itself.
    let ran = shop.run(&["verify", "--repair"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("  1 repaired\n"), "{}", ran.out);
    assert_eq!(shop.waiting(), 1, "the run still sleeps");
}

/// The document differs with every load: each repair writes one, and none makes it equal.
#[test]
fn ob_99_a_repair_that_changes_nothing_is_not_called_repaired() {
    let shop = Shop::new(2);
    shop.replace_in_config("select id, title,", "select id, title || hex(randomblob(8)) as title,");
    let node = shop.start();
    shop.until_quiet(&node);
    let ran = shop.run(&["verify", "--repair"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("  1: not repaired: still different after its run\n"), "{}", ran.out);
    assert!(!ran.out.contains(" repaired\n  2 not"), "{}", ran.out);
    let report = json(&shop.run(&["verify", "--repair", "--output", "json"]));
    assert_eq!((&report["repaired"], &report["not_repaired"]["2"]), (&0.into(), &"different".into()), "{report}");
}

fn lines_of(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let err = child.stderr.take().expect("a pipe");
    BufReader::new(err).lines().map_while(Result::ok)
}

/// Without a terminal, the progress is a line every few seconds.
#[test]
fn ob_99_a_repair_says_what_it_waits_for() {
    let (shop, node) = indexed(5);
    node.stop();
    fall_behind(&shop);
    let node = shop.start();
    shop.run_well(&["workflow", "pause", "book", "--why", "test"]);
    node.until("it is paused", |status| {
        status["engine"]["closed"].as_array()?.iter().any(|gate| gate["name"] == "book").then_some(())
    });
    let began = Instant::now();
    let mut child = shop.command(&["verify", "--repair"]);
    let mut child =
        child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary");
    let said = lines_of(&mut child).find(|line| line.contains("repairs left: 1; "));
    assert!(said.is_some() && began.elapsed() < wait::DEADLINE, "after {:?}", began.elapsed());
    shop.run_well(&["workflow", "resume", "book"]);
    assert!(child.wait().expect("a child").success());
    shop.assert_equal();
    drop(node);
}

//! Builds the next generation of an index while an application makes changes. Searches see either the complete old or
//! the complete new generation, even if the node is killed meanwhile.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde_json::Value;

use crate::{http, node::Node, shop::Shop, wait};

const BOOKS: u32 = 12_000;

/// Changes the table continuously: one update, one insert and one delete in each round, each key once.
struct Application {
    stop: Arc<AtomicBool>,
    rounds: JoinHandle<u32>,
}

impl Application {
    fn start(shop: &Arc<Shop>) -> Application {
        let stop = Arc::new(AtomicBool::new(false));
        let (shop, ended) = (shop.clone(), stop.clone());
        let rounds = std::thread::spawn(move || {
            let mut round = 0;
            while !ended.load(Ordering::Relaxed) {
                round += 1;
                let (changed, new, gone) = (round * 3, BOOKS + round, BOOKS.saturating_sub(round * 5));
                shop.sql(&format!(
                    "begin immediate; update book set title = 'Changed book' where id = {changed};
                     insert into book values ({new}, 'New book', 1, '[\"paper\"]'); delete from book where id = {gone}; commit;"
                ));
                std::thread::sleep(Duration::from_millis(20));
            }
            round
        });
        Application { stop, rounds }
    }

    fn stop(self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.rounds.join().expect("the application")
    }
}

/// Searches and counts continuously over the node's HTTP API.
struct Visitor {
    stop: Arc<AtomicBool>,
    /// The smallest number of hits of a search with limit 500, and of documents in total.
    fewest: Arc<[AtomicU64; 2]>,
    thread: JoinHandle<u64>,
}

/// Sends a request and counts. None if the node does not answer, for example during a reload or after a kill. A refusal
/// counts as 0.
fn count(address: &str, path: &str, of: impl Fn(&Value) -> Option<u64>) -> Option<u64> {
    let answer = http::get(address, path).ok()?;
    let found = serde_json::from_str(&answer.body).ok().and_then(|found| of(&found));
    found.or((answer.status != 200).then_some(0))
}

fn documents(address: &str) -> Option<u64> {
    count(address, "/v1/status", |status| status["sinks"][0]["documents"].as_u64())
}

impl Visitor {
    fn start(address: String) -> Visitor {
        let stop = Arc::new(AtomicBool::new(false));
        let fewest = Arc::new([const { AtomicU64::new(u64::MAX) }; 2]);
        let (ended, least) = (stop.clone(), fewest.clone());
        let thread = std::thread::spawn(move || {
            let mut answers = 0;
            while !ended.load(Ordering::Relaxed) {
                let hits = count(&address, "/v1/search?sink=book&q=title:book&limit=500", |found| {
                    Some(found["hits"].as_array()?.len() as u64)
                });
                let documents = documents(&address);
                for (least, found) in least.iter().zip([hits, documents]) {
                    least.fetch_min(found.unwrap_or(u64::MAX), Ordering::Relaxed);
                    answers += u64::from(found.is_some());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            answers
        });
        Visitor { stop, fewest, thread }
    }

    fn stop_and_check(self) {
        self.stop.store(true, Ordering::Relaxed);
        assert!(self.thread.join().expect("a visitor") > 0, "the node never answered");
        let [hits, documents] = [0, 1].map(|at| self.fewest[at].load(Ordering::Relaxed));
        assert_eq!(hits, 500, "every search had 500 hits");
        // The application inserts as many rows as it deletes, and few changes are in progress at any time.
        assert!(documents > u64::from(BOOKS) * 95 / 100, "{documents} documents");
    }
}

fn progress(shop: &Shop) -> Option<Value> {
    let text = shop.database().query_row(
        "select state from honeyflow_task where noun = 'generation' and name = 'book'",
        [],
        |row| row.get::<_, String>(0),
    );
    serde_json::from_str(&text.ok()?).ok()
}

fn queued(progress: &Value) -> u64 {
    progress["positions"]["book/book"]["events"].as_u64().unwrap_or(0)
}

fn phase(shop: &Shop) -> String {
    progress(shop).map_or_else(String::new, |progress| progress["phase"].as_str().unwrap_or_default().to_owned())
}

fn current(shop: &Shop) -> String {
    std::fs::read_to_string(shop.home().join("data/index/book/current")).expect("an index").trim().to_owned()
}

fn generations(shop: &Shop) -> Vec<String> {
    let entries = std::fs::read_dir(shop.home().join("data/index/book")).expect("an index");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).collect();
    names.sort();
    names
}

fn until_served(shop: &Shop, node: &Node) {
    let served = wait::within(wait::DEADLINE * 3, || (phase(shop) == "served").then_some(()));
    assert!(served.is_some(), "{:?}\n{}", progress(shop), node.log());
}

/// OB-75, OB-78: a field gets an incompatible type while the node runs; the node is killed twice during the build.
#[test]
fn ob_76_a_build_survives_kill_9_and_every_search_is_complete() {
    let shop = Arc::new(Shop::new(BOOKS));
    shop.replace_in_config("tags = \"keyword\" }", "tags = \"keyword\", id = \"keyword\" }");
    let node = shop.start();
    shop.until_quiet(&node);
    let address = node.address().expect("an address");
    // The count is cached for a moment and may be older than the index.
    wait::until("all are counted", || (documents(&address)? == u64::from(BOOKS)).then_some(()));
    let visitor = Visitor::start(address);
    let application = Application::start(&shop);
    shop.replace_in_config("id = \"keyword\"", "id = \"integer\"");
    node.until_says("the next generation is being built");
    // While this transaction is open the node cannot queue, so it is killed between two pages.
    let connection = shop.database();
    let before = wait::until("a page is queued", || {
        connection.execute_batch("begin immediate").ok()?;
        let queued = progress(&shop).filter(|progress| queued(progress) > 0);
        if queued.is_none() {
            connection.execute_batch("rollback").expect("a rollback");
        }
        queued
    });
    assert!(queued(&before) >= 1000, "{before}");
    node.kill();
    connection.execute_batch("rollback").expect("a rollback");
    visitor.stop_and_check();
    assert_eq!((current(&shop).as_str(), generations(&shop)), ("1", vec!["1".to_owned(), "2".to_owned()]));

    let node = shop.start();
    let visitor = Visitor::start(node.address().expect("an address"));
    wait::until("all rows are queued", || progress(&shop)?["positions"]["book/book"]["done"].as_bool()?.then_some(()));
    let after = progress(&shop).expect("a build");
    assert_eq!(after["generation"], before["generation"], "the same generation continues");
    assert_eq!(current(&shop), "1");
    node.kill();
    visitor.stop_and_check();

    let node = shop.start();
    let visitor = Visitor::start(node.address().expect("an address"));
    until_served(&shop, &node);
    visitor.stop_and_check();
    assert!(application.stop() > 10, "the table was changed during the whole build");
    shop.until_quiet(&node);
    shop.assert_equal();
    assert_eq!(current(&shop), "2");
    wait::until("the old generation is removed", || (generations(&shop) == ["2"]).then_some(()));
    assert_eq!(shop.ask(&["search", "book", "id:[95 TO 105]", "--limit", "100"]).len(), 11, "ids are numbers now");
    assert!(!node.log().contains("is dropped"), "{}", node.log());
    node.stop();
}

/// Titles are not integers: if all documents are refused, the fields are wrong, not the documents.
#[test]
fn ob_77_a_build_that_fails_leaves_everything_as_it_was() {
    let shop = Shop::new(600);
    let node = shop.start();
    shop.until_quiet(&node);
    let good = shop.config();
    shop.replace_in_config("title = \"text\"", "title = \"integer\"");
    node.until_says("gave up the next generation");
    assert_eq!((phase(&shop).as_str(), current(&shop).as_str()), ("given-up", "1"));
    shop.sql("update book set title = 'Still a book' where id = 7; delete from book where id = 8;");
    shop.until_quiet(&node);
    assert_eq!(shop.ask(&["search", "book", "title:still"]).len(), 1, "the old fields stay in use");
    shop.assert_equal();
    assert_eq!(generations(&shop), ["1"]);
    let reindexed = shop.run(&["reindex", "book"]);
    assert_eq!(reindexed.code, 1, "{}{}", reindexed.out, reindexed.err);
    assert!(reindexed.err.contains("do not fit"), "{}", reindexed.err);
    assert_eq!(current(&shop), "1");
    shop.write_config(&good);
    shop.insert(1001, 1010);
    shop.until_quiet(&node);
    shop.assert_equal();
    node.stop();
}

/// A running node builds the requested generation; other workflows of the entity do not run.
#[test]
fn ob_75_a_new_generation_can_be_requested() {
    let shop = Shop::new(1500);
    shop.write_config(&format!(
        "{}\n[workflow.aside]\non = [{{ source = \"shop\", entity = \"book\" }}]\nhistory = \"all\"\nstep.load = {{ use = \"sql.load\" }}\n",
        shop.config()
    ));
    let node = shop.start();
    shop.until_quiet(&node);
    let aside = || shop.number("select count(*) from honeyflow_run where workflow = 'aside'");
    assert_eq!(aside(), 0, "it has no sink to fill");
    let in_place = shop.ask(&["reindex", "book"]);
    assert_eq!(
        (&in_place[0]["generation"], current(&shop).as_str()),
        (&Value::Null, "1"),
        "in place if the fields are unchanged"
    );
    assert_eq!(aside(), 0);
    let built = shop.ask(&["reindex", "book", "--new-generation"]);
    assert_eq!((built[0]["generation"].as_u64(), built[0]["events"].as_u64()), (Some(2), Some(1500)));
    assert_eq!((current(&shop).as_str(), aside()), ("2", 0));
    shop.assert_equal();
    node.stop();
    let built = shop.ask(&["reindex", "book", "--new-generation"]);
    assert_eq!((built[0]["generation"].as_u64(), current(&shop).as_str()), (Some(3), "3"));
    shop.assert_equal();
    shop.run_well(&["reindex", "book", "--new-generation", "--no-wait"]);
    let node = shop.start();
    wait::until("the requested generation is served", || (current(&shop) == "4").then_some(()));
    shop.until_quiet(&node);
    shop.assert_equal();
}

#[test]
fn ob_78_a_changed_document_statement_builds_the_next_generation() {
    let shop = Shop::new(300);
    let node = shop.start();
    shop.until_quiet(&node);
    shop.replace_in_config("select id, title, price", "select id, upper(title) as title, price");
    until_served(&shop, &node);
    assert_eq!(current(&shop), "2");
    let documents = shop.documents("book");
    assert_eq!(documents.len(), 300);
    assert!(documents.values().all(|document| document["title"].as_str().expect("a title").starts_with("BOOK")));
    assert_eq!(shop.run(&["verify"]).code, 0);
    node.stop();
}

//! What capture costs the application. The bars are those of a release build on an idle machine; here, beside other
//! tests, only a gross change for the worse is noticed, and that only when asked for by name.

use std::time::{Duration, Instant};

use honeyflow_store::CaptureTable;
use rusqlite::Connection;

use crate::shop::{Shop, table};

const PLAIN: &str =
    "create table book (id integer primary key, isbn text, title text, price real, publisher_id integer);";

/// Run with `--ignored --nocapture` to see the figures.
#[test]
#[ignore = "measures time"]
fn ob_92_cost_of_capture() {
    for (name, setup) in [
        ("no other unique", PLAIN.to_owned()),
        ("unique isbn", format!("{PLAIN} create unique index one on book(isbn);")),
        ("text key", PLAIN.replace("id integer primary key", "id text primary key")),
    ] {
        let mut wanted = table("book", &["title", "price"]);
        if name == "text key" {
            wanted.key[0].kind = honeyflow_store::KeyType::Text;
        }
        let mut single = Vec::new();
        let mut bulk = Vec::new();
        for _ in 0..5 {
            let (base_single, base_bulk) = measure(&setup, &[]);
            let (our_single, our_bulk) = measure(&setup, std::slice::from_ref(&wanted));
            single.push(base_single.as_secs_f64() / our_single.as_secs_f64());
            bulk.push(base_bulk.as_secs_f64() / our_bulk.as_secs_f64());
        }
        let median = |figures: &mut Vec<f64>| {
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        };
        println!(
            "{name}: single-row commits {:.2}, rows of 1,000-row transactions {:.2} of base",
            median(&mut single),
            median(&mut bulk)
        );
    }
}

fn measure(setup: &str, wanted: &[CaptureTable]) -> (Duration, Duration) {
    let shop = Shop::plain(setup, wanted);
    let mut connection = Connection::open(&shop.path).unwrap();
    connection.pragma_update(None, "journal_mode", "wal").unwrap();
    connection.pragma_update(None, "synchronous", "full").unwrap();
    let mut id = 0;
    let mut insert = |connection: &Connection| {
        id += 1;
        let mut statement =
            connection.prepare_cached("insert into book values (?1, ?2, 'A title of a book', 12.5, 7)").unwrap();
        statement.execute(rusqlite::params![id, format!("978-{id:010}")]).unwrap();
    };
    let begin = Instant::now();
    for _ in 0..1_000 {
        insert(&connection);
    }
    let single = begin.elapsed();
    let begin = Instant::now();
    for _ in 0..50 {
        let transaction = connection.transaction().unwrap();
        for _ in 0..1_000 {
            insert(&transaction);
        }
        transaction.commit().unwrap();
    }
    (single, begin.elapsed())
}

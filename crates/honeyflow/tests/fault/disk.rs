//! Full disks under the index and under the database. The node keeps running and reports the problem, acknowledges only
//! what is on the disk, and continues by itself once there is space.

use std::{fs::File, io::Write, path::Path};

use rustix::process::Signal;

use crate::{shop::Shop, wait};

const MEBIBYTES: u32 = 24;

/// Fills the disk with one file; removing the file frees the space.
fn fill(path: &Path) {
    let mut file = File::create(path).expect("a file");
    let mut piece = vec![0_u8; 1 << 20];
    while !piece.is_empty() {
        if file.write_all(&piece).is_err() {
            piece.truncate(piece.len() / 2);
        }
    }
}

fn shop_or_skip(folder: &str) -> Option<Shop> {
    let shop = Shop::on_small_disk(100, folder, MEBIBYTES);
    if let Err(why) = &shop {
        assert!(std::env::var_os("CI").is_none(), "full-disk: {why}");
        println!("SKIPPED full-disk: {why}");
    }
    shop.ok()
}

#[test]
fn f26_a_full_disk_under_the_index_delays_and_loses_nothing() {
    let Some(shop) = shop_or_skip("data") else { return };
    let node = shop.start();
    shop.until_quiet(&node);
    let filler = shop.path().join("data/filler");
    fill(&filler);
    shop.insert(101, 3_000);
    node.until("the reason is shown", |status| {
        let closed = status["engine"]["closed"].as_array()?;
        closed.iter().any(|gate| gate["detail"].as_str().is_some_and(|why| why.contains("space"))).then_some(())
    });
    assert!(shop.waiting() > 0, "events that are not indexed are not acknowledged");
    assert!(shop.parked().is_empty(), "a full disk parks no event");
    std::fs::remove_file(filler).expect("a file");
    shop.until_quiet(&node);
    assert!(shop.parked().is_empty());
    shop.assert_equal();
    node.stop();
}

#[test]
fn f25_a_full_disk_under_the_database_delays_and_loses_nothing() {
    let Some(shop) = shop_or_skip("database") else { return };
    let node = shop.start();
    shop.until_quiet(&node);
    // Stop the node while events arrive and the disk fills; otherwise it would process them before.
    let filler = shop.path().join("database/filler");
    wait::until("the node is stopped while it holds no lock", || {
        node.signal(Signal::STOP);
        let inserted = shop.sqlite3(
            "insert or ignore into book select id + 1000, title, price, tags from book where id <= 100;
             pragma wal_checkpoint(truncate);",
        );
        // The first column of the pragma's result says whether the database was busy.
        if inserted.is_ok_and(|result| result.starts_with("0|")) && shop.waiting() > 0 {
            return Some(());
        }
        node.signal(Signal::CONT);
        None
    });
    fill(&filler);
    let waiting = shop.waiting();
    node.signal(Signal::CONT);
    node.until("the reason is shown", |status| {
        status["engine"]["last_store_failure"].as_str().filter(|why| why.contains("full")).map(str::to_owned)
    });
    assert_eq!(shop.waiting(), waiting, "nothing could be acknowledged");
    std::fs::remove_file(filler).expect("a file");
    shop.until_quiet(&node);
    assert!(shop.parked().is_empty());
    shop.assert_equal();
    node.stop();
}

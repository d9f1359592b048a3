//! The traffic of the demo's application: inserts, updates, deletes, renames that change many books, and transactions
//! that are rolled back. The application knows only its own tables.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rusqlite::{Connection, OptionalExtension, params};

use super::{dice::Dice, shop};

/// The counters of the application; other threads read them while it runs.
#[derive(Default)]
pub struct Tally {
    pub committed: AtomicU64,
    pub rolled_back: AtomicU64,
    /// Book, revision and the time when COMMIT returned, of each change that can be followed to the sink.
    pub commits: Mutex<Vec<(i64, i64, Instant)>>,
    pub stop: AtomicBool,
}

/// Makes changes until `count` are committed, or until `stop` is set, with a `pause` between them.
pub fn run(
    connection: &mut Connection,
    dice: &mut Dice,
    count: Option<u64>,
    pause: Duration,
    tally: &Arc<Tally>,
) -> rusqlite::Result<()> {
    let mut highest: i64 = connection.query_row("select max(id) from book", [], |row| row.get(0))?;
    while !tally.stop.load(Ordering::Relaxed)
        && count.is_none_or(|count| tally.committed.load(Ordering::Relaxed) < count)
    {
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let seen = change(&transaction, dice, &mut highest)?;
        if dice.below(25) == 0 {
            transaction.rollback()?;
            tally.rolled_back.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        transaction.commit()?;
        tally.committed.fetch_add(1, Ordering::Relaxed);
        if let Some((book, revision)) = seen
            && let Ok(mut commits) = tally.commits.lock()
        {
            commits.push((book, revision, Instant::now()));
        }
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    Ok(())
}

/// Makes one change. Returns the book and its revision if the change can be followed to the index.
fn change(db: &Connection, dice: &mut Dice, highest: &mut i64) -> rusqlite::Result<Option<(i64, i64)>> {
    let any_book = |dice: &mut Dice, highest: i64| 1 + dice.below(highest);
    match dice.below(100) {
        0..60 => {
            let id = any_book(dice, *highest);
            let sql =
                "update book set price = ?2, title = ?3, revision = revision + 1 where id = ?1 returning revision";
            let mut update = db.prepare_cached(sql)?;
            let revision: Option<i64> =
                update.query_row(params![id, shop::price(dice), shop::title(dice)], |row| row.get(0)).optional()?;
            Ok(revision.map(|revision| (id, revision)))
        }
        60..75 => {
            *highest += 1;
            let id = *highest;
            db.prepare_cached("insert into book (id, title, isbn, price, publisher_id) values (?1, ?2, ?3, ?4, ?5)")?
                .execute(params![
                id,
                shop::title(dice),
                shop::isbn(id),
                shop::price(dice),
                1 + dice.below(shop::PUBLISHERS)
            ])?;
            db.prepare_cached("insert or ignore into book_author values (?1, ?2)")?
                .execute(params![id, 1 + dice.below(shop::AUTHORS)])?;
            Ok(Some((id, 0)))
        }
        75..85 => {
            db.prepare_cached("delete from book where id = ?1")?.execute([any_book(dice, *highest)])?;
            Ok(None)
        }
        85..90 => {
            let book = any_book(dice, *highest);
            db.prepare_cached("insert or ignore into book_author select id, ?2 from book where id = ?1")?
                .execute(params![book, 1 + dice.below(shop::AUTHORS)])?;
            Ok(None)
        }
        90..94 => {
            // Stock is in no document: this change makes no event.
            db.prepare_cached("update book set stock = stock + 1 where id = ?1")?
                .execute([any_book(dice, *highest)])?;
            Ok(None)
        }
        94..98 => {
            let author = if dice.below(200) == 0 { shop::PROLIFIC } else { 2 + dice.below(shop::AUTHORS - 1) };
            db.prepare_cached("update author set name = ?2 where id = ?1")?
                .execute(params![author, shop::person(dice)])?;
            Ok(None)
        }
        98 => {
            db.prepare_cached("update publisher set name = ?2 where id = ?1")?
                .execute(params![1 + dice.below(shop::PUBLISHERS), format!("{} & Co", shop::person(dice))])?;
            Ok(None)
        }
        _ => {
            db.prepare_cached("delete from book_author where book_id = ?1")?.execute([any_book(dice, *highest)])?;
            Ok(None)
        }
    }
}

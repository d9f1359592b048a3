//! What triggers cost the application: the same updates on two equal databases, one of them captured. Nobody reads the
//! outbox meanwhile; it is emptied between runs.

use std::time::{Duration, Instant};

use honeyflow::demo::{dice::Dice, shop};
use rusqlite::{Connection, TransactionBehavior, params};

use crate::{
    Result,
    figure::{Better, Measured, Reporter},
    shop::Shop,
};

const BOOKS: i64 = shop::BOOKS;
const UPDATE: &str = "update book set price = ?2, title = ?3, revision = revision + 1 where id = ?1";

#[derive(clap::Args)]
pub struct Options {
    /// How long each side of a run takes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..600))]
    seconds: u64,
}

struct Case {
    figure: &'static str,
    unit: &'static str,
    synchronous: &'static str,
    rows: usize,
}

const CASES: [Case; 4] = [
    Case { figure: "single-row", unit: "commits/s", synchronous: "FULL", rows: 1 },
    Case { figure: "thousand-rows", unit: "rows/s", synchronous: "FULL", rows: 1_000 },
    Case { figure: "single-row-off", unit: "commits/s", synchronous: "OFF", rows: 1 },
    Case { figure: "thousand-rows-off", unit: "rows/s", synchronous: "OFF", rows: 1_000 },
];

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    let captured = crate::runtime()?.block_on(Shop::captured(BOOKS))?;
    let bare = Shop::bare(BOOKS)?;
    let lasts = Duration::from_secs(options.seconds);
    for case in CASES {
        // Exactly, so that one figure can be asked for.
        if !reporter.wants(case.figure) {
            continue;
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for run in 1..=reporter.runs {
            eprintln!("{}: run {run} of {}", case.figure, reporter.runs);
            ours.push(update(&captured, &case, u64::from(run), lasts)?);
            theirs.push(update(&bare, &case, u64::from(run), lasts)?);
        }
        reporter.report(&Measured {
            figure: case.figure,
            unit: case.unit,
            better: Better::Higher,
            ours,
            peer: Some(("without triggers", theirs)),
        });
    }
    Ok(())
}

/// Rows per second.
fn update(shop: &Shop, case: &Case, seed: u64, lasts: Duration) -> Result<f64> {
    let mut connection = shop.connect()?;
    empty_outbox(&connection)?;
    connection.pragma_update(None, "synchronous", case.synchronous)?;
    let mut dice = Dice::new(seed);
    let mut rows = 0;
    let begun = Instant::now();
    while begun.elapsed() < lasts {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut update = transaction.prepare_cached(UPDATE)?;
            let first = dice.below(BOOKS);
            for n in 0..case.rows {
                // Distinct, and spread over the table.
                let book = 1 + (first + i64::try_from(n)? * 7_919) % BOOKS;
                update.execute(params![book, shop::price(&mut dice), shop::title(&mut dice)])?;
            }
        }
        transaction.commit()?;
        rows += case.rows;
    }
    let rate = rows as f64 / begun.elapsed().as_secs_f64();
    if connection.table_exists(None, "honeyflow_outbox")? {
        let events: i64 = connection.query_row("select count(*) from honeyflow_outbox", [], |row| row.get(0))?;
        if events != i64::try_from(rows)? {
            return Err(format!("{rows} rows were changed, but {events} events stored").into());
        }
    }
    Ok(rate)
}

fn empty_outbox(connection: &Connection) -> Result<()> {
    if connection.table_exists(None, "honeyflow_outbox")? {
        connection.execute("delete from honeyflow_outbox", [])?;
    }
    connection.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))?;
    Ok(())
}

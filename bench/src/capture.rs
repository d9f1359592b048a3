//! The cost of triggers for the application: the same updates on two equal databases, one of them with capture. The
//! sides take turns every tenth of a second, so that a slow phase of the disk hits both. No poller reads the outbox
//! meanwhile; it is emptied between runs.

use std::time::{Duration, Instant};

use honeyflow::demo::{dice::Dice, shop};
use rusqlite::{Connection, TransactionBehavior, params};

use crate::{
    Result,
    figure::{Better, Measurement, Reporter},
    shop::Shop,
};

const BOOKS: i64 = shop::BOOKS;
const SLICE: Duration = Duration::from_millis(100);
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
        if !reporter.wants(case.figure) {
            continue;
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for run in 1..=reporter.runs {
            eprintln!("{}: run {run} of {}", case.figure, reporter.runs);
            let mut sides = [Side::open(&captured, &case, run)?, Side::open(&bare, &case, run)?];
            while sides[1].took < lasts {
                for side in &mut sides {
                    side.update(SLICE)?;
                }
            }
            let [captured, bare] = sides;
            ours.push(captured.rate()?);
            theirs.push(bare.rate()?);
        }
        reporter.report(&Measurement {
            figure: case.figure,
            unit: case.unit,
            better: Better::Higher,
            ours,
            peer: Some(("without triggers", theirs)),
        });
    }
    Ok(())
}

/// One of the two databases, and the work done on it in this run.
struct Side {
    connection: Connection,
    rows_at_once: usize,
    dice: Dice,
    rows: usize,
    took: Duration,
}

impl Side {
    fn open(shop: &Shop, case: &Case, seed: u32) -> Result<Side> {
        let connection = shop.connect()?;
        empty_outbox(&connection)?;
        connection.pragma_update(None, "synchronous", case.synchronous)?;
        let dice = Dice::new(u64::from(seed));
        Ok(Side { connection, rows_at_once: case.rows, dice, rows: 0, took: Duration::ZERO })
    }

    fn update(&mut self, lasts: Duration) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < lasts {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            {
                let mut update = transaction.prepare_cached(UPDATE)?;
                let first = self.dice.below(BOOKS);
                for n in 0..self.rows_at_once {
                    // The rows are distinct and spread over the table.
                    let book = 1 + (first + i64::try_from(n)? * 7_919) % BOOKS;
                    update.execute(params![book, shop::price(&mut self.dice), shop::title(&mut self.dice)])?;
                }
            }
            transaction.commit()?;
            self.rows += self.rows_at_once;
        }
        self.took += begun.elapsed();
        Ok(())
    }

    /// Rows per second.
    fn rate(self) -> Result<f64> {
        if self.connection.table_exists(None, "honeyflow_outbox")? {
            let count = "select count(*) from honeyflow_outbox";
            let events: i64 = self.connection.query_row(count, [], |row| row.get(0))?;
            if events != i64::try_from(self.rows)? {
                return Err(format!("{} rows were changed, but {events} events stored", self.rows).into());
            }
        }
        Ok(self.rows as f64 / self.took.as_secs_f64())
    }
}

fn empty_outbox(connection: &Connection) -> Result<()> {
    if connection.table_exists(None, "honeyflow_outbox")? {
        connection.execute("delete from honeyflow_outbox", [])?;
    }
    connection.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))?;
    Ok(())
}

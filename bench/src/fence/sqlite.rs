//! SQLite in WAL mode, in a file that only the bench uses: commits wait for the disk.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use honeyflow_hive::{Fence, Term, contract::HIVE, fence};
use honeyflow_hive_sqlite::SqliteHive;
use rusqlite::{Connection, TransactionBehavior};
use tokio::runtime::Runtime;

use super::{Bench, ROWS};
use crate::Result;

const DELETE: &str = "delete from bench_row where id in (select value from json_each(?1))";
/// The pause between two transactions, in which other writers get their turn.
const PAUSE: Duration = Duration::from_millis(2);

struct Sqlite {
    hive: SqliteHive,
    term: Term,
    connection: Connection,
    next: i64,
    runtime: Runtime,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

pub fn open() -> Result<Option<Box<dyn Bench>>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    let hive = honeyflow_hive_sqlite::make(&file, HIVE)?;
    let runtime = crate::runtime()?;
    let term = runtime.block_on(super::take_lease(&hive))?;
    let connection = connect(&file)?;
    connection.execute_batch("create table bench_row (id integer primary key, payload text not null)")?;
    Ok(Some(Box::new(Sqlite { hive, term, connection, next: 1, runtime, file, _folder: folder })))
}

fn connect(file: &PathBuf) -> Result<Connection> {
    let connection = Connection::open(file)?;
    connection.busy_timeout(Duration::from_secs(30))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

/// Inserts rows and returns their ids.
fn fill(connection: &mut Connection, first: i64) -> Result<String> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let ids: Vec<i64> = (first..first + ROWS).collect();
    for id in &ids {
        transaction.prepare_cached("insert into bench_row values (?1, printf('%200d', ?1))")?.execute([id])?;
    }
    transaction.commit()?;
    Ok(serde_json::to_string(&ids)?)
}

fn delete(connection: &mut Connection, ids: &str, fence: Option<&Fence>) -> Result<Duration> {
    let began = Instant::now();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if let Some(fence) = fence {
        let (epoch, holder) = (fence.epoch().0.cast_signed(), fence.holder().to_string());
        let parameters = (HIVE, &**fence.lease(), epoch, holder);
        if !transaction.prepare_cached(fence::SQLITE)?.exists(parameters)? {
            return Err("the fence was refused".into());
        }
    }
    let deleted = transaction.prepare_cached(DELETE)?.execute([ids])?;
    transaction.commit()?;
    let took = began.elapsed();
    if i64::try_from(deleted) != Ok(ROWS) {
        return Err(format!("{deleted} rows were deleted instead of {ROWS}").into());
    }
    Ok(took)
}

impl Bench for Sqlite {
    fn delete(&mut self, fenced: bool) -> Result<Duration> {
        let ids = fill(&mut self.connection, self.next)?;
        self.next += ROWS;
        let fence = self.term.fence();
        delete(&mut self.connection, &ids, fenced.then_some(&fence))
    }

    fn beats(&mut self, fenced: bool, count: u32) -> Result<Duration> {
        let (stop, fence) = (AtomicBool::new(false), self.term.fence());
        let (file, first) = (&self.file, self.next);
        let (took, next) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| -> Result<i64> {
                let mut connection = connect(file)?;
                let mut next = first;
                while !stop.load(Ordering::Relaxed) {
                    let ids = fill(&mut connection, next)?;
                    next += ROWS;
                    std::thread::sleep(PAUSE);
                    delete(&mut connection, &ids, fenced.then_some(&fence))?;
                    std::thread::sleep(PAUSE);
                }
                Ok(next)
            });
            let took = self.runtime.block_on(super::beat(&self.hive, self.term.holder(), count));
            stop.store(true, Ordering::Relaxed);
            let next = writer.join().map_err(|_| "the writer has failed")??;
            Ok::<_, crate::Error>((took?, next))
        })?;
        self.next = next;
        Ok(took)
    }

    fn peer_of_beats(&self) -> &'static str {
        "a beat beside the same transactions, unfenced"
    }
}

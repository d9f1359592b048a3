//! Removes expired rows: marks of done events, signals, old history, and definition versions that nothing uses. It
//! works in small batches, and writes only if there are expired rows, so that an idle database is not written to.

use rusqlite::{Connection, params};

use crate::{definition, planted, write};

const HISTORY_MAX: i64 = 10_000;
/// The maximum number of rows per statement, each in its own transaction: the application writes to the same file.
const ROWS_MAX: u32 = 1_000;

/// Removes one batch; returns whether there may be more.
pub(crate) fn run_once(connection: &mut Connection) -> bool {
    remove(connection).unwrap_or_else(|error| {
        // Not installed yet, or busy: the next call retries.
        tracing::debug!(%error, "failed to remove expired rows");
        false
    })
}

fn remove(connection: &Connection) -> rusqlite::Result<bool> {
    let now_ms = write::now_ms(connection)?;
    let stale: bool = connection.query_row(
        "select exists(select 1 from honeyflow_dedupe where until_ms <= ?1)
           or exists(select 1 from honeyflow_signal where until_ms <= ?1)
           or exists(select 1 from honeyflow_run where id <= (select max(id) from honeyflow_run) - ?2)",
        params![now_ms, HISTORY_MAX],
        |row| row.get(0),
    )?;
    if definition::is_stale(connection, now_ms)? {
        definition::tidy(connection, now_ms)?;
    }
    if !stale {
        return Ok(false);
    }
    let marks = connection.execute(
        "delete from honeyflow_dedupe where (tenant, entity, entity_key, dedupe) in (
           select tenant, entity, entity_key, dedupe from honeyflow_dedupe where until_ms <= ?1 limit ?2)",
        params![now_ms, ROWS_MAX],
    )?;
    connection.execute("delete from honeyflow_signal where until_ms <= ?1", [now_ms])?;
    if planted::on("PB-30") {
        connection.execute("delete from honeyflow_parked where parked_at <= ?1", [now_ms])?;
    }
    let runs = connection.execute(
        "delete from honeyflow_run where id in (
           select id from honeyflow_run where id <= (select max(id) from honeyflow_run) - ?1 limit ?2)",
        params![HISTORY_MAX, ROWS_MAX],
    )?;
    Ok(marks.max(runs) == ROWS_MAX as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    /// Removes expired rows and returns whether the parked entry, the checkpoint and the waiting row still exist.
    fn keeps_unfinished_rows() -> bool {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection).unwrap();
        connection
            .execute_batch(
                "insert into honeyflow_parked(tenant, entity, entity_key, workflow, priority, version, attempts, class,
                   code, message, parked_at) values ('', 'book', '1', 'book', 4, 1, 5, 'reject', 'bad', 'bad', 0);
                 insert into honeyflow_checkpoint(tenant, entity, entity_key, workflow, phase, step, instance, version,
                   covers, attempt, stamp, outcome, created_at)
                   values ('', 'book', '2', 'book', 0, 'call', 0, 1, '[1]', 1, 1, 'done', 0);
                 insert into honeyflow_outbox(entity, entity_key) values ('book', '2');
                 insert into honeyflow_dedupe(tenant, entity, entity_key, dedupe, until_ms) values ('', 'book', '3', 'x', 1)",
            )
            .unwrap();
        run_once(&mut connection);
        let left = |table: &str| -> i64 {
            let count = format!("select count(*) from honeyflow_{table}");
            connection.query_row(&count, [], |row| row.get(0)).unwrap()
        };
        assert_eq!(left("dedupe"), 0, "the expired row was removed");
        ["parked", "checkpoint", "outbox"].iter().all(|table| left(table) == 1)
    }

    /// RL-18, F66
    #[test]
    fn rl_18_only_expired_rows_are_removed() {
        assert!(keeps_unfinished_rows());
    }

    #[test]
    fn more_rows_than_one_batch_are_removed_in_several() {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection).unwrap();
        connection
            .execute_batch(
                "with recursive n(n) as (select 1 union all select n + 1 from n where n < 2500)
                 insert into honeyflow_dedupe(tenant, entity, entity_key, dedupe, until_ms)
                   select '', 'book', n, 'x', 1 from n",
            )
            .unwrap();
        let more: Vec<bool> = (0..3).map(|_| run_once(&mut connection)).collect();
        assert_eq!(more, [true, true, false]);
        let left: i64 = connection.query_row("select count(*) from honeyflow_dedupe", [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0);
    }

    /// RL-43, PB-30
    #[cfg(feature = "planted")]
    #[test]
    fn rl_43_a_retention_that_takes_parked_rows_is_found() {
        planted::plant(Some("PB-30"));
        let kept = keeps_unfinished_rows();
        planted::plant(None);
        assert!(!kept);
    }
}

//! Removes what has run out: marks of done events, signals, old history, versions that nobody names. Little by little, and only if there is some,
//! so that an idle database is not written to.

use rusqlite::{Connection, params};

use crate::{definition, write};

const HISTORY_MAX: i64 = 10_000;

pub(crate) fn run_once(connection: &mut Connection) {
    if let Err(error) = remove(connection) {
        // Not installed yet, or busy: the next time will do.
        tracing::debug!(%error, "old rows could not be removed");
    }
}

fn remove(connection: &Connection) -> rusqlite::Result<()> {
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
        return Ok(());
    }
    connection.execute(
        "delete from honeyflow_dedupe where (tenant, entity, entity_key, dedupe) in (
           select tenant, entity, entity_key, dedupe from honeyflow_dedupe where until_ms <= ?1 limit 1000)",
        [now_ms],
    )?;
    connection.execute("delete from honeyflow_signal where until_ms <= ?1", [now_ms])?;
    connection.execute(
        "delete from honeyflow_run where id in (
           select id from honeyflow_run where id <= (select max(id) from honeyflow_run) - ?1 limit 1000)",
        [HISTORY_MAX],
    )?;
    Ok(())
}

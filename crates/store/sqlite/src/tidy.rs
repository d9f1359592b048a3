//! Removes what has run out: marks of done events, signals, old history, versions that nobody names. Little by little, and only if there is some,
//! so that an idle database is not written to.

use rusqlite::{Connection, params};

use crate::{definition, planted, write};

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
    if planted::on("PB-30") {
        connection.execute("delete from honeyflow_parked where parked_at <= ?1", [now_ms])?;
    }
    connection.execute(
        "delete from honeyflow_run where id in (
           select id from honeyflow_run where id <= (select max(id) from honeyflow_run) - ?1 limit 1000)",
        [HISTORY_MAX],
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    /// Whether what is parked, waits or was begun is left when everything that can run out has.
    fn keeps_what_is_not_over() -> bool {
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
        assert_eq!(left("dedupe"), 0, "it did tidy up");
        ["parked", "checkpoint", "outbox"].iter().all(|table| left(table) == 1)
    }

    /// RL-18, F66
    #[test]
    fn rl_18_only_what_is_over_is_removed() {
        assert!(keeps_what_is_not_over());
    }

    /// RL-43, PB-30
    #[cfg(feature = "planted")]
    #[test]
    fn rl_43_a_retention_that_takes_parked_rows_is_found() {
        planted::plant(Some("PB-30"));
        let kept = keeps_what_is_not_over();
        planted::plant(None);
        assert!(!kept);
    }
}

//! Removes expired rows: marks of done events, signals, old history, and definition versions that nothing uses. It
//! works in small batches; the caller repeats soon while there is more.

use crate::{
    definition,
    driver::{Error, PgConnection},
    row, session,
};

const HISTORY_MAX: i64 = 10_000;
const ROWS_MAX: u64 = 1_000;

/// Removes one batch; returns whether there may be more.
pub(crate) async fn remove_batch(connection: &mut PgConnection) -> Result<bool, Error> {
    let counts = session::run(connection, text()).await?;
    let counts = counts.iter().flatten().map(|count| row::number(count, 0)).collect::<Result<Vec<u64>, _>>()?;
    Ok(counts.contains(&ROWS_MAX))
}

fn text() -> String {
    format!(
        "with gone as (delete from honeyflow_dedupe where ctid = any (array(
           select ctid from honeyflow_dedupe where until_at <= statement_timestamp() limit {ROWS_MAX} for update skip locked))
           returning 1) select count(*) from gone;
         with gone as (delete from honeyflow_signal where ctid = any (array(
           select ctid from honeyflow_signal where until_at <= statement_timestamp() limit {ROWS_MAX} for update skip locked))
           returning 1) select count(*) from gone;
         with gone as (delete from honeyflow_run where id in (
           select id from honeyflow_run where id <= (select max(id) from honeyflow_run) - {HISTORY_MAX} limit {ROWS_MAX})
           returning 1) select count(*) from gone;
         {}",
        definition::tidy_text()
    )
}

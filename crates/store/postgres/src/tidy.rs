//! Removes what has run out: marks of done events, signals, old history, versions that nobody names. Little by little.

use crate::definition;

const HISTORY_MAX: i64 = 10_000;
const ROWS_MAX: u32 = 1_000;

pub(crate) fn text() -> String {
    format!(
        "delete from honeyflow_dedupe where ctid = any (array(
           select ctid from honeyflow_dedupe where until_at <= statement_timestamp() limit {ROWS_MAX} for update skip locked));
         delete from honeyflow_signal where ctid = any (array(
           select ctid from honeyflow_signal where until_at <= statement_timestamp() limit {ROWS_MAX} for update skip locked));
         delete from honeyflow_run where id in (
           select id from honeyflow_run where id <= (select max(id) from honeyflow_run) - {HISTORY_MAX} limit {ROWS_MAX});
         {}",
        definition::tidy_text()
    )
}

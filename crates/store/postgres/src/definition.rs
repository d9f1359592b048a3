//! Definition versions of workflows: stored content keeps its version, other content gets the next one.
//!
//! The row with the highest version of a workflow always stays, so that no version is ever assigned twice.

use honeyflow_store::admin::{Definition, NewDefinition, Versions};

use crate::{
    driver::{self, Error, PgConnection, PgRow, Row},
    session,
};

/// The versions that a checkpoint or a parked event names.
const NAMED: &str =
    "select workflow, version from honeyflow_checkpoint union select workflow, version from honeyflow_parked";

/// A version is deleted 30 days after its last use. A node reports the versions it uses once a day, hence one day more.
const KEPT: &str = "31 days";

/// Stores definitions; the caller has begun a transaction. A concurrent call waits for the table lock and then finds
/// what the first call has stored.
pub(crate) async fn put(connection: &mut PgConnection, wanted: &[NewDefinition]) -> Result<Versions, Error> {
    session::run(connection, "lock table honeyflow_definition in share row exclusive mode".to_owned()).await?;
    let mut numbers = Vec::with_capacity(wanted.len());
    for NewDefinition { workflow, content } in wanted {
        let put = driver::query(
            "with stored as (select max(version) as version from honeyflow_definition
               where workflow = $1 and definition = $2)
             insert into honeyflow_definition(workflow, version, definition)
             select $1, coalesce((select version from stored),
               (select coalesce(max(version), 0) + 1 from honeyflow_definition where workflow = $1)), $2
             on conflict (workflow, version) do update set used_at = excluded.used_at returning version",
        );
        let rows = session::run_bound(connection, put.bind(&**workflow).bind(content)).await?;
        let number: i32 = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
        numbers.push(number.max(0).cast_unsigned());
    }
    let begun = format!(
        "update honeyflow_definition set used_at = clock_timestamp() where (workflow, version) in ({NAMED})
         returning workflow, version, definition, (extract(epoch from created_at) * 1000)::bigint"
    );
    let rows = session::run_bound(connection, driver::query(driver::AssertSqlSafe(begun))).await?;
    let mut begun: Vec<Definition> = rows.iter().map(definition).collect::<Result<_, _>>()?;
    let is_put = |found: &Definition| {
        wanted.iter().zip(&numbers).any(|(new, number)| new.workflow == found.workflow && *number == found.version)
    };
    begun.retain(|found| !is_put(found));
    begun.sort_by(|a, b| (&a.workflow, a.version).cmp(&(&b.workflow, b.version)));
    Ok(Versions { numbers, begun })
}

pub(crate) async fn list(connection: &mut PgConnection, workflow: Option<&str>) -> Result<Vec<Definition>, Error> {
    let list = driver::query(
        "select workflow, version, definition, (extract(epoch from created_at) * 1000)::bigint from honeyflow_definition
         where $1::text is null or workflow = $1 order by workflow, version",
    );
    session::run_bound(connection, list.bind(workflow)).await?.iter().map(definition).collect()
}

/// Returns the statement that deletes versions unused for [`KEPT`], except the newest version of each workflow.
pub(crate) fn tidy_text() -> String {
    format!(
        "delete from honeyflow_definition d where d.used_at <= statement_timestamp() - interval '{KEPT}'
           and (d.workflow, d.version) not in ({NAMED})
           and d.version < (select max(n.version) from honeyflow_definition n where n.workflow = d.workflow)"
    )
}

fn definition(row: &PgRow) -> Result<Definition, Error> {
    Ok(Definition {
        workflow: row.try_get::<&str, _>(0)?.into(),
        version: row.try_get::<i32, _>(1)?.max(0).cast_unsigned(),
        content: row.try_get(2)?,
        created_ms: row.try_get(3)?,
    })
}

//! Definition versions of workflows: stored content keeps its version, other content gets the next one.
//!
//! The row with the highest version of a workflow always stays, so that no version is ever assigned twice.

use honeyflow_store::admin::{Definition, NewDefinition, Versions};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::write;

/// A version is deleted 30 days after its last use. A node reports the versions it uses once a day, hence one day more.
const KEPT_MS: i64 = 31 * 24 * 60 * 60 * 1000;

/// The versions that a checkpoint or a parked event names.
const NAMED: &str =
    "select workflow, version from honeyflow_checkpoint union select workflow, version from honeyflow_parked";

/// Stores definitions. It runs in the writer's transaction, which excludes all other writes.
pub(crate) fn put(connection: &Connection, wanted: &[NewDefinition]) -> rusqlite::Result<Versions> {
    let now_ms = write::now_ms(connection)?;
    let mut find = connection.prepare_cached(
        "select version from honeyflow_definition where workflow = ?1 and definition = ?2 order by version desc limit 1",
    )?;
    let mut insert = connection.prepare_cached(
        "insert into honeyflow_definition(workflow, version, definition, created_at, used_at)
         values (?1, (select ifnull(max(version), 0) + 1 from honeyflow_definition where workflow = ?1), ?2, ?3, ?3)
         returning version",
    )?;
    let mut keep = connection
        .prepare_cached("update honeyflow_definition set used_at = ?3 where workflow = ?1 and version = ?2")?;
    let mut numbers = Vec::with_capacity(wanted.len());
    for NewDefinition { workflow, content } in wanted {
        let stored: Option<u32> = find.query_row(params![workflow, content], |row| row.get(0)).optional()?;
        numbers.push(match stored {
            Some(version) => {
                keep.execute(params![workflow, version, now_ms])?;
                version
            }
            None => insert.query_row(params![workflow, content, now_ms], |row| row.get(0))?,
        });
    }
    let mut begun: Vec<Definition> = connection
        .prepare_cached(&format!(
            "update honeyflow_definition set used_at = ?1 where (workflow, version) in ({NAMED})
             returning workflow, version, definition, created_at"
        ))?
        .query_map([now_ms], definition)?
        .collect::<Result<_, _>>()?;
    let is_put = |found: &Definition| {
        wanted.iter().zip(&numbers).any(|(new, number)| new.workflow == found.workflow && *number == found.version)
    };
    begun.retain(|found| !is_put(found));
    begun.sort_by(|a, b| (&a.workflow, a.version).cmp(&(&b.workflow, b.version)));
    Ok(Versions { numbers, begun })
}

pub(crate) fn list(connection: &Connection, workflow: Option<&str>) -> rusqlite::Result<Vec<Definition>> {
    connection
        .prepare_cached(
            "select workflow, version, definition, created_at from honeyflow_definition
             where ?1 is null or workflow = ?1 order by workflow, version",
        )?
        .query_map([workflow], definition)?
        .collect()
}

/// Deletes versions unused for [`KEPT_MS`], except the newest version of each workflow.
pub(crate) fn tidy(connection: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(&format!(
            "delete from honeyflow_definition where used_at <= ?1 and (workflow, version) not in ({NAMED})
               and version < (select max(version) from honeyflow_definition as d
                              where d.workflow = honeyflow_definition.workflow)"
        ))?
        .execute([now_ms - KEPT_MS])?;
    Ok(())
}

/// Returns whether a version may be deleted. The table has few rows, so this is cheap.
pub(crate) fn is_stale(connection: &Connection, now_ms: i64) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(
            "select 1 from honeyflow_definition where used_at <= ?1
               and version < (select max(version) from honeyflow_definition as d
                              where d.workflow = honeyflow_definition.workflow)",
        )?
        .exists([now_ms - KEPT_MS])
}

fn definition(row: &Row<'_>) -> rusqlite::Result<Definition> {
    Ok(Definition { workflow: row.get(0)?, version: row.get(1)?, content: row.get(2)?, created_ms: row.get(3)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&crate::schema::ddl()).unwrap();
        connection
    }

    fn versions(connection: &Connection) -> Vec<u32> {
        list(connection, None).unwrap().into_iter().map(|definition| definition.version).collect()
    }

    fn put_one(connection: &Connection, content: &str) -> u32 {
        let new = NewDefinition { workflow: "book".into(), content: content.to_owned() };
        put(connection, &[new]).unwrap().numbers[0]
    }

    fn tidy_after(connection: &Connection, days: i64) -> Vec<u32> {
        let now_ms = write::now_ms(connection).unwrap() + days * 24 * 60 * 60 * 1000;
        assert!(is_stale(connection, now_ms).unwrap() || days < 31);
        tidy(connection, now_ms).unwrap();
        versions(connection)
    }

    #[test]
    fn wf_20_a_version_outlives_its_last_mention_by_thirty_days() {
        let connection = database();
        for content in ["a", "b", "c"] {
            put_one(&connection, content);
        }
        connection
            .execute_batch(
                "insert into honeyflow_checkpoint(tenant, entity, entity_key, workflow, phase, step, instance, version,
                   covers, attempt, stamp, outcome, created_at) values ('', 'book', '1', 'book', 0, 'call', 0, 1, '[1]', 1, 1, 'done', 0)",
            )
            .unwrap();
        assert_eq!(tidy_after(&connection, 30), [1, 2, 3]);
        assert_eq!(tidy_after(&connection, 32), [1, 3], "a named version and the newest one stay");
        put_one(&connection, "c");
        connection.execute_batch("delete from honeyflow_checkpoint").unwrap();
        assert_eq!(tidy_after(&connection, 30), [1, 3], "its last use was just now");
        assert_eq!(tidy_after(&connection, 32), [3]);
        assert_eq!(put_one(&connection, "a"), 4, "no version is assigned twice");
    }

    #[test]
    fn wf_20_a_parked_event_keeps_its_version() {
        let connection = database();
        put_one(&connection, "a");
        put_one(&connection, "b");
        connection
            .execute_batch(
                "insert into honeyflow_parked(tenant, entity, entity_key, workflow, priority, version, attempts, class,
                   code, message, parked_at) values ('', 'book', '1', 'book', 4, 1, 5, 'reject', 'bad', 'bad', 0)",
            )
            .unwrap();
        assert_eq!(tidy_after(&connection, 400), [1, 2]);
    }
}

//! Removes everything that Honeyflow created in a database, in one transaction: triggers on the application's
//! tables, tables, and functions.
//! It refuses while a node is alive in any hive of the database, whose tables would vanish under it.

use honeyflow_hive::contract::HIVE_TIME_START_MS;
use honeyflow_runtime::Failure;

use crate::{
    capture::TRIGGERS_OF_OURS,
    codes,
    driver::{Error, PgConnection},
    row, schema, session,
};

/// How long to wait for the application's transactions, behind which its next statements wait too.
const LOCK_WAIT_MS: u32 = 2_000;

/// The statements that drop what is there, one per row, after those of the triggers: tables first, because a trigger needs the
/// function.
const OURS: &str = "
    select format('DROP TABLE %I;', c.relname) from (
      select c.relname from pg_class c where c.relkind in ('r', 'p') and pg_table_is_visible(c.oid)
        and c.relname = any('{TABLES}'::name[]) order by 1) c
    union all
    select format('DROP FUNCTION %s;', p.oid::regprocedure) from pg_proc p
      where (p.proname = 'honeyflow_place' or p.proname like 'honeyflow\\_capture\\_%') and pg_function_is_visible(p.oid)";

/// The tables of a hive in this database. Others may begin with `hive_`, too: they are the application's.
const HIVE_TABLES: &[&str] =
    &["hive_event", "hive_lease", "hive_limit", "hive_meta", "hive_node", "hive_share", "hive_view"];

fn ours() -> String {
    let tables: Vec<&str> = schema::tables().chain(HIVE_TABLES.iter().copied()).collect();
    OURS.replace("{TABLES}", &format!("{{{}}}", tables.join(",")))
}

/// Why nothing was removed.
pub(crate) enum Refusal {
    Alive { node: String, ends_seconds: u64 },
    Events(u64),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        match refusal {
            Refusal::Alive { node, ends_seconds } => Failure::reject(
                codes::ANOTHER_NODE,
                format!(
                    "node {node} is running on this database: stop it first; if it was killed, try again in {ends_seconds} s"
                ),
            ),
            Refusal::Events(left) => Failure::reject(
                codes::OUTBOX_NOT_EMPTY,
                format!(
                    "{left} events are left in the outbox; let a node finish them, or uninstall with --force and lose them"
                ),
            ),
        }
    }
}

/// Returns the statements, one per line.
pub(crate) async fn plan(connection: &mut PgConnection) -> Result<String, Error> {
    let mut lines = String::new();
    for row in session::run(connection, format!("{TRIGGERS_OF_OURS}; {}", ours())).await?.iter().flatten() {
        lines.push_str(row::text(row, 0)?.unwrap_or_default());
        lines.push('\n');
    }
    Ok(lines)
}

/// Drops everything. Without `force` it refuses while events are left in the outbox. After an error the transaction is
/// still open.
pub(crate) async fn uninstall(connection: &mut PgConnection, force: bool) -> Result<Option<Refusal>, Error> {
    let begin = format!("begin isolation level read committed; set local lock_timeout = {LOCK_WAIT_MS}");
    session::run(connection, begin).await?;
    // Before the outbox is locked: a transaction that has changed a row and now waits for the outbox would wait for us,
    // and we for it.
    let triggers = session::run(connection, TRIGGERS_OF_OURS.to_owned()).await?;
    let triggers = triggers.iter().flatten().map(|row| Ok(row::text(row, 0)?.unwrap_or_default().to_owned()));
    let triggers: Vec<String> = triggers.collect::<Result<_, Error>>()?;
    session::run(connection, triggers.join("\n")).await?;
    let refusal = refusal(connection, force).await?;
    let end = if refusal.is_some() { "rollback".to_owned() } else { format!("{}commit", plan(connection).await?) };
    session::run(connection, end).await?;
    Ok(refusal)
}

async fn refusal(connection: &mut PgConnection, force: bool) -> Result<Option<Refusal>, Error> {
    if exists(connection, "hive_node").await? {
        // A heartbeat waits for this lock, so no node joins or renews its row meanwhile.
        session::run(connection, "lock table hive_node in share row exclusive mode".to_owned()).await?;
        if let Some(alive) = first_alive(connection).await? {
            return Ok(Some(alive));
        }
    }
    if force || !exists(connection, "honeyflow_outbox").await? {
        return Ok(None);
    }
    session::run(connection, "lock table honeyflow_outbox in access exclusive mode".to_owned()).await?;
    let answers = session::run(connection, "select count(*) from honeyflow_outbox".to_owned()).await?;
    let left = answers.first().and_then(|rows| rows.first()).map_or(Ok(0), |row| row::number(row, 0))?;
    Ok((left > 0).then_some(Refusal::Events(left)))
}

async fn first_alive(connection: &mut PgConnection) -> Result<Option<Refusal>, Error> {
    let now = format!("floor(extract(epoch from clock_timestamp()) * 1000)::bigint - {HIVE_TIME_START_MS}");
    let alive = format!(
        "select name, (expires_ms - ({now})) / 1000 + 1 from hive_node where expires_ms > {now} order by expires_ms desc limit 1"
    );
    let answers = session::run(connection, alive).await?;
    let Some(row) = answers.first().and_then(|rows| rows.first()) else { return Ok(None) };
    let node = row::text(row, 0)?.unwrap_or_default().to_owned();
    Ok(Some(Refusal::Alive { node, ends_seconds: row::number(row, 1)? }))
}

async fn exists(connection: &mut PgConnection, table: &str) -> Result<bool, Error> {
    let answers = session::run(connection, format!("select 1 where to_regclass('{table}') is not null")).await?;
    Ok(answers.first().is_some_and(|rows| !rows.is_empty()))
}

//! Limits: their definitions, buckets and slots. The SQL statements compute the same as [`Bucket`]. Each answer is
//! computed by `Bucket` from the row as it was before, and must agree with what the statement wrote.

mod bucket;
mod draw;
mod exact;
mod set;
mod slots;

use honeyflow_hive::{
    bucket::{Bucket, Reservations},
    contract::limit::{BucketRow, Definition, Key, Limit, Reply, Rule},
};
use honeyflow_runtime::Failure;

use crate::{
    codes,
    driver::Error,
    hive::{Hive, NOW},
    literal::{number, text},
    row::Line,
    script::{Answers, Script},
};

pub(crate) use draw::read_draws;
pub(crate) use exact::read_admission;
pub(crate) use set::set;
pub(crate) use slots::read_slots;

/// The columns of a definition. In the row of a bucket they are the rule under which it was last computed.
const RULE: [&str; 5] = ["version", "rate_u", "period_ms", "burst_u", "effective_ms"];
/// The columns of a bucket's counts.
const COUNTS: [&str; 3] = ["pool_u", "pool_ms", "issued_u"];
const BOOKED: [&str; 7] = ["slot", "booked_u", "next_u", "level_u", "asked_u", "weight", "cut_weight"];

impl Hive {
    pub fn limits(&self) -> Script {
        let (hive, rule) = (self.name(), RULE.join(", "));
        Script::read().ask(format_args!("select {NOW}, (select limits from hive_view where hive = {hive})")).ask(
            format_args!(
                "select {rule}, name, limit_key from hive_limit where hive = {hive} and limit_key in ('', 'next')
                 order by name, limit_key"
            ),
        )
    }

    pub fn ledger(&self, limit: &str, max: u32) -> Script {
        let (hive, limit) = (self.name(), text(limit));
        Script::read().ask(format_args!(
            "select limit_key, version, pool_u, pool_ms, {},
               case greatest({NOW} / 1000 - slot, 0) when 0 then booked_u when 1 then next_u else 0 end from hive_limit
             where hive = {hive} and name = {limit} and length(limit_key) = 32
             order by issued_u desc, limit_key limit {max}",
            bucket::issued("issued_u", &bucket::flow_u("", "pool_ms", NOW))
        ))
    }

    /// Deletes idle buckets, with the same condition as [`Bucket::is_idle`].
    pub fn sweep_buckets(&self, holds: &str, idle_ms: u64, rows_max: u32) -> String {
        let (hive, t, idle_ms) = (self.name(), crate::hive::clock(), number(idle_ms));
        format!(
            "with {t}, idle as materialized (select l.name, l.limit_key from hive_limit l, t
               where l.hive = {hive} and {holds} and length(l.limit_key) = 32 and case
                 when l.rate_u = 0 and l.effective_ms > 0 then l.effective_ms <= t.now
                 when l.rate_u = 0 then l.issued_u = 0
                 else t.now - l.pool_ms >= {idle_ms} and (l.pool_u >= l.burst_u
                   or (t.now - l.pool_ms) / greatest(l.period_ms, 1) > (l.burst_u - l.pool_u - 1) / l.rate_u)
               end limit {rows_max} for update of l skip locked),
             swept as (delete from hive_limit l using idle i
               where l.hive = {hive} and l.name = i.name and l.limit_key = i.limit_key returning 1)
             select count(*) from swept"
        )
    }

    /// Deletes the rows of nodes that hold no slots. It waits `idle_ms` after the node's last request, so that no
    /// earlier request can still arrive.
    pub fn sweep_shares(&self, holds: &str, idle_ms: u64, rows_max: u32) -> String {
        let (hive, t, idle_ms) = (self.name(), crate::hive::clock(), number(idle_ms));
        format!(
            "with {t}, idle as materialized (select s.name, s.limit_key, s.node from hive_share s, t
               where s.hive = {hive} and {holds} and s.has_u = 0 and s.until_ms <= t.now - {idle_ms}
               limit {rows_max} for update of s skip locked),
             swept as (delete from hive_share s using idle i
               where s.hive = {hive} and s.name = i.name and s.limit_key = i.limit_key and s.node = i.node returning 1)
             select count(*) from swept"
        )
    }
}

pub(crate) fn limits(answers: &Answers) -> Result<Reply, Error> {
    let line = answers.line(0)?;
    let (hive_ms, version) = (line.number(0)?, line.number_or_null(1)?.unwrap_or(0));
    let mut limits: Vec<Limit> = Vec::new();
    for line in answers.lines(1) {
        let (definition, name) = (definition(line, 0)?, line.text(5)?);
        match limits.last_mut().filter(|limit| &*limit.name == name) {
            None => limits.push(Limit { name: name.into(), now: definition, next: None }),
            Some(limit) if definition.effective_ms > hive_ms => limit.next = Some(definition),
            Some(limit) => limit.now = definition,
        }
    }
    Ok(Reply::Limits { hive_ms, version, limits })
}

pub(crate) fn ledger(answers: &Answers) -> Result<Reply, Error> {
    let row = |line: Line<'_>| {
        let key = line.text(0)?;
        let key = u128::from_str_radix(key, 16).map_err(|error| Error::Decode(error.into()))?;
        Ok(BucketRow {
            key: Key(key),
            version: line.number(1)?,
            pool_u: line.number(2)?,
            pool_ms: line.number(3)?,
            issued_u: line.number(4)?,
            booked_u: line.number(5)?,
        })
    };
    Ok(Reply::Ledger(answers.lines(0).map(row).collect::<Result<_, Error>>()?))
}

/// Reads a definition from the columns of [`RULE`], beginning at column `at`.
fn definition(line: Line<'_>, at: usize) -> Result<Definition, Error> {
    Ok(Definition {
        version: line.number(at)?,
        rule: Rule { rate_u: line.number(at + 1)?, period_ms: line.number(at + 2)?, burst_u: line.number(at + 3)? },
        effective_ms: line.number(at + 4)?,
    })
}

/// The columns of bucket `b` before the change, each as `b_…`.
fn columns_before() -> String {
    let columns = RULE.into_iter().chain(COUNTS).chain(BOOKED);
    columns.map(|column| format!("b.{column} as b_{column}")).collect::<Vec<_>>().join(", ")
}

/// The names that [`columns_before`] gives to the columns.
fn column_names_before() -> String {
    let columns = RULE.into_iter().chain(COUNTS).chain(BOOKED);
    columns.map(|column| format!("b_{column}")).collect::<Vec<_>>().join(", ")
}

/// Reads a bucket from the columns of [`columns_before`], beginning at column `at`.
fn read_bucket_before(line: Line<'_>, at: usize) -> Result<Bucket, Error> {
    let Definition { version, rule, effective_ms: reset_ms } = definition(line, at)?;
    let (pool_u, pool_ms, issued_u) = (line.number(at + 5)?, line.number(at + 6)?, line.number(at + 7)?);
    let booked = Reservations {
        second: line.number(at + 8)?,
        now_u: line.number(at + 9)?,
        next_u: line.number(at + 10)?,
        level_u: line.number(at + 11)?,
        asked_u: line.number(at + 12)?,
        weight: line.number(at + 13)?,
        cut_weight: line.number(at + 14)?,
    };
    Ok(Bucket { version, rule, pool_u, pool_ms, issued_u, reset_ms, reservations: booked })
}

/// The server has written another result than [`Bucket`] computes: no permit is given then.
fn disagreement(limit: &str) -> Failure {
    let said = format!(
        "limit {limit}: the database computes another result than this program; do all nodes run the same version?"
    );
    Failure::retry(codes::LIMIT_DISAGREED, said)
}

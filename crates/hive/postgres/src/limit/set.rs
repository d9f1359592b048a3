//! Sets the definition of a limit: the one in force, and the next one.

use honeyflow_hive::contract::limit::{Reply, Rule};

use super::RULE;
use crate::{
    driver::Error,
    hive::{Hive, clock},
    literal::{number, number_or_null, text},
    script::{Answers, Script},
};

impl Hive {
    /// Locks the view first, so that definitions are set one after the other and each gets its own version.
    pub fn set(&self, limit: &str, was: Option<u64>, rule: &Rule, after_ms: u64) -> Script {
        let (hive, t, limit, columns) = (self.name(), clock(), text(limit), RULE.join(", "));
        let (was, after_ms) = (number_or_null(was), number(after_ms));
        let rule = [rule.rate_u, rule.period_ms, rule.burst_u].map(number).join(", ");
        let replaced = RULE.map(|column| format!("{column} = excluded.{column}")).join(", ");
        self.change().run(self.make_view()).run(self.lock_view()).ask(format_args!(
            "with {t},
             newest as materialized (select {columns} from hive_limit where hive = {hive} and name = {limit}
               and limit_key in ('', 'next') order by limit_key desc limit 1),
             judged as materialized (select case when n.version is distinct from {was} then 'raced'
                 when n.effective_ms > t.now then 'pending' end as why, n.effective_ms, n.version is not null as changes,
                 (select coalesce(max(beat_ms), 0) from hive_node where hive = {hive}) as slowest_ms
               from t left join newest n on true),
             bump as (update hive_view set limits = limits + 1 from judged j where hive = {hive} and j.why is null
               returning limits),
             made as (select b.limits as version,
                 t.now + case when j.changes then greatest({after_ms}, 2 * j.slowest_ms) else 0 end as effective_ms
               from bump b, judged j, t),
             kept as (insert into hive_limit(hive, name, limit_key, {columns})
               select {hive}, {limit}, '', n.* from newest n, made
               on conflict (hive, name, limit_key) do update set {replaced}),
             put as (insert into hive_limit(hive, name, limit_key, {columns})
               select {hive}, {limit}, case when j.changes then 'next' else '' end, m.version, {rule}, m.effective_ms
               from made m, judged j
               on conflict (hive, name, limit_key) do update set {replaced})
             select j.why, j.effective_ms, m.version, m.effective_ms from judged j left join made m on true"
        ))
    }
}

pub(crate) fn set(answers: &Answers) -> Result<Reply, Error> {
    let line = answers.line(0)?;
    Ok(match line.text_or_null(0)? {
        Some("pending") => Reply::Pending { effective_ms: line.number(1)? },
        Some(_) => Reply::Raced,
        None => Reply::Set { version: line.number(2)?, effective_ms: line.number(3)? },
    })
}

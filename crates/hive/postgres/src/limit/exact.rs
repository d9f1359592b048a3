//! Exact takes: one decision over one bucket or several, which takes from all of them or from none.

use honeyflow_event::Name;
use honeyflow_hive::{
    bucket::Bucket,
    contract::limit::{Denial, DeniedTake, ExactTake, Key, MICRO, Reply},
};

use super::{
    bucket::{self, BucketRef, Cap, issued, join_reservations, rounds, row},
    column_names_before, columns_before, definition, disagreement, read_bucket_before,
};
use crate::{
    hive::{Hive, NOW, clock},
    literal::{number, number_or_null, rows},
    outcome::Stop,
    script::{Answers, Script},
};

fn bucket_refs(takes: &[ExactTake]) -> Vec<BucketRef<'_>> {
    bucket::bucket_refs(takes.iter().map(|take| (&take.limit, take.key)))
}

impl Hive {
    pub fn exact(&self, takes: &[ExactTake], peek: bool) -> Script {
        let (hive, t, defined, counted) = (self.name(), clock(), self.defined(), self.join_level(Cap::Burst));
        let all = bucket_refs(takes);
        let script = if peek { Script::read() } else { self.change() };
        let script = script.ask(format_args!("select {NOW}"));
        if takes.is_empty() {
            return script;
        }
        let script = if peek {
            script
        } else {
            script.run(self.make_buckets(&t, &all, Cap::Burst)).run(self.lock_buckets(&all))
        };
        let asked = rows(all.iter().map(|place| {
            let ExactTake { cost, window, .. } = &takes[place.n];
            let (start_ms, end_ms) = window.map(|window| (window.start_ms, window.end_ms)).unzip();
            let cost_u = number(cost.saturating_mul(MICRO));
            let (start_ms, end_ms, none) = (number_or_null(start_ms), number_or_null(end_ms), number_or_null(None));
            format!("{}, {cost_u}, {start_ms}, {end_ms}, {none}, {none}", row(place))
        }));
        let (as_it_was, booked) = (columns_before(), join_reservations());
        // A window that begins after the last one has ended starts with a full bucket. Outside of its window a take is
        // denied.
        let judged = format!(
            "with {t}, asked(n, name, limit_key, cost_u, start_ms, end_ms, book_u, heft) as (values {asked}), {defined},
             judged as materialized (select a.n, a.name, a.limit_key, t.now, d.version, d.rate_u, d.period_ms, d.burst_u,
                 d.effective_ms, {as_it_was}, z.pool, z.reset_ms, c.ms, o.booked + c.booked as flowed, k.*,
                 sum(a.cost_u) over (partition by a.name, a.limit_key order by a.n) as up_to_u,
                 d.version is null or a.cost_u > d.burst_u
                   or a.end_ms is not null and not (a.start_ms <= t.now and t.now < a.end_ms)
                   or z.pool < sum(a.cost_u) over (partition by a.name, a.limit_key order by a.n) as denied
               from asked a left join defined d using (n) cross join t {counted} {booked}
               cross join lateral (select
                 case when a.start_ms >= b.effective_ms and a.start_ms <= t.now and t.now < a.end_ms then d.burst_u
                   else c.pool end as pool,
                 case when a.start_ms >= b.effective_ms then a.end_ms else b.effective_ms end as reset_ms offset 0) z)"
        );
        let (was, issued) = (column_names_before(), issued("l.issued_u", "g.up_to_u + g.flowed"));
        let columns = format!(
            "n, now, version, rate_u, period_ms, burst_u, effective_ms, (select bool_or(denied) from judged), {was}"
        );
        if peek {
            return script.ask(format_args!("{judged} select {columns} from judged order by n"));
        }
        script.ask(format_args!(
            "{judged},
             saved as (update hive_limit l set version = g.version, rate_u = g.rate_u, period_ms = g.period_ms,
                 burst_u = g.burst_u, effective_ms = g.reset_ms, pool_u = (g.pool - g.up_to_u)::bigint, pool_ms = g.ms,
                 issued_u = ({issued})::bigint, slot = g.slot, booked_u = g.booked_u, next_u = g.next_u,
                 level_u = g.level_u, asked_u = g.asked_u, weight = g.weight, cut_weight = g.cut_weight
               from (select distinct on (name, limit_key) * from judged order by name, limit_key, n desc) g
               where l.hive = {hive} and l.name = g.name and l.limit_key = g.limit_key
                 and not (select bool_or(denied) from judged))
             select {columns} from judged order by n"
        ))
    }

    pub fn refund(&self, takes: &[ExactTake]) -> Script {
        let hive = self.name();
        let all = bucket_refs(takes);
        let mut script = self.change();
        if all.is_empty() {
            return script;
        }
        script = script.run(self.lock_buckets(&all));
        for round in rounds(all) {
            let asked = rows(round.iter().map(|place| {
                let ExactTake { cost, window, .. } = &takes[place.n];
                let end_ms = number_or_null(window.map(|window| window.end_ms));
                format!("{}, {}, {end_ms}", row(place), number(cost.saturating_mul(MICRO)))
            }));
            let back = "least(a.cost_u, greatest(l.burst_u - l.pool_u, 0), l.issued_u)";
            script = script.run(format_args!(
                "update hive_limit l set pool_u = l.pool_u + {back}, issued_u = l.issued_u - {back}
                 from (values {asked}) a(n, name, limit_key, cost_u, end_ms)
                 where l.hive = {hive} and l.name = a.name and l.limit_key = a.limit_key
                   and (a.end_ms is null or a.end_ms = l.effective_ms)"
            ));
        }
        script
    }
}

pub(crate) fn read_admission(answers: &Answers, takes: &[ExactTake], peek: bool) -> Result<Reply, Stop> {
    let hive_ms = answers.line(0)?.number(0)?;
    let mut asked: Vec<(&Name, Key, Bucket)> = Vec::new();
    let mut left = Vec::new();
    let mut denied = false;
    for (at, (line, ExactTake { limit, key, cost, window })) in answers.lines(1).zip(takes).enumerate() {
        if line.text_or_null(2)?.is_none() {
            return Ok(Reply::Denied(DeniedTake { at, version: 0, why: Denial::Undefined }));
        }
        let (definition, now_ms) = (definition(line, 2)?, line.number(1)?);
        denied = line.flag(7)?;
        let place = match asked.iter().position(|(name, of, _)| *name == limit && of == key) {
            Some(place) => place,
            None => {
                asked.push((limit, *key, read_bucket_before(line, 8)?));
                asked.len() - 1
            }
        };
        let bucket = &mut asked[place].2;
        if let Err(why) = bucket.check_take(&definition, *cost, *window, now_ms) {
            return Ok(Reply::Denied(DeniedTake { at, version: definition.version, why }));
        }
        if !peek {
            bucket.take(*cost);
        }
        left.push(bucket.left(now_ms));
    }
    if denied && !peek {
        return Err(disagreement(&takes[0].limit).into());
    }
    Ok(Reply::Admitted { hive_ms, left })
}

//! Batches out of a pool.

use honeyflow_hive::contract::limit::{Draw, MICRO, Reply, Undefined};

use super::{
    bucket::{self, Cap, Place, rounds, row},
    bucket_as_it_was, definition, disagreed,
};
use crate::{
    hive::{Hive, NOW, clock},
    literal::{number, rows},
    outcome::Stop,
    script::{Answers, Script},
};

fn places(draws: &[Draw]) -> Vec<Place<'_>> {
    bucket::places(draws.iter().map(|draw| (&draw.limit, draw.key)))
}

impl Hive {
    pub fn draw(&self, draws: &[Draw]) -> Script {
        let script = Script::fleeting(std::time::Duration::from_secs(1)).ask(format_args!("select {NOW}"));
        if draws.is_empty() {
            return script;
        }
        let (hive, t, defined, counted) = (self.name(), clock(), self.defined(), self.counted(Cap::Half));
        let all = places(draws);
        let mut script = script.run(self.make_buckets(&t, &all, Cap::Half)).run(self.lock_buckets(&all));
        for round in rounds(all) {
            let asked = rows(round.iter().map(|place| {
                let Draw { want, need, .. } = &draws[place.n];
                format!("{}, {}, {}", row(place), number(*want), number(*need))
            }));
            script = script.ask(format_args!(
                "with {t}, asked(n, name, limit_key, want, need) as (values {asked}), {defined},
                 given as materialized (select a.n, a.name, a.limit_key, d.version, d.rate_u, d.period_ms, d.burst_u,
                     d.effective_ms, b.version as b_version, b.rate_u as b_rate_u, b.period_ms as b_period_ms,
                     b.burst_u as b_burst_u, b.effective_ms as b_effective_ms, b.pool_u as b_pool_u, b.pool_ms as b_pool_ms,
                     b.issued_u as b_issued_u, c.pool, c.ms, t.now,
                     case when a.need <= least(a.want, c.pool / 2 / {MICRO}) then least(a.want, c.pool / 2 / {MICRO})
                       when a.need <= c.pool / {MICRO} then a.need else 0 end as granted
                   from asked a join defined d using (n) cross join t {counted}),
                 saved as (update hive_limit l set version = g.version, rate_u = g.rate_u, period_ms = g.period_ms,
                     burst_u = g.burst_u, pool_u = g.pool - g.granted * {MICRO}, pool_ms = g.ms,
                     issued_u = l.issued_u + g.granted * {MICRO}
                   from given g where l.hive = {hive} and l.name = g.name and l.limit_key = g.limit_key)
                 select n, granted, now, version, rate_u, period_ms, burst_u, effective_ms, b_version, b_rate_u, b_period_ms,
                   b_burst_u, b_effective_ms, b_pool_u, b_pool_ms, b_issued_u from given"
            ));
        }
        script
    }
}

pub(crate) fn drawn(answers: &Answers, draws: &[Draw]) -> Result<Reply, Stop> {
    let mut drawn = vec![Err(Undefined); draws.len()];
    for line in (1..=rounds(places(draws)).len()).flat_map(|round| answers.lines(round)) {
        let n = usize::try_from(line.number(0)?).unwrap_or(usize::MAX);
        let (Some(draw), Some(slot)) = (draws.get(n), drawn.get_mut(n)) else { continue };
        let mut bucket = bucket_as_it_was(line, 8)?;
        let given = bucket.draw(&definition(line, 3)?, draw.want, draw.need, line.number(2)?);
        if given.granted != line.number(1)? {
            return Err(disagreed(&draw.limit).into());
        }
        *slot = Ok(given);
    }
    Ok(Reply::Drawn { hive_ms: answers.line(0)?.number(0)?, drawn })
}

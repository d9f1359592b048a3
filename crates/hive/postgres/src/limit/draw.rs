//! Draws: nodes take batches of permits from a pool, and reserve permits of the next second.

use honeyflow_hive::contract::limit::{Draw, MICRO, Reply, UndefinedLimit};

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

fn bucket_refs(draws: &[Draw]) -> Vec<BucketRef<'_>> {
    bucket::bucket_refs(draws.iter().map(|draw| (&draw.limit, draw.key)))
}

impl Hive {
    pub fn draw(&self, draws: &[Draw]) -> Script {
        // If a crash loses a batch, at most one burst more is given. A lost reservation would be many, so it is
        // durable.
        let books = draws.iter().any(|draw| draw.reserve.is_some());
        let script = if books { self.change() } else { Script::unsynced_change(std::time::Duration::from_secs(1)) };
        let script = script.ask(format_args!("select {NOW}"));
        if draws.is_empty() {
            return script;
        }
        let (hive, t, defined, counted) = (self.name(), clock(), self.defined(), self.join_level(Cap::Half));
        let (booked, as_it_was, was) = (join_reservations(), columns_before(), column_names_before());
        let issued = issued("l.issued_u", &format!("g.granted * {MICRO} + g.flowed"));
        let all = bucket_refs(draws);
        let mut script = script.run(self.make_buckets(&t, &all, Cap::Half)).run(self.lock_buckets(&all));
        for round in rounds(all) {
            let asked = rows(round.iter().map(|place| {
                let Draw { want, need, reserve: book, .. } = &draws[place.n];
                let book_u = number_or_null(book.map(|book| book.want.saturating_mul(MICRO)));
                let heft = number_or_null(book.map(|book| book.weight.max(1)));
                format!("{}, {}, {}, {book_u}, {heft}", row(place), number(*want), number(*need))
            }));
            script = script.ask(format_args!(
                "with {t}, asked(n, name, limit_key, want, need, book_u, heft) as (values {asked}), {defined},
                 given as materialized (select a.n, a.name, a.limit_key, d.version, d.rate_u, d.period_ms, d.burst_u,
                     d.effective_ms, {as_it_was}, c.pool, c.ms, o.booked + c.booked as flowed, t.now, k.*,
                     case when a.need <= least(a.want, c.pool / 2 / {MICRO}) then least(a.want, c.pool / 2 / {MICRO})
                       when a.need <= c.pool / {MICRO} then a.need else 0 end as granted
                   from asked a join defined d using (n) cross join t {counted} {booked}),
                 saved as (update hive_limit l set version = g.version, rate_u = g.rate_u, period_ms = g.period_ms,
                     burst_u = g.burst_u, pool_u = g.pool - g.granted * {MICRO}, pool_ms = g.ms,
                     issued_u = {issued}, slot = g.slot, booked_u = g.booked_u,
                     next_u = g.next_u, level_u = g.level_u, asked_u = g.asked_u, weight = g.weight,
                     cut_weight = g.cut_weight
                   from given g where l.hive = {hive} and l.name = g.name and l.limit_key = g.limit_key)
                 select n, granted, now, permits, version, rate_u, period_ms, burst_u, effective_ms, {was} from given"
            ));
        }
        script
    }
}

pub(crate) fn read_draws(answers: &Answers, draws: &[Draw]) -> Result<Reply, Stop> {
    let mut drawn = vec![Err(UndefinedLimit); draws.len()];
    for line in (1..=rounds(bucket_refs(draws)).len()).flat_map(|round| answers.lines(round)) {
        let n = usize::try_from(line.number(0)?).unwrap_or(usize::MAX);
        let (Some(draw), Some(slot)) = (draws.get(n), drawn.get_mut(n)) else { continue };
        let mut bucket = read_bucket_before(line, 9)?;
        let given = bucket.draw_and_reserve(&definition(line, 4)?, draw, line.number(2)?);
        if given.granted != line.number(1)? || given.reserved != line.number(3)? {
            return Err(disagreement(&draw.limit).into());
        }
        *slot = Ok(given);
    }
    Ok(Reply::Drawn { hive_ms: answers.line(0)?.number(0)?, drawn })
}

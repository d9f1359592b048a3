//! Slots of a concurrency limit: a row per node says how many it has; the bucket's row counts those of all nodes.

use honeyflow_hive::{
    NodeId,
    contract::limit::{MICRO, Reply, Slots, UndefinedLimit},
};

use super::{
    bucket::{self, BucketRef, Cap, rounds, row},
    column_names_before, columns_before, definition, disagreement, read_bucket_before,
};
use crate::{
    hive::{Hive, clock},
    literal::{node as id_of, number, rows},
    outcome::Stop,
    script::{Answers, Script},
};

fn bucket_refs(asks: &[Slots]) -> Vec<BucketRef<'_>> {
    bucket::bucket_refs(asks.iter().map(|ask| (&ask.limit, ask.key)))
}

impl Hive {
    /// Locks the node's row, so that no other node removes it meanwhile: slots of a removed node would never be given
    /// back.
    pub fn slots(&self, node: NodeId, asks: &[Slots]) -> Script {
        let (hive, t, defined, node) = (self.name(), clock(), self.defined(), id_of(node));
        let script = self
            .change()
            .ask(format_args!("select 1 from hive_node where hive = {hive} and id = {node} for key share"));
        if asks.is_empty() {
            return script;
        }
        let (all, as_it_was, was) = (bucket_refs(asks), columns_before(), column_names_before());
        let mut script = script.run(self.make_buckets(&t, &all, Cap::Nothing)).run(self.lock_buckets(&all));
        for round in rounds(all) {
            let asked = rows(round.iter().map(|place| {
                let Slots { seq, wants, .. } = &asks[place.n];
                format!("{}, {}, {}", row(place), number(*seq), number(*wants))
            }));
            script = script.ask(format_args!(
                "with {t}, asked(n, name, limit_key, seq, wants) as (values {asked}), {defined},
                 held as materialized (select a.n, a.name, a.limit_key, d.version, d.rate_u, d.period_ms, d.burst_u,
                     d.effective_ms, {as_it_was}, h.has, h.wants, greatest(a.seq, coalesce(s.seq, 0)) as seq,
                     case when h.wants <= h.has then h.wants
                       else h.has + least(greatest(h.most_u - b.issued_u, 0) / {MICRO}, h.wants - h.has) end as now_has,
                     h.most_u
                   from asked a join defined d using (n)
                   join hive_limit b on b.hive = {hive} and b.name = a.name and b.limit_key = a.limit_key
                   left join hive_share s on s.hive = {hive} and s.name = a.name and s.limit_key = a.limit_key and s.node = {node}
                   cross join lateral (select coalesce(s.has_u, 0) / {MICRO} as has,
                     case when a.seq > coalesce(s.seq, 0) then a.wants else coalesce(s.has_u, 0) / {MICRO} end as wants,
                     case when d.rate_u > 0 and b.rate_u = 0 then b.burst_u else d.burst_u end as most_u offset 0) h
                   where exists (select 1 from hive_node where hive = {hive} and id = {node})),
                 saved as (update hive_limit l set version = g.version, rate_u = 0, period_ms = 1,
                     burst_u = g.most_u, issued_u = greatest(l.issued_u - g.has * {MICRO}, 0) + g.now_has * {MICRO}
                   from held g where l.hive = {hive} and l.name = g.name and l.limit_key = g.limit_key),
                 shared as (insert into hive_share(hive, name, limit_key, node, has_u, until_ms, seq)
                   select {hive}, name, limit_key, {node}, now_has * {MICRO}, t.now, seq from held, t
                   on conflict (hive, name, limit_key, node)
                     do update set has_u = excluded.has_u, until_ms = excluded.until_ms, seq = excluded.seq)
                 select n, has, wants, now_has, version, rate_u, period_ms, burst_u, effective_ms, {was} from held"
            ));
        }
        script
    }
}

pub(crate) fn read_slots(answers: &Answers, asks: &[Slots]) -> Result<Reply, Stop> {
    if answers.is_empty(0) {
        return Ok(Reply::Unfit);
    }
    let mut held = vec![Err(UndefinedLimit); asks.len()];
    for line in (1..=rounds(bucket_refs(asks)).len()).flat_map(|round| answers.lines(round)) {
        let n = usize::try_from(line.number(0)?).unwrap_or(usize::MAX);
        let (Some(ask), Some(slot)) = (asks.get(n), held.get_mut(n)) else { continue };
        let mut bucket = read_bucket_before(line, 9)?;
        let has = bucket.slots(&definition(line, 4)?, line.number(1)?, line.number(2)?);
        if has.has != line.number(3)? {
            return Err(disagreement(&ask.limit).into());
        }
        *slot = Ok(has);
    }
    Ok(Reply::Slots(held))
}

//! A bucket's arithmetic as SQL: what flows back until now, under the old definition and the new one.

use honeyflow_event::Name;
use honeyflow_hive::contract::limit::Key;

use super::RULE;
use crate::{
    hive::Hive,
    literal::{rows, text},
};

/// Which bucket a request is about: where it stands in the request, limit, key.
pub(super) struct Place<'r> {
    pub n: usize,
    pub limit: &'r str,
    pub key: String,
}

pub(super) fn places<'r>(asked: impl IntoIterator<Item = (&'r Name, Key)>) -> Vec<Place<'r>> {
    let place = |(n, (limit, key)): (usize, (&'r Name, Key))| Place { n, limit, key: key.to_string() };
    asked.into_iter().enumerate().map(place).collect()
}

/// How much a bucket holds.
#[derive(Clone, Copy)]
pub(super) enum Cap {
    /// A pool: the other half of the burst is out in batches.
    Half,
    Burst,
    /// Slots: what is given is counted, not what is left.
    Nothing,
}

impl Cap {
    pub fn of(self, burst_u: &str) -> String {
        match self {
            Cap::Half => format!("{burst_u} / 2"),
            Cap::Burst => burst_u.to_owned(),
            Cap::Nothing => "0::bigint".to_owned(),
        }
    }
}

impl Hive {
    /// `defined(n, version, …)`: of those asked for, the definition in force at `t.now`; nothing for one that nobody has defined.
    pub(super) fn defined(&self) -> String {
        let (hive, rule) = (self.name(), RULE.join(", "));
        format!(
            "defined as materialized (select a.n, d.* from asked a cross join t cross join lateral (
               select {rule} from hive_limit where hive = {hive} and name = a.name and limit_key in ('', 'next')
                 and (limit_key = '' or effective_ms <= t.now) order by limit_key desc limit 1) d)"
        )
    }

    /// A bucket that is missing is full, unless the store may have forgotten what was given a moment ago.
    fn fresh(&self, cap: Cap) -> String {
        let (hive, cap) = (self.name(), cap.of("d.burst_u"));
        format!(
            "case when exists (select 1 from hive_view where hive = {hive} and lineage_ms > 0 and t.now < lineage_ms
                 + case when d.rate_u > 0 then ceil((d.burst_u / 2)::numeric / d.rate_u) * d.period_ms else 0 end)
               then 0 else {cap} end"
        )
    }

    /// Makes the buckets that are missing. `asked` are their names and keys.
    pub(super) fn make_buckets(&self, t: &str, places: &[Place<'_>], cap: Cap) -> String {
        let (hive, asked, defined, fresh) = (self.name(), asked(places), self.defined(), self.fresh(cap));
        format!(
            "with {t}, asked(n, name, limit_key) as (values {asked}), {defined}
             insert into hive_limit(hive, name, limit_key, version, rate_u, period_ms, burst_u, effective_ms, pool_u, pool_ms)
             select {hive}, a.name, a.limit_key, d.version, d.rate_u, d.period_ms, d.burst_u, 0, {fresh}, t.now
             from asked a join defined d using (n) cross join t
             where not exists (select 1 from hive_limit b
               where b.hive = {hive} and b.name = a.name and b.limit_key = a.limit_key)
             order by a.name, a.limit_key on conflict (hive, name, limit_key) do nothing"
        )
    }

    /// In the order of their names: two requests over the same buckets wait for one another instead of for ever.
    pub(super) fn lock_buckets(&self, places: &[Place<'_>]) -> String {
        let asked = rows(places.iter().map(|Place { limit, key, .. }| format!("{}, '{key}'", text(limit))));
        let hive = self.name();
        format!(
            "select 1 from hive_limit where hive = {hive} and (name, limit_key) in ({asked})
             order by name, limit_key for no key update"
        )
    }

    /// For the `from` of a statement with `t`, `asked a` and `defined d`: `b`, the bucket as it is or would be, and
    /// `c(pool, ms)`, what it has come to at `t.now`. Where the clock went back, what was converted stays converted.
    ///
    /// Without `offset 0` the planner would put every step into each place where the next one uses it, and that over again.
    pub(super) fn counted(&self, cap: Cap) -> String {
        let (hive, fresh, new_cap, old_cap) = (self.name(), self.fresh(cap), cap.of("d.burst_u"), cap.of("b.burst_u"));
        let old = refill("b.pool_u", "s.ms", &old_cap, ["b.rate_u", "b.period_ms"], "u.ms");
        let new = refill("m.pool", "m.ms", &new_cap, ["d.rate_u", "d.period_ms"], "t.now");
        format!(
            "left join hive_limit r on r.hive = {hive} and r.name = a.name and r.limit_key = a.limit_key
             cross join lateral (select coalesce(r.version, d.version) as version, coalesce(r.rate_u, d.rate_u) as rate_u,
               coalesce(r.period_ms, d.period_ms) as period_ms, coalesce(r.burst_u, d.burst_u) as burst_u,
               coalesce(r.effective_ms, 0) as effective_ms, coalesce(r.pool_u, {fresh}) as pool_u,
               coalesce(r.pool_ms, t.now) as pool_ms, coalesce(r.issued_u, 0) as issued_u offset 0) b
             cross join lateral (select least(b.pool_ms, t.now) as ms offset 0) s
             cross join lateral (select case when b.version = d.version then s.ms
               else least(greatest(d.effective_ms, s.ms), t.now) end as ms offset 0) u
             cross join lateral ({old}) o
             cross join lateral (select case when b.version = d.version then o.pool else least(o.pool, {new_cap}) end as pool,
               case when b.version = d.version then o.ms else u.ms end as ms offset 0) m
             cross join lateral ({new}) c"
        )
    }
}

/// As [`honeyflow_hive::bucket`] does it, in whole periods, without a product that could be too large.
fn refill(pool: &str, ms: &str, cap: &str, [rate, period]: [&str; 2], until: &str) -> String {
    let is_full = format!("{pool} >= {cap} or p.periods > ({cap} - {pool} - 1) / {rate}");
    format!(
        "select case when p.periods is null then {pool} when {is_full} then {cap} else {pool} + p.periods * {rate} end as pool,
           case when p.periods is null or {is_full} then {until} else {ms} + p.periods * {period} end as ms
         from (select case when {rate} > 0 and {period} > 0 then greatest({until} - {ms}, 0) / {period} end as periods offset 0) p offset 0"
    )
}

/// `n, name, limit_key`.
pub(super) fn asked(places: &[Place<'_>]) -> String {
    rows(places.iter().map(row))
}

pub(super) fn row(Place { n, limit, key }: &Place<'_>) -> String {
    format!("{n}, {}, '{key}'", text(limit))
}

/// Each round names a bucket once: what is asked of it first is done first.
pub(super) fn rounds<'r>(places: Vec<Place<'r>>) -> Vec<Vec<Place<'r>>> {
    let mut rounds: Vec<Vec<Place<'r>>> = Vec::new();
    for place in places {
        let is_there =
            |round: &Vec<Place<'r>>| round.iter().any(|other| other.limit == place.limit && other.key == place.key);
        match rounds.iter().position(|round| !is_there(round)) {
            Some(round) => rounds[round].push(place),
            None => rounds.push(vec![place]),
        }
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_named_once_in_each_round() {
        let place = |n, key: &str| Place { n, limit: "api", key: key.to_owned() };
        let rounds = rounds(vec![place(0, "a"), place(1, "b"), place(2, "a"), place(3, "a"), place(4, "b")]);
        let numbers: Vec<Vec<usize>> = rounds.iter().map(|round| round.iter().map(|place| place.n).collect()).collect();
        assert_eq!(numbers, [vec![0, 1], vec![2, 4], vec![3]]);
    }
}

//! The arithmetic of a bucket as SQL: how much it has refilled until now, under the old definition and the new one.

use honeyflow_event::Name;
use honeyflow_hive::contract::limit::{Key, MICRO};

use super::RULE;
use crate::{
    hive::Hive,
    literal::{rows, text},
};

/// The sum of what the nodes ask for stops here.
const ASKED_MAX: u64 = 1 << 52;

/// The total that was ever issued; it stops at the largest 63-bit number.
pub(super) fn issued(by_now: &str, more: &str) -> String {
    format!("{by_now} + least({more}, {} - {by_now})", i64::MAX)
}

/// The bucket that one item of a request is about: the item's position in the request, limit and key.
pub(super) struct BucketRef<'r> {
    pub n: usize,
    pub limit: &'r str,
    pub key: String,
}

pub(super) fn bucket_refs<'r>(asked: impl IntoIterator<Item = (&'r Name, Key)>) -> Vec<BucketRef<'r>> {
    let place = |(n, (limit, key)): (usize, (&'r Name, Key))| BucketRef { n, limit, key: key.to_string() };
    asked.into_iter().enumerate().map(place).collect()
}

/// How much a bucket holds.
#[derive(Clone, Copy)]
pub(super) enum Cap {
    /// A pool holds half of the burst; the nodes hold the other half in batches.
    Half,
    Burst,
    /// Slots: the row counts the slots that were given, not the free ones.
    Nothing,
}

impl Cap {
    pub fn amount(self, burst_u: &str) -> String {
        match self {
            Cap::Half => format!("{burst_u} / 2"),
            Cap::Burst => burst_u.to_owned(),
            Cap::Nothing => "0::bigint".to_owned(),
        }
    }
}

impl Hive {
    /// `defined(n, version, …)`: for each item of `asked`, the definition in force at `t.now`; no row for an undefined
    /// limit.
    pub(super) fn defined(&self) -> String {
        let (hive, rule) = (self.name(), RULE.join(", "));
        format!(
            "defined as materialized (select a.n, d.* from asked a cross join t cross join lateral (
               select {rule} from hive_limit where hive = {hive} and name = a.name and limit_key in ('', 'next')
                 and (limit_key = '' or effective_ms <= t.now) order by limit_key desc limit 1) d)"
        )
    }

    /// A missing bucket is full, unless the store may have lost what it gave a moment ago: then it is empty.
    fn fresh(&self, cap: Cap) -> String {
        let (hive, cap) = (self.name(), cap.amount("d.burst_u"));
        format!(
            "case when exists (select 1 from hive_view where hive = {hive} and lineage_ms > 0 and t.now < lineage_ms
                 + case when d.rate_u > 0 then ceil((d.burst_u / 2)::numeric / d.rate_u) * d.period_ms else 0 end)
               then 0 else {cap} end"
        )
    }

    /// The first of the two seconds that a new bucket holds reservations for. It is the next second if the clock went
    /// back since the lineage began.
    fn first_slot(&self) -> String {
        let hive = self.name();
        format!(
            "(t.now / 1000 + case when exists (select 1 from hive_view where hive = {hive}
               and t.now / 1000 < lineage_ms / 1000) then 1 else 0 end)"
        )
    }

    /// The reservations that the store may have lost: all that could be reserved up to the beginning of the lineage,
    /// for the second that is `after` seconds from the first.
    fn lost_reservations(&self, after: u8) -> String {
        let (hive, bookable, slot) = (self.name(), bookable("d"), self.first_slot());
        format!(
            "case when exists (select 1 from hive_view where hive = {hive} and lineage_ms > 0
               and {slot} + {after} <= lineage_ms / 1000 + 1) then {bookable} else 0 end"
        )
    }

    /// Makes the buckets that are missing.
    pub(super) fn make_buckets(&self, t: &str, places: &[BucketRef<'_>], cap: Cap) -> String {
        let (hive, asked, defined, fresh) = (self.name(), asked(places), self.defined(), self.fresh(cap));
        let ([booked, next], slot) = ([0, 1].map(|after| self.lost_reservations(after)), self.first_slot());
        format!(
            "with {t}, asked(n, name, limit_key) as (values {asked}), {defined}
             insert into hive_limit(hive, name, limit_key, version, rate_u, period_ms, burst_u, effective_ms, pool_u, pool_ms,
               slot, booked_u, next_u)
             select {hive}, a.name, a.limit_key, d.version, d.rate_u, d.period_ms, d.burst_u, 0, {fresh}, t.now,
               {slot}, {booked}, {next}
             from asked a join defined d using (n) cross join t
             where not exists (select 1 from hive_limit b
               where b.hive = {hive} and b.name = a.name and b.limit_key = a.limit_key)
             order by a.name, a.limit_key on conflict (hive, name, limit_key) do nothing"
        )
    }

    /// Locks the buckets in the order of their names, so that two requests over the same buckets cannot deadlock.
    pub(super) fn lock_buckets(&self, places: &[BucketRef<'_>]) -> String {
        let asked = rows(places.iter().map(|BucketRef { limit, key, .. }| format!("{}, '{key}'", text(limit))));
        let hive = self.name();
        format!(
            "select 1 from hive_limit where hive = {hive} and (name, limit_key) in ({asked})
             order by name, limit_key for no key update"
        )
    }

    /// For the `from` of a statement with `t`, `asked a` and `defined d`. It adds `b`, the bucket as it is or would be
    /// if it were made now, and `c(pool, ms)`, its level at `t.now`; `booked` of `o` and of `c` is what has flowed to
    /// nodes with reservations. If the clock went back (`g`), what was already converted stays converted, and each
    /// reserved second counts as the larger of the two. If nothing refills (rate 0), what was used of a window stays
    /// used, even if the size of the window changed.
    ///
    /// Without `offset 0` the planner would inline every step into each place where the next step uses it, recursively.
    pub(super) fn join_level(&self, cap: Cap) -> String {
        let (hive, fresh, new_cap, old_cap) =
            (self.name(), self.fresh(cap), cap.amount("d.burst_u"), cap.amount("b.burst_u"));
        let old = refill("b.pool_u", "s.ms", &old_cap, ["b.rate_u", "b.period_ms"], "u.ms");
        let new = refill("m.pool", "m.ms", &new_cap, ["d.rate_u", "d.period_ms"], "t.now");
        let ([booked, next], slot) = ([0, 1].map(|after| self.lost_reservations(after)), self.first_slot());
        format!(
            "left join hive_limit r on r.hive = {hive} and r.name = a.name and r.limit_key = a.limit_key
             cross join lateral (select coalesce(r.version, d.version) as version, coalesce(r.rate_u, d.rate_u) as rate_u,
               coalesce(r.period_ms, d.period_ms) as period_ms, coalesce(r.burst_u, d.burst_u) as burst_u,
               coalesce(r.effective_ms, 0) as effective_ms, coalesce(r.pool_u, {fresh}) as pool_u,
               coalesce(r.pool_ms, t.now) as pool_ms, coalesce(r.issued_u, 0) as issued_u,
               coalesce(r.slot, {slot}) as slot, coalesce(r.booked_u, {booked}) as booked_u,
               coalesce(r.next_u, {next}) as next_u, coalesce(r.level_u, 0) as level_u, coalesce(r.asked_u, 0) as asked_u,
               coalesce(r.weight, 0) as weight, coalesce(r.cut_weight, 0) as cut_weight offset 0) i
             cross join lateral (select t.now < i.pool_ms or t.now / 1000 < i.slot as back, t.now / 1000 + 1 < i.slot as far,
               greatest(i.booked_u, i.next_u) as most offset 0) g
             cross join lateral (select i.version, i.rate_u, i.period_ms, i.burst_u, i.effective_ms, i.pool_u, i.pool_ms,
               i.issued_u, least(i.slot, t.now / 1000 + 1) as slot, case when g.back then g.most else i.booked_u end as booked_u,
               case when g.far then g.most else i.next_u end as next_u, case when g.far then 0 else i.level_u end as level_u,
               case when g.far then 0 else i.asked_u end as asked_u, case when g.far then 0 else i.weight end as weight,
               case when g.far then 0 else i.cut_weight end as cut_weight offset 0) b
             cross join lateral (select least(b.pool_ms, t.now) as ms offset 0) s
             cross join lateral (select case when b.version = d.version then s.ms
               else least(greatest(d.effective_ms, s.ms), t.now) end as ms offset 0) u
             cross join lateral ({old}) o
             cross join lateral (select case when b.version = d.version then o.pool
                 when b.rate_u = 0 and d.rate_u = 0
                   then {new_cap} - least({new_cap}, greatest({old_cap} - o.pool, 0))
                 else least(o.pool, {new_cap}) end as pool,
               case when b.version = d.version then o.ms else u.ms end as ms offset 0) m
             cross join lateral ({new}) c"
        )
    }
}

/// Refills as [`honeyflow_hive::bucket`] does: in whole periods, and without a product that could overflow.
fn refill(pool: &str, ms: &str, cap: &str, [rate, period]: [&str; 2], until: &str) -> String {
    let is_full = format!("{pool} >= {cap} or p.periods > ({cap} - {pool} + f.booked - 1) / {rate}");
    let booked = flow_u("b.", ms, &format!("{ms} + p.periods * {period}"));
    format!(
        "select case when p.periods is null then {pool} when {is_full} then {cap}
             else {pool} + greatest(p.periods * {rate} - f.booked, 0) end as pool,
           case when p.periods is null or {is_full} then {until} else {ms} + p.periods * {period} end as ms,
           coalesce(f.booked, 0) as booked
         from (select case when {rate} > 0 and {period} > 0 then greatest({until} - {ms}, 0) / {period} end as periods offset 0) p
         cross join lateral (select {booked} as booked offset 0) f offset 0"
    )
}

/// What flows to nodes with reservations between `from` and `until`, by the columns of `row`. A time before the present
/// second counts with the rate of the present second.
pub(super) fn flow_u(row: &str, from: &str, until: &str) -> String {
    let turns = format!("({row}slot + 1) * 1000");
    format!(
        "{row}booked_u / 1000 * greatest(least({until}, {turns}) - {from}, 0)
         + {row}next_u / 1000 * greatest(least({until}, {turns} + 1000) - greatest({from}, {turns}), 0)"
    )
}

/// Computes [`honeyflow_hive::contract::limit::Rule::reservable_u`] of the rule in this row.
fn bookable(row: &str) -> String {
    format!(
        "case when {row}.period_ms = 1 and {row}.rate_u between 1 and 4000000000000 then
           case when {row}.burst_u >= 80 * {MICRO} and {row}.burst_u / 2 <= {row}.rate_u * 1000 then {row}.rate_u * 970 else 0 end
         else 0 end"
    )
}

/// Follows [`Hive::join_level`] in the `from`, where `a` has `book_u` and `heft`, or nulls. It adds `k`: the
/// reservations including the new ones, and how many permits the new ones are. While a second passes for the second
/// time, because the clock went back, no reservations are made.
pub(super) fn join_reservations() -> String {
    let bookable = bookable("d");
    format!(
        "cross join lateral (select {bookable} as bookable, greatest(t.now / 1000, b.slot) as slot,
             case when t.now / 1000 >= b.slot then a.book_u end as book_u,
             case when t.now / 1000 >= b.slot then a.heft end as heft offset 0) q
         cross join lateral (select
             case when q.slot = b.slot + 1 then b.next_u when q.slot = b.slot then b.booked_u else 0 end as booked_u,
             case when q.slot = b.slot then b.next_u else 0 end as next_u,
             case when q.slot = b.slot then b.level_u when q.slot <> b.slot + 1 then 0
               when b.weight = 0 or b.cut_weight = 0 and b.asked_u <= q.bookable then 0
               when b.cut_weight = 0 then q.bookable / b.weight
               when b.asked_u <= q.bookable
                 then greatest(b.level_u + (q.bookable - b.asked_u) / b.cut_weight, q.bookable / b.weight)
               else greatest(b.level_u - (b.asked_u - q.bookable + b.cut_weight - 1) / b.cut_weight, q.bookable / b.weight)
               end as level_u,
             case when q.slot = b.slot then b.asked_u else 0 end as asked_u,
             case when q.slot = b.slot then b.weight else 0 end as weight,
             case when q.slot = b.slot then b.cut_weight else 0 end as cut_weight offset 0) v
         cross join lateral (select case when v.level_u = 0 then q.bookable
             else least(v.level_u::numeric * q.heft, q.bookable)::bigint end as most offset 0) w
         cross join lateral (select case when q.book_u is null then 0 else least(q.book_u, w.most) end as fair offset 0) x
         cross join lateral (select least(x.fair, greatest(q.bookable - v.next_u, 0)) / {MICRO} as permits offset 0) y
         cross join lateral (select q.slot, v.booked_u, v.next_u + y.permits * {MICRO} as next_u, v.level_u,
             least(v.asked_u + x.fair, {ASKED_MAX}) as asked_u, v.weight + coalesce(q.heft, 0) as weight,
             v.cut_weight + case when q.book_u > w.most then q.heft else 0 end as cut_weight, y.permits offset 0) k"
    )
}

/// Rows of `n, name, limit_key`.
pub(super) fn asked(places: &[BucketRef<'_>]) -> String {
    rows(places.iter().map(row))
}

pub(super) fn row(BucketRef { n, limit, key }: &BucketRef<'_>) -> String {
    format!("{n}, {}, '{key}'", text(limit))
}

/// Splits a request into rounds that name each bucket at most once, so that items for one bucket run in their order.
pub(super) fn rounds<'r>(places: Vec<BucketRef<'r>>) -> Vec<Vec<BucketRef<'r>>> {
    let mut rounds: Vec<Vec<BucketRef<'r>>> = Vec::new();
    for place in places {
        let is_there =
            |round: &Vec<BucketRef<'r>>| round.iter().any(|other| other.limit == place.limit && other.key == place.key);
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
        let place = |n, key: &str| BucketRef { n, limit: "api", key: key.to_owned() };
        let rounds = rounds(vec![place(0, "a"), place(1, "b"), place(2, "a"), place(3, "a"), place(4, "b")]);
        let numbers: Vec<Vec<usize>> = rounds.iter().map(|round| round.iter().map(|place| place.n).collect()).collect();
        assert_eq!(numbers, [vec![0, 1], vec![2, 4], vec![3]]);
    }
}

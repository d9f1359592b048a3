//! Limits: their definitions, buckets and slots.

use std::collections::BTreeMap;

use honeyflow_event::Name;
use honeyflow_hive::{
    NodeId,
    bucket::Bucket,
    contract::limit::{
        BucketRow, Definition, Denial, DeniedTake, Draw, ExactTake, Key, Limit, Reply, Request, Rule, Slots,
        UndefinedLimit,
    },
    planted,
};

use super::Rows;

type BucketId = (Name, Key);

#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    definitions: BTreeMap<Name, Limit>,
    buckets: BTreeMap<BucketId, Bucket>,
    slots: BTreeMap<(BucketId, NodeId), Share>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    has: u64,
    seq: u64,
    /// The hive time at which the node last sent a request for these slots.
    said_ms: u64,
}

impl Limits {
    fn definition(&self, limit: &Name, now_ms: u64) -> Option<Definition> {
        self.definitions.get(limit).map(|limit| Definition::in_force(limit.now, limit.next, now_ms))
    }

    /// Gives back the slots of a node that has left or was removed.
    pub fn give_back(&mut self, node: NodeId) {
        let buckets = &mut self.buckets;
        self.slots.retain(|(bucket, holder), share| {
            if let (Some(bucket), true) = (buckets.get_mut(bucket), *holder == node) {
                bucket.give_back(share.has);
            }
            *holder != node
        });
    }

    pub fn mend(&mut self, now_ms: u64) -> u64 {
        let mut mended = 0;
        for bucket in self.buckets.values_mut().filter(|bucket| bucket.pool_ms > now_ms) {
            bucket.pool_ms = now_ms;
            mended += 1;
        }
        mended
    }

    pub fn sweep(&mut self, now_ms: u64, idle_ms: u64, rows_max: usize) -> u64 {
        let idle = self.buckets.iter().filter(|(_, bucket)| bucket.is_idle(idle_ms, now_ms));
        let idle: Vec<BucketId> = idle.map(|(id, _)| id.clone()).take(rows_max).collect();
        for id in &idle {
            self.buckets.remove(id);
        }
        let is_nothing = |share: &Share| share.has == 0 && share.said_ms.saturating_add(idle_ms) <= now_ms;
        let nothing = self.slots.iter().filter(|(_, share)| is_nothing(share));
        let nothing: Vec<(BucketId, NodeId)> = nothing.map(|(id, _)| id.clone()).take(rows_max).collect();
        for id in &nothing {
            self.slots.remove(id);
        }
        (idle.len() + nothing.len()) as u64
    }
}

impl Rows {
    pub(super) fn limit(&mut self, now_ms: u64, request: Request) -> Reply {
        match request {
            Request::Draw(draws) => {
                let drawn = draws.iter().map(|draw| self.draw(now_ms, draw)).collect();
                Reply::Drawn { hive_ms: now_ms, drawn }
            }
            Request::Exact { takes, peek } => self.exact(now_ms, &takes, peek),
            Request::Refund(takes) => {
                for ExactTake { limit, key, cost, window } in takes {
                    if let Some(bucket) = self.limits.buckets.get_mut(&(limit, key)) {
                        bucket.refund(cost, window);
                    }
                }
                Reply::Done
            }
            Request::Slots { node, .. } if !self.nodes.contains_key(&node) => Reply::Unfit,
            Request::Slots { node, asks } => {
                Reply::Slots(asks.into_iter().map(|ask| self.slots(now_ms, node, ask)).collect())
            }
            Request::Set { limit, was, rule, after_ms } => self.set_limit(now_ms, limit, was, rule, after_ms),
            Request::Limits => Reply::Limits {
                hive_ms: now_ms,
                version: self.head(now_ms).limits,
                limits: self
                    .limits
                    .definitions
                    .values()
                    .map(|limit| Limit {
                        now: Definition::in_force(limit.now, limit.next, now_ms),
                        next: limit.next.filter(|next| next.effective_ms > now_ms),
                        ..limit.clone()
                    })
                    .collect(),
            },
            Request::Ledger { limit, max } => self.ledger(now_ms, &limit, max as usize),
        }
    }

    fn lineage_ms(&self) -> u64 {
        self.view.as_ref().map_or(0, |view| view.lineage_ms)
    }

    fn draw(
        &mut self,
        now_ms: u64,
        draw: &Draw,
    ) -> Result<honeyflow_hive::contract::limit::DrawOutcome, UndefinedLimit> {
        let definition = self.limits.definition(&draw.limit, now_ms).ok_or(UndefinedLimit)?;
        let lineage_ms = self.lineage_ms();
        let bucket = self.limits.buckets.entry((draw.limit.clone(), draw.key));
        let fresh = || Bucket::fresh(&definition, definition.rule.pool_u(), lineage_ms, now_ms);
        Ok(bucket.or_insert_with(fresh).draw_and_reserve(&definition, draw, now_ms))
    }

    /// Works on copies of the buckets. They replace the rows only if every bucket admits its take.
    fn exact(&mut self, now_ms: u64, takes: &[ExactTake], peek: bool) -> Reply {
        let mut asked: BTreeMap<BucketId, Bucket> = BTreeMap::new();
        let mut left = Vec::new();
        for (at, ExactTake { limit, key, cost, window }) in takes.iter().enumerate() {
            let Some(definition) = self.limits.definition(limit, now_ms) else {
                return Reply::Denied(DeniedTake { at, version: 0, why: Denial::Undefined });
            };
            let id = (limit.clone(), *key);
            let stored = self.limits.buckets.get(&id).copied();
            let fresh = || Bucket::fresh(&definition, definition.rule.burst_u, self.lineage_ms(), now_ms);
            let bucket = asked.entry(id).or_insert_with(|| stored.unwrap_or_else(fresh));
            if let Err(why) = bucket.check_take(&definition, *cost, *window, now_ms) {
                return Reply::Denied(DeniedTake { at, version: definition.version, why });
            }
            if !peek {
                bucket.take(*cost);
            }
            left.push(bucket.left(now_ms));
        }
        if !peek {
            self.limits.buckets.extend(asked);
        }
        Reply::Admitted { hive_ms: now_ms, left }
    }

    fn slots(
        &mut self,
        now_ms: u64,
        node: NodeId,
        Slots { limit, key, seq, wants }: Slots,
    ) -> Result<honeyflow_hive::contract::limit::SlotsHeld, UndefinedLimit> {
        let definition = self.limits.definition(&limit, now_ms).ok_or(UndefinedLimit)?;
        let id = (limit, key);
        let bucket = self.limits.buckets.entry(id.clone()).or_insert_with(|| Bucket::fresh(&definition, 0, 0, now_ms));
        let share = self.limits.slots.entry((id, node)).or_default();
        let wants = if seq > share.seq { wants } else { share.has };
        let held = bucket.slots(&definition, share.has, wants);
        *share = Share { has: held.has, seq: seq.max(share.seq), said_ms: now_ms };
        Ok(held)
    }

    fn set_limit(&mut self, now_ms: u64, name: Name, was: Option<u64>, rule: Rule, after_ms: u64) -> Reply {
        let slowest_ms = self.nodes.values().map(|node| node.heartbeat_ms).max().unwrap_or(0);
        let present = self.limits.definitions.get(&name).cloned();
        let newest = present.as_ref().map(|limit| limit.next.unwrap_or(limit.now));
        if newest.map(|newest| newest.version) != was {
            return Reply::Raced;
        }
        if let Some(next) = newest.filter(|newest| newest.effective_ms > now_ms) {
            return Reply::Pending { effective_ms: next.effective_ms };
        }
        let at_once = newest.is_none() || planted::on("change applied at once");
        let effective_ms = if at_once { now_ms } else { now_ms + after_ms.max(2 * slowest_ms) };
        let view = self.view_or_new(now_ms);
        view.limits += 1;
        let version = view.limits;
        let definition = Definition { version, rule, effective_ms };
        let limit = match newest {
            Some(now) => Limit { name: name.clone(), now, next: Some(definition) },
            None => Limit { name: name.clone(), now: definition, next: None },
        };
        self.limits.definitions.insert(name, limit);
        Reply::Set { version, effective_ms }
    }

    fn ledger(&self, now_ms: u64, limit: &Name, max: usize) -> Reply {
        let of_limit = self.limits.buckets.iter().filter(|((name, _), _)| name == limit);
        let mut rows: Vec<BucketRow> = of_limit
            .map(|((_, key), bucket)| BucketRow {
                key: *key,
                version: bucket.version,
                pool_u: bucket.pool_u,
                pool_ms: bucket.pool_ms,
                issued_u: bucket.total_issued_u(now_ms),
                booked_u: bucket.reserved_u(now_ms),
            })
            .collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.issued_u), row.key));
        rows.truncate(max);
        Reply::Ledger(rows)
    }
}

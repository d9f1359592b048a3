//! Slots of a concurrency limit: how many each node has.

use std::collections::{BTreeMap, BTreeSet};

use honeyflow_hive::{
    NodeId,
    bucket::Bucket,
    contract::limit::{MICRO, Reply, Slots, SlotsHeld, UndefinedLimit},
};

use crate::{
    limit::{self, BucketId},
    literal::{self, signed},
    message::Message,
    outcome::Answer,
    row,
    session::{LIMIT_LOCK_SECONDS, Session},
};

impl Session {
    /// Locks the node's row, so that a node that removes it later finds all its slots.
    pub async fn slots(&mut self, node: NodeId, asks: &[Slots]) -> Answer<Reply> {
        let (hive, id) = (self.hive.clone(), literal::id(node));
        let ids: BTreeSet<BucketId> = asks.iter().map(|ask| (ask.limit.clone(), ask.key)).collect();
        let mut message = self.begin(LIMIT_LOCK_SECONDS);
        let member =
            message.add(format!("select 1 from hive_node where hive = {hive} and id = {id} lock in share mode"));
        let rows = (!ids.is_empty()).then(|| {
            let definitions = self.add_definitions(&mut message, asks.iter().map(|ask| &ask.limit));
            (definitions, self.lock_buckets(&mut message, &ids))
        });
        // This runs after the buckets are locked, so that it does not read an older state.
        let shares = message
            .add(format!("select name, limit_key, has_u, seq from hive_share where hive = {hive} and node = {id}"));
        let heard = self.ask(message).await?;
        if heard.first(member).is_none() {
            return Ok(Reply::Unfit);
        }
        let Some((definitions, buckets)) = rows else { return Ok(Reply::Slots(Vec::new())) };
        let (defined, mut buckets) = (heard.defined(definitions)?, heard.buckets(buckets)?);
        let mut stored: BTreeMap<BucketId, (u64, u64)> = BTreeMap::new();
        for row in heard.rows(shares) {
            let id = (row::required(row, 0)?.into(), limit::key(row, 1)?);
            stored.insert(id, (row::unsigned(row, 2)? / MICRO, row::unsigned(row, 3)?));
        }
        let mut held: Vec<Result<SlotsHeld, UndefinedLimit>> = Vec::new();
        for Slots { limit, key, seq, wants } in asks {
            let Some(definition) = defined.get(limit).and_then(|defined| defined.in_force(heard.now_ms)) else {
                held.push(Err(UndefinedLimit));
                continue;
            };
            let id = (limit.clone(), *key);
            let share = stored.entry(id.clone()).or_default();
            let wants = if *seq > share.1 { *wants } else { share.0 };
            let bucket = buckets.rows.entry(id).or_insert_with(|| Bucket::fresh(&definition, 0, 0, heard.now_ms));
            let now = bucket.slots(&definition, share.0, wants);
            *share = (now.has, share.1.max(*seq));
            held.push(Ok(now));
        }
        let now_ms = heard.now_ms;
        let mut message = Message::default();
        buckets.write(&hive, &mut message);
        for ((limit, key), (has, seq)) in stored.iter().filter(|(id, _)| buckets.rows.contains_key(*id)) {
            let (name, has_u, seq) = (literal::text(limit), signed(has.saturating_mul(MICRO)), signed(*seq));
            message.add(format!(
                "insert into hive_share(hive, name, limit_key, node, has_u, until_ms, seq)
                 values ({hive}, {name}, '{key}', {id}, {has_u}, {now_ms}, {seq})
                 on duplicate key update has_u = {has_u}, until_ms = {now_ms}, seq = {seq}"
            ));
        }
        self.commit(message).await?;
        Ok(Reply::Slots(held))
    }
}

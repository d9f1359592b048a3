//! The status that a node receives with every heartbeat.

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    NodeId,
    contract::{QUEEN, Queen, SOONEST_MAX, Status},
};
use uuid::Uuid;

use crate::{
    driver::Error,
    hive::{Hive, clock_and_server},
    literal::node as id_of,
    row::{HEAD, HEAD_COLUMNS, WatchedParts, unsigned, watched},
    script::Answers,
};

impl Hive {
    /// Selects one row. Each part of it is found through an index, so the cost does not depend on the number of nodes.
    pub fn status(&self, node: NodeId) -> String {
        let (hive, t, id, from_ms) = (self.name(), clock_and_server(), id_of(node), self.horizon_ms(node));
        format!(
            "with {t}
             select {HEAD},
               exists (select 1 from hive_node where hive = {hive} and id = {id}),
               (select json_build_array(l.epoch, l.holder, l.heir, l.since_ms,
                   case when n.id is not null then json_build_array(n.id, n.beat, n.beat_ms, n.ttl_ms, n.expires_ms) end)
                 from hive_lease l left join hive_node n on n.hive = l.hive and n.id = l.holder
                 where l.hive = {hive} and l.name = '{QUEEN}'),
               (select json_agg(w.name order by w.name) from (
                 select name from hive_lease where hive = {hive} and heir = {id} order by name limit {SOONEST_MAX}) w),
               (select json_agg(json_build_array(w.id, w.beat, w.beat_ms, w.ttl_ms, w.expires_ms)
                   order by w.expires_ms, w.id) from (
                 select id, beat, beat_ms, ttl_ms, expires_ms from hive_node
                 where hive = {hive} and expires_ms >= {from_ms} and id <> {id}
                 order by expires_ms, id limit {SOONEST_MAX}) w),
               (select max(expires_ms) from hive_node where hive = {hive})
             from t left join hive_view v on v.hive = {hive}"
        )
    }
}

type QueenParts = (i64, Option<Uuid>, Option<Uuid>, i64, Option<WatchedParts>);

pub(crate) fn read_status(answers: &Answers, asked: usize) -> Result<Status, Error> {
    let line = answers.line(asked)?;
    let head = line.head()?;
    let queen: Option<QueenParts> = line.json(HEAD_COLUMNS + 1)?;
    let heir_of: Option<Vec<Name>> = line.json(HEAD_COLUMNS + 2)?;
    let soonest: Option<Vec<WatchedParts>> = line.json(HEAD_COLUMNS + 3)?;
    let furthest_ms = line.number_or_null(HEAD_COLUMNS + 4)?.unwrap_or(0);
    let ahead = furthest_ms > head.hive_ms + head.max_ttl_ms
        || head.lineage_ms > head.hive_ms
        || head.counts.counted_ms > head.hive_ms;
    Ok(Status {
        member: line.flag(HEAD_COLUMNS)?,
        renewed: false,
        queen: queen.map(|(epoch, holder, heir, since_ms, node)| Queen {
            epoch: Epoch(unsigned(epoch)),
            holder: holder.map(NodeId),
            successor: heir.map(NodeId),
            since_ms: unsigned(since_ms),
            node: node.map(watched),
        }),
        successor_of: heir_of.unwrap_or_default(),
        soonest: soonest.unwrap_or_default().into_iter().map(watched).collect(),
        ahead,
        head,
    })
}

//! Membership: nodes join, renew their rows by heartbeats, leave, and are removed when they have expired.

use honeyflow_event::Name;
use honeyflow_hive::{
    NodeId, Reply,
    contract::{
        Counts, ENGAGED_MS, EventKind, META_BYTES_MAX, NodeRow, QUEEN, Queen, Refusal, Removal, SOONEST_MAX, State,
        Status,
    },
    planted,
};
use honeyflow_runtime::Failure;

use super::{Rows, members::watched};

impl Rows {
    pub(super) fn join(
        &mut self,
        now_ms: u64,
        node: NodeId,
        name: &Name,
        heartbeat_ms: u64,
        ttl_ms: u64,
        meta: String,
    ) -> Result<Reply, Failure> {
        if meta.len() > META_BYTES_MAX {
            let said = format!("a node's meta data is {} bytes; {META_BYTES_MAX} are the limit", meta.len());
            return Err(Failure::reject(honeyflow_hive::codes::META_TOO_LARGE, said));
        }
        if self.nodes.contains_key(&node) {
            return Ok(Reply::Refused(Refusal::Known));
        }
        let row = NodeRow {
            id: node,
            name: name.to_string(),
            beat: 0,
            heartbeat_ms,
            ttl_ms,
            expires_ms: now_ms + ttl_ms,
            engaged_ms: 0,
            ready: false,
            eligible: false,
            warm: Vec::new(),
            meta,
        };
        self.nodes.insert(row);
        let view = self.view_or_new(now_ms);
        view.max_ttl_ms = view.max_ttl_ms.max(ttl_ms);
        self.event(now_ms, EventKind::Joined, Some(node), None, name);
        Ok(Reply::Joined(Box::new(self.status(now_ms, node, true, true))))
    }

    /// Renews the row of the node. Returns whether it is a member.
    pub(super) fn renew(&mut self, now_ms: u64, node: NodeId, state: State) -> bool {
        if planted::on("renew by name only") {
            let name = self.nodes.get(&node).map(|row| row.name.clone());
            let same = |row: &&NodeRow| Some(&row.name) == name.as_ref();
            let namesakes: Vec<NodeId> = self.nodes.values().filter(same).map(|row| row.id).collect();
            for id in namesakes {
                self.nodes.change(id, |row| (row.beat, row.expires_ms) = (row.beat + 1, now_ms + row.ttl_ms));
            }
        }
        let changed = self.nodes.change(node, |row| {
            let was = (row.ready, row.eligible);
            row.beat += 1;
            row.expires_ms = now_ms + row.ttl_ms;
            row.engaged_ms = state.engaged_age_ms.map_or(0, |age_ms| (now_ms + ENGAGED_MS).saturating_sub(age_ms));
            (row.ready, row.eligible, row.warm) = (state.ready, state.eligible, state.warm);
            (was, (row.ready, row.eligible))
        });
        for kind in changed.into_iter().flat_map(|(was, is)| EventKind::of_beat(was, is)) {
            self.event(now_ms, kind, Some(node), None, &"".into());
        }
        changed.is_some()
    }

    pub(super) fn status(&self, now_ms: u64, node: NodeId, member: bool, written: bool) -> Status {
        let head = self.head(now_ms);
        let too_far_ms = now_ms + head.max_ttl_ms;
        let ahead =
            self.nodes.last_expiry_ms() > too_far_ms || head.lineage_ms > now_ms || head.counts.counted_ms > now_ms;
        Status {
            head,
            member,
            renewed: member && written,
            queen: self.leases.get(QUEEN).map(|lease| Queen {
                epoch: lease.epoch,
                holder: lease.holder,
                successor: lease.heir,
                since_ms: lease.since_ms,
                node: lease.holder.and_then(|holder| self.nodes.get(&holder)).map(watched),
            }),
            successor_of: self
                .leases
                .iter()
                .filter(|(_, lease)| lease.heir == Some(node))
                .map(|(name, _)| name.clone())
                .take(SOONEST_MAX)
                .collect(),
            soonest: self.nodes.soonest_beside(node, SOONEST_MAX),
            ahead,
        }
    }

    pub(super) fn remove(&mut self, now_ms: u64, node: NodeId, kind: EventKind, cause: &Name) {
        if self.nodes.remove(node).is_some() {
            self.limits.give_back(node);
            self.event(now_ms, kind, Some(node), None, cause);
        }
    }

    pub(super) fn remove_expired(&mut self, now_ms: u64, burials: &[Removal]) -> Vec<NodeId> {
        let mut buried = Vec::new();
        for Removal { node, beat, silent, cause } in burials {
            let row = self.nodes.get(node);
            if row.is_some_and(|row| row.beat == *beat && (*silent || !row.is_alive(now_ms))) {
                self.remove(now_ms, *node, EventKind::Buried, cause);
                buried.push(*node);
            }
        }
        buried
    }

    /// Removes a node that the caller knows to be dead, without having watched its heartbeats.
    pub fn remove_dead(&mut self, node: NodeId, now_ms: u64) {
        self.remove(now_ms, node, EventKind::Buried, &"known to be dead".into());
    }

    pub(super) fn mend(&mut self, now_ms: u64) -> u64 {
        let mut mended = 0;
        let all: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in all {
            self.nodes.change(id, |row| {
                let right = (row.expires_ms.min(now_ms + row.ttl_ms), row.engaged_ms.min(now_ms + ENGAGED_MS));
                mended += u64::from(right != (row.expires_ms, row.engaged_ms));
                (row.expires_ms, row.engaged_ms) = right;
            });
        }
        if let Some(view) = &mut self.view {
            let right = (view.lineage_ms.min(now_ms), view.counts.counted_ms.min(now_ms));
            mended += u64::from(right != (view.lineage_ms, view.counts.counted_ms));
            (view.lineage_ms, view.counts.counted_ms) = right;
        }
        mended + self.limits.mend(now_ms)
    }

    /// Counts the nodes. Epoch and time stay those of the published count.
    pub(super) fn tally(&self, now_ms: u64) -> Counts {
        let count = |is: &dyn Fn(&NodeRow) -> bool| self.nodes.values().filter(|row| is(row)).count() as u64;
        Counts {
            alive: count(&|row| row.is_alive(now_ms)),
            ready: count(&|row| row.is_alive(now_ms) && row.ready),
            engaged: count(&|row| row.is_engaged(now_ms)),
            ..self.view.as_ref().map(|view| view.counts).unwrap_or_default()
        }
    }
}

//! Decides which node should hold which lease, and when this node takes a free one.
//!
//! | a free lease              | when this node takes it                                              |
//! |---------------------------|----------------------------------------------------------------------|
//! | shard placed on this node | at once, all of them in one request                                  |
//! | shard placed on another   | if it is still free after two heartbeats                             |
//! | pinned, its node expired  | like any other shard, or never if the source says `pinned_only`      |
//! | duty                      | first in rendezvous order: at once; others after two heartbeats      |
//! | queen                     | the first three candidates within 50 ms, then one every 50 ms, in rendezvous order |

use std::time::Duration;

use honeyflow_event::Name;
use honeyflow_runtime::{Failure, Moment};

use super::{
    Effect, Member,
    lease::{Kind, Lease, State},
    spread,
    traits::shard_lease,
    transfer::Transfer,
    trust::Phase,
};
use crate::{
    codes,
    contract::{NodeId, QUEEN},
    placement::{Candidate, Shard, order, place},
};

#[derive(Clone, Debug)]
pub(super) struct Source {
    name: Name,
    count: u32,
    pinned_only: bool,
    /// The configured count was compared with the shards that exist in the store.
    checked: bool,
    alarmed: bool,
    /// Shards to which this node and another are pinned, as last reported.
    pinned_twice: Vec<Name>,
}

impl Member {
    pub(super) fn want_shards(&mut self, name: Name, count: u32, pinned_only: bool) {
        self.placement_due = true;
        if let Some(known) = self.sources.iter_mut().find(|source| source.name == name) {
            known.pinned_only = pinned_only;
            return self.want_all(&name, true);
        }
        let at = self.sources.len();
        for shard in 0..count {
            self.leases.insert(shard_lease(&name, shard), Lease::new(Kind::Shard(at), true));
        }
        let pinned_twice = Vec::new();
        self.sources.push(Source { name, count, pinned_only, checked: false, alarmed: false, pinned_twice });
    }

    pub(super) fn unwant_shards(&mut self, name: &Name) {
        self.want_all(name, false);
    }

    /// Ends the terms at once, so that old work does not run beside the work of the next term. A lease that is still
    /// held gets a new epoch if it is wanted, and is released otherwise.
    fn want_all(&mut self, name: &str, wanted: bool) {
        let Some(at) = self.sources.iter().position(|source| *source.name == *name) else { return };
        for lease in self.leases.values_mut().filter(|lease| lease.kind == Kind::Shard(at)) {
            lease.wanted = wanted;
            (lease.transfer, lease.transfer_request) = (Transfer::Idle, None);
            if let Some(term) = lease.term() {
                term.end();
            }
            if let State::Held(term) = &lease.state {
                lease.state = State::Dead(term.epoch());
            }
        }
        self.placement_due = true;
    }

    /// The nodes that may hold leases, as the view shows them.
    fn candidates(&self, source: Option<&str>, without: Option<NodeId>) -> Vec<Candidate> {
        let ours = |id| Some(id) == self.node;
        let lives =
            |id: NodeId| !self.removed.contains(&id) && Some(id) != without && (!ours(id) || self.is_eligible());
        let mut candidates = Vec::new();
        for node in self.known_view.nodes().iter().filter(|node| node.eligible && lives(node.id)) {
            let Some(traits) = self.known_view.traits(node.id) else { continue };
            if source.is_none_or(|source| traits.takes(source)) {
                candidates.push(Candidate {
                    id: node.id,
                    name: node.name.as_str().into(),
                    weight: traits.weight,
                    pinned: source.map(|source| traits.pinned(source)).unwrap_or_default(),
                });
            }
        }
        candidates
    }

    pub(super) fn place_if_changed(&mut self, effects: &mut Vec<Effect>) {
        if !self.placement_due || self.known_view.view().is_none() {
            return;
        }
        self.placement_due = false;
        self.gains_from.clear();
        for at in 0..self.sources.len() {
            self.check_count(at, effects);
            if self.trust.phase != Phase::In {
                return;
            }
            for (lease, owner) in self.owners(at, None) {
                if let Some(lease) = self.leases.get_mut(&lease) {
                    lease.owner = owner;
                }
            }
            self.report_waiting_shards(at, effects);
            self.report_pinned_twice(at, effects);
        }
        let candidates = self.candidates(None, None);
        let me = self.node;
        for (name, lease) in self.leases.iter_mut().filter(|(_, lease)| !matches!(lease.kind, Kind::Shard(_))) {
            let holder = lease.row.as_ref().and_then(|row| row.holder);
            let wants = |id: NodeId| match lease.kind {
                // The current queen is no candidate for her own succession.
                Kind::Queen => Some(id) == me || Some(id) != holder,
                _ => Some(id) == me || self.known_view.node(id).is_some_and(|node| node.warm.contains(name)),
            };
            let candidates: Vec<Candidate> = candidates.iter().filter(|one| wants(one.id)).cloned().collect();
            let order = order(&candidates, name);
            lease.owner = order.first().copied();
            lease.rank = order.iter().position(|node| Some(*node) == me).unwrap_or(order.len());
            lease.next_candidate = order.into_iter().find(|node| Some(*node) != me);
        }
        for lease in self.leases.values_mut().filter(|lease| matches!(lease.kind, Kind::Shard(_))) {
            lease.next_candidate = lease.owner.filter(|owner| Some(*owner) != me);
        }
    }

    /// For each lease of a source, the node that should hold it if `without` had expired.
    fn owners(&self, source: usize, without: Option<NodeId>) -> Vec<(Name, Option<NodeId>)> {
        let Source { name, count, pinned_only, .. } = &self.sources[source];
        let candidates = self.candidates(Some(name), without);
        let dead = |id: NodeId| Some(id) == without || self.removed.contains(&id);
        let shards: Vec<Shard> = (0..*count)
            .map(|shard| {
                let lease = shard_lease(name, shard);
                let row = self.leases.get(&lease).and_then(|lease| lease.row.as_ref()).filter(|row| !row.free);
                let holder = row.and_then(|row| row.holder).filter(|holder| !dead(*holder));
                Shard { lease, holder, pinned_only: *pinned_only }
            })
            .collect();
        let owners = place(&candidates, &shards);
        shards.into_iter().zip(owners).map(|(shard, at)| (shard.lease, at.map(|at| candidates[at].id))).collect()
    }

    /// Checks the number of shards of a source, which the first node fixes when it creates them. If two nodes create
    /// them at the same time, each finds nothing there: the one that created fewer ends as soon as it learns of more.
    fn check_count(&mut self, at: usize, effects: &mut Vec<Effect>) {
        let Source { name, count, checked, .. } = &mut self.sources[at];
        let shards = self.known_view.shards_of(name);
        let beyond = shards.iter().max().map_or(0, |last| last.saturating_add(1) as usize);
        let made = shards.len().max(beyond);
        let first = !std::mem::replace(checked, true);
        if made > *count as usize || first && made != 0 && made != *count as usize {
            let message = format!(
                "source {name} has {made} shards, this node is configured for {count}: rows would be read twice or \
                 never; set shards = {made}"
            );
            self.end_terms("this node is configured for another number of shards", effects);
            self.trust.phase = Phase::Gone;
            effects.push(Effect::Refused(Failure::fatal(codes::SHARD_COUNT, message)));
        }
    }

    fn report_waiting_shards(&mut self, at: usize, effects: &mut Vec<Effect>) {
        let waits = |lease: &&Lease| {
            lease.kind == Kind::Shard(at) && lease.owner.is_none() && lease.row.as_ref().is_some_and(|row| row.free)
        };
        let waiting = self.leases.values().filter(waits).count();
        let Source { name, alarmed, .. } = &mut self.sources[at];
        if waiting > 0 && !*alarmed {
            let message = format!("{waiting} shards of source {name} wait for a node that is pinned to them");
            effects.push(Effect::Notice { code: codes::notice::SHARDS_WAIT, message });
        }
        *alarmed = waiting > 0;
    }

    /// Reports shards to which this node and another are pinned. The lease decides which one owns the shard, but the
    /// configuration is a mistake: each of the two nodes reports it.
    fn report_pinned_twice(&mut self, at: usize, effects: &mut Vec<Effect>) {
        let candidates = self.candidates(Some(&self.sources[at].name), None);
        let mine = candidates.iter().find(|one| Some(one.id) == self.node);
        let mine = mine.map(|one| one.pinned.clone()).unwrap_or_default();
        let (mut shards, mut others) = (Vec::new(), Vec::new());
        for other in candidates.iter().filter(|one| Some(one.id) != self.node) {
            let before = shards.len();
            shards.extend(other.pinned.iter().filter(|lease| mine.contains(lease)).cloned());
            if shards.len() > before {
                others.push(format!("{} ({})", other.name, other.id));
            }
        }
        shards.sort();
        shards.dedup();
        let reported = &mut self.sources[at].pinned_twice;
        if !shards.is_empty() && *reported != shards {
            let shown = shards.iter().map(|lease| &**lease).collect::<Vec<_>>().join(", ");
            let message = format!(
                "{shown}: this node and {} are both pinned to it; the lease decides which one owns it, give each node \
                 its own pins",
                others.join(" and ")
            );
            effects.push(Effect::Notice { code: codes::notice::PINNED_TWICE, message });
        }
        *reported = shards;
    }

    /// When this node should take the free lease; [`Moment::FAR`] if it should not, or does not know enough.
    pub(super) fn take_at(&self, lease: &Lease) -> Moment {
        let known = lease.row.as_ref().filter(|row| row.free).and(lease.free_since);
        let (Some(since), Some(me)) = (known.filter(|_| lease.wanted && self.is_eligible()), self.node) else {
            return Moment::FAR;
        };
        if self.known_view.view().is_none() || self.placement_due {
            return Moment::FAR;
        }
        let patience = self.config.heartbeat * 2;
        let wait = match (lease.kind, lease.owner) {
            (Kind::Queen, _) => candidate_wait(lease.rank, spread(me, me, Duration::from_millis(50))),
            (_, Some(owner)) if owner == me => Duration::ZERO,
            (Kind::Duty, _) => patience + candidate_wait(lease.rank, Duration::ZERO),
            (Kind::Shard(source), Some(_)) if self.takes_any(me, source) => {
                patience + spread(me, me, self.config.heartbeat / 2)
            }
            _ => return Moment::FAR,
        };
        since.after(wait).max(lease.not_before)
    }

    /// Whether this node takes any shard of the source. A pinned node takes only its pinned shards.
    fn takes_any(&self, me: NodeId, source: usize) -> bool {
        let name = &self.sources[source].name;
        let traits = self.known_view.traits(me);
        traits.is_some_and(|traits| traits.weight > 0 && traits.takes(name) && traits.pinned(name).is_empty())
    }

    /// Whether this node may read the lease's row. Reading creates missing rows, so a source's rows are read only after
    /// its shard count was compared.
    pub(super) fn may_look(&self, lease: &Lease) -> bool {
        match lease.kind {
            Kind::Shard(source) => self.sources[source].checked,
            Kind::Queen | Kind::Duty => self.is_eligible(),
        }
    }

    /// Whether this node would get a lease if `dead` expired.
    fn would_gain_from(&self, dead: NodeId) -> bool {
        let holds = |lease: &Lease| lease.row.as_ref().is_some_and(|row| row.holder == Some(dead) && !row.free);
        (0..self.sources.len()).any(|source| {
            self.leases.values().any(|lease| lease.kind == Kind::Shard(source) && holds(lease))
                && self
                    .owners(source, Some(dead))
                    .iter()
                    .any(|(name, owner)| *owner == self.node && self.leases.get(name).is_some_and(&holds))
        }) || self.leases.values().any(|lease| lease.kind == Kind::Duty && lease.wanted && holds(lease))
    }

    /// This node removed the queen after it had waited for its turn. It does not wait again before it takes her lease.
    pub(super) fn take_queen_lease_at_once(&mut self, dead: NodeId) {
        if let Some(lease) = self.leases.get_mut(QUEEN)
            && lease.row.as_ref().is_some_and(|row| row.holder == Some(dead))
        {
            lease.free_since = Some(Moment(self.now.0.saturating_sub(2_000_000)));
        }
    }

    /// How long this node waits before it removes an expired member, so that the nodes before it go first.
    pub(super) fn removal_delay(&mut self, dead: NodeId) -> Duration {
        let Some(me) = self.node else { return Duration::MAX };
        let is_queen = |lease: &Lease| matches!(lease.state, State::Held(_));
        let queen = self.leases.get(QUEEN);
        if queen.is_some_and(is_queen) {
            return Duration::ZERO;
        }
        let soon = |millis| spread(me, dead, Duration::from_millis(millis));
        if self.current_queen == Some(dead)
            && let Some(queen) = queen.filter(|_| self.is_eligible())
        {
            return candidate_wait(queen.rank, soon(50));
        }
        let queen_lives = self.current_queen.is_some_and(|queen| queen != dead && !self.removed.contains(&queen));
        let inherits = match self.gains_from.get(&dead) {
            Some(inherits) => *inherits,
            None => {
                let inherits = self.would_gain_from(dead);
                self.gains_from.insert(dead, inherits);
                inherits
            }
        };
        match (inherits, queen_lives) {
            // The queen goes first; a node that would get a lease follows soon after.
            (true, true) => Duration::from_millis(60) + soon(60),
            (true, false) => soon(50),
            (false, true) => self.config.heartbeat * 2 + soon(2_000),
            (false, false) => {
                let order = order(&self.candidates(None, Some(dead)), &dead.to_string());
                let rank = order.iter().position(|node| *node == me).unwrap_or(order.len());
                candidate_wait(rank, soon(50))
            }
        }
    }
}

/// The first three candidates act at once, the others one after the other, so that 1,000 nodes do not act together.
pub(super) fn candidate_wait(rank: usize, soon: Duration) -> Duration {
    let rank = u32::try_from(rank).unwrap_or(u32::MAX);
    if rank < 3 { soon } else { Duration::from_millis(50).saturating_mul(rank).min(Duration::from_secs(2)) }
}

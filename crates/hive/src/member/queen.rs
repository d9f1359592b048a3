//! What the queen does with each of her beats, and what happens to the dead.
//!
//! | who                         | when                                    | what                                        |
//! |-----------------------------|-----------------------------------------|---------------------------------------------|
//! | the queen                   | a beat of hers was answered             | Count, with the burials that are due        |
//! | the queen                   | every minute                            | Sweep                                       |
//! | the queen                   | a sweep has found as much as it may take | another one, a moment later                |
//! | anyone                      | another's end is due, and its turn      | an early beat, to be told of it             |
//! | anyone but the queen        | told of it                              | Bury                                        |
//! | anyone                      | it could not be buried                  | a beat soon: others are faster              |
//! | anyone                      | no recent count was published           | Tally, once per beat                        |
//! | on one machine              | twice a second, while others hold what is wanted | Bury, judged by their locks        |
//!
//! Her count is fenced: one who was paused writes nothing. Who is first to bury is decided in [`super::place`].

use std::time::Duration;

use honeyflow_runtime::{Failure, Moment};

use super::{
    Effect, Member,
    calls::{Asked, Sent},
    lease::{Lease, Row, State},
    millis,
};
use crate::{
    contract::{Burial, NodeId, QUEEN, Reply, Request, Status},
    term::Term,
};

const SWEEP_EVERY: Duration = Duration::from_secs(60);
const EVENTS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
const EVENTS_MAX: u64 = 10_000;
const BUCKETS_IDLE: Duration = Duration::from_secs(600);
const SWEPT_MAX: u32 = 1_000;
/// Before what was left over is swept: others want to write too.
const SWEEP_AGAIN: Duration = Duration::from_millis(100);
const PROBE_EVERY: Duration = Duration::from_millis(500);

impl Member {
    fn queen_term(&self) -> Option<&Term> {
        self.leases.get(QUEEN).and_then(Lease::term)
    }

    pub(super) fn learn_queen(&mut self, sent: &Sent, status: &Status, effects: &mut Vec<Effect>) {
        let Some(queen) = &status.queen else {
            self.queen_seen = None;
            return;
        };
        self.queen_seen = queen.holder.filter(|_| queen.node.is_some());
        let row = Row {
            epoch: queen.epoch,
            holder: queen.holder,
            heir: queen.heir,
            heir_is_warm: false,
            free: queen.node.is_none(),
        };
        self.read_row(&QUEEN.into(), row, false, sent, effects);
    }

    /// Those whose end is told, and whose burial is ours to ask for by now.
    fn due_burials(&mut self) -> Vec<Burial> {
        let nodes: Vec<NodeId> = self.watch.nodes().collect();
        let mut due = Vec::new();
        for node in nodes {
            let (Some(burial), Some(ripe_at)) = (self.watch.burial(node), self.ripe_at(node)) else {
                continue;
            };
            if ripe_at.after(self.stagger(node)) <= self.now {
                due.push(burial);
            }
        }
        due
    }

    fn ripe_at(&self, node: NodeId) -> Option<Moment> {
        self.watch.ripe_at(node, self.now)
    }

    /// Somebody is late: a beat of ours will tell whether it is dead.
    pub(super) fn beat_early(&mut self) {
        self.beat_early_at = Moment::FAR;
        if self.calls.is_beating() || !self.trust.holds(self.now) {
            return;
        }
        let nodes: Vec<NodeId> = self.watch.nodes().collect();
        for node in nodes {
            let Some(mut at) = self.ripe_at(node) else { continue };
            if at <= self.now {
                at = at.after(self.stagger(node));
            }
            if at > self.now {
                self.beat_early_at = self.beat_early_at.min(at);
            } else if self.trust.beaten_at < at {
                self.trust.sooner(self.now);
            }
        }
    }

    pub(super) fn bury_the_dead(&mut self, effects: &mut Vec<Effect>) {
        if self.is_burying() {
            return;
        }
        if self.told && self.queen_term().is_none() {
            let due = self.due_burials();
            if !due.is_empty() {
                self.told = false;
                return self.call(Asked::Bury(nodes_of(&due)), Request::Bury { nodes: due }, effects);
            }
        }
        if self.now >= self.probe_wake_at() {
            self.probe_at = self.now.after(PROBE_EVERY);
            let cause = "its lock is free";
            let probe = |node| Burial { node, beat: u64::MAX, silent: false, cause: cause.into() };
            let nodes: Vec<Burial> = self.rivals().into_iter().map(probe).collect();
            self.call(Asked::Bury(Vec::new()), Request::Bury { nodes }, effects);
        }
    }

    /// Those who hold what we want, on a machine where a lock says who lives.
    fn rivals(&self) -> Vec<NodeId> {
        let wanted = self.leases.values().filter(|lease| lease.wanted && lease.state == State::Apart);
        let held = wanted.filter_map(|lease| lease.row.as_ref()).filter(|row| !row.free);
        let mut rivals: Vec<NodeId> = held.filter_map(|row| row.holder).filter(|id| Some(*id) != self.node).collect();
        rivals.sort();
        rivals.dedup();
        rivals.truncate(crate::contract::SOONEST_MAX);
        rivals
    }

    fn is_burying(&self) -> bool {
        self.calls.is_open(|asked| matches!(asked, Asked::Bury(_) | Asked::Count(_)))
    }

    /// When the locks of those who hold what we want are tried. What is being asked is not asked again meanwhile.
    pub(super) fn probe_wake_at(&self) -> Moment {
        let watches = self.config.one_machine && self.is_eligible() && !self.rivals().is_empty();
        if watches && !self.is_burying() { self.probe_at } else { Moment::FAR }
    }

    pub(super) fn buried_others(&mut self, told: &[NodeId], result: Result<Reply, Failure>, effects: &mut Vec<Effect>) {
        if let Ok(Reply::Buried(buried)) = result {
            self.note_burials(told, &buried, effects);
        }
    }

    fn note_burials(&mut self, told: &[NodeId], buried: &[NodeId], effects: &mut Vec<Effect>) {
        if told.iter().any(|node| !buried.contains(node)) {
            // Others are faster, and what it held may be ours to take; but their burial may not be seen yet.
            let random = self.random();
            self.trust.sooner(self.now.after(self.config.look_again(random)));
        }
        for node in buried {
            let message = format!("node {node} is dead and was buried");
            effects.push(Effect::Notice { code: "buried", message });
            self.watch.forget(*node);
            self.gone.insert(*node);
            self.free_of(*node);
            self.succeed(*node);
        }
        if !buried.is_empty() {
            // The view has changed by that, and everybody should go on from there.
            self.trust.sooner(self.now);
        }
    }

    pub(super) fn see_to_the_count(&mut self, effects: &mut Vec<Effect>) {
        if std::mem::take(&mut self.mend_due) {
            self.call(Asked::Mend, Request::Mend, effects);
        }
        let fence = self.queen_term().and_then(|term| term.fence_at(self.now));
        if self.is_burying() {
            return;
        }
        match fence {
            Some(fence) if std::mem::take(&mut self.count_due) => {
                self.tally_due = false;
                let bury = self.due_burials();
                let every_ms = millis(self.config.count_every);
                self.call(Asked::Count(nodes_of(&bury)), Request::Count { fence, every_ms, bury }, effects);
            }
            None if std::mem::take(&mut self.tally_due) => self.call(Asked::Tally, Request::Tally, effects),
            _ => {}
        }
    }

    pub(super) fn sweep_if_due(&mut self, effects: &mut Vec<Effect>) {
        if self.now < self.sweep_wake_at() {
            return;
        }
        let Some(fence) = self.queen_term().and_then(|term| term.fence_at(self.now)) else { return };
        self.sweep_at = self.now.after(SWEEP_EVERY);
        let sweep = Request::Sweep {
            fence,
            event_ms: millis(EVENTS_KEPT),
            events_max: EVENTS_MAX,
            idle_ms: millis(BUCKETS_IDLE),
            rows_max: SWEPT_MAX,
        };
        self.call(Asked::Sweep, sweep, effects);
    }

    /// Far away while nothing can be swept.
    pub(super) fn sweep_wake_at(&self) -> Moment {
        let reigns = self.queen_term().is_some_and(|term| term.until() > self.now);
        let can = reigns && !self.calls.is_open(|asked| *asked == Asked::Sweep);
        if can { self.sweep_at } else { Moment::FAR }
    }

    /// As much as was allowed: there is more.
    pub(super) fn swept(&mut self, result: &Result<Reply, Failure>) {
        if let Ok(Reply::Swept { events, buckets }) = result
            && (*events).max(*buckets) >= u64::from(SWEPT_MAX)
        {
            self.sweep_at = self.now.after(SWEEP_AGAIN);
        }
    }

    pub(super) fn counted_as_queen(
        &mut self,
        told: &[NodeId],
        result: Result<Reply, Failure>,
        effects: &mut Vec<Effect>,
    ) {
        match result {
            Ok(Reply::Counted { counts, buried, .. }) => {
                self.count.counted(&counts, self.now);
                self.note_burials(told, &buried, effects);
            }
            Ok(Reply::Stale(_)) => {
                let epoch = self.queen_term().map(Term::epoch).unwrap_or_default();
                self.refused(&QUEEN.into(), epoch, effects);
            }
            _ => {}
        }
    }

    pub(super) fn tallied(&mut self, result: &Result<Reply, Failure>) {
        if let Ok(Reply::Counted { counts, .. }) = result {
            self.count.counted(counts, self.now);
        }
    }
}

fn nodes_of(burials: &[Burial]) -> Vec<NodeId> {
    burials.iter().map(|burial| burial.node).collect()
}

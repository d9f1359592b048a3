//! Joining and beating: what is sent, and what follows from the answers. The table is in [`super::trust`].

use honeyflow_event::Name;
use honeyflow_runtime::{Class, Failure, Moment};

use super::{
    Effect, Member,
    calls::{Asked, Sent},
    lease,
    lineage::Finding,
    millis,
    trust::{Hearing, Phase},
};
use crate::contract::{ENGAGED_MS, Held, NodeId, Reply, Request, State, Status};

impl Member {
    pub(super) fn identified(&mut self, node: NodeId) {
        if self.trust.phase == Phase::Out {
            self.node = Some(node);
        }
    }

    pub(super) fn join_if_due(&mut self, effects: &mut Vec<Effect>) {
        let Some(node) = self.node.filter(|_| self.now >= self.trust.beat_at) else { return };
        self.trust.phase = Phase::Joining;
        let request = Request::Join {
            node,
            name: self.config.name.clone(),
            heartbeat_ms: millis(self.config.heartbeat),
            ttl_ms: millis(self.config.time_to_live),
            meta: self.config.meta.clone(),
        };
        self.call(Asked::Join, request, effects);
    }

    pub(super) fn joined(&mut self, sent: &Sent, result: Result<Reply, Failure>, effects: &mut Vec<Effect>) {
        if self.trust.phase != Phase::Joining {
            return;
        }
        match result {
            Ok(Reply::Joined(_)) => {
                self.trust.phase = Phase::In;
                self.trust.hearing = Hearing::Good;
                // At once: nobody may lead before a beat has said that it wants to.
                self.trust.beat_at = self.now;
                self.trusted(sent.at, effects);
            }
            // Whoever was a member has work to go on with once it is mended: it says so, and tries on.
            Err(failure) if self.trust.heard_at.is_none() && matches!(failure.class, Class::Fatal | Class::Reject) => {
                self.trust.phase = Phase::Gone;
                effects.push(Effect::Refused(failure));
            }
            // Whether a row was made is unknown: it stays nobody's, and is buried in time.
            _ => self.out_again(effects),
        }
    }

    /// Under a fresh identity, after a moment.
    fn out_again(&mut self, effects: &mut Vec<Effect>) {
        self.trust.phase = Phase::Out;
        let wait = self.retry_wait();
        self.trust.beat_at = self.now.after(wait);
        self.node = None;
        effects.push(Effect::Identify);
    }

    pub(super) fn beat_if_due(&mut self, effects: &mut Vec<Effect>) {
        let Some(node) = self.node.filter(|_| self.now >= self.trust.beat_at && !self.calls.is_beating()) else {
            return;
        };
        let random = self.random();
        let period = self.config.period(random);
        self.trust.beat_at = self.now.after(period);
        self.trust.beaten_at = self.now;
        let read_only = self.trust.is_read_only();
        let state = self.state();
        if !read_only {
            self.traffic_told = self.traffic;
        }
        self.call(Asked::Beat { read_only }, Request::Beat { node, read_only, state }, effects);
    }

    fn state(&self) -> State {
        // Stores count every age from the same life; a shorter one is told as more of it gone.
        let gone = ENGAGED_MS.saturating_sub(millis(self.config.engaged_ttl));
        let age = self.traffic.map(|at| millis(self.now.since(at)) + gone).filter(|age| *age < ENGAGED_MS);
        State {
            engaged_age_ms: age,
            ready: self.ready && !self.pulse.is_deaf(),
            eligible: self.is_eligible(),
            warm: self.warm(),
        }
    }

    pub(super) fn beaten(
        &mut self,
        sent: &Sent,
        read_only: bool,
        result: Result<Reply, Failure>,
        effects: &mut Vec<Effect>,
    ) {
        if self.trust.phase != Phase::In {
            return;
        }
        let Ok(Reply::Beat(status)) = result else {
            if self.is_to_leave() {
                return self.leave_silent_store(effects);
            }
            if self.trust.hearing == Hearing::Renewing {
                self.trust.hearing = Hearing::Deaf;
            }
            let wait = self.retry_wait();
            return self.trust.sooner(self.now.after(wait));
        };
        self.trust.heard_at = Some(self.now);
        if !status.member {
            return self.buried(effects);
        }
        self.learn_lineage(sent, &status, effects);
        if self.trust.phase != Phase::In {
            return;
        }
        self.count.heard(&status.head.counts, status.head.hive_ms, self.now);
        self.known.told(status.head.version);
        if self.limits_told.replace(status.head.limits) != Some(status.head.limits) {
            effects.push(Effect::Limits(status.head.limits));
        }
        self.learn_heirs(&status.heir_of);
        self.learn_queen(sent, &status, effects);
        if status.renewed {
            self.learn_others(sent, &status, effects);
        }
        if read_only {
            self.trust.hearing = Hearing::Renewing;
            self.trust.beat_at = self.now;
            return;
        }
        self.trusted(sent.at, effects);
        self.tally_due = self.count.is_missing();
        self.count_due = true;
        self.mend_due |= status.ahead;
    }

    fn trusted(&mut self, sent_at: Moment, effects: &mut Vec<Effect>) {
        let from = if crate::planted::on("trust from reply time") { self.now } else { sent_at };
        self.trust.renewed(from.after(self.config.trust()), self.now);
        let until = self.trust.until;
        let dead = self.leases.iter().filter(|(_, lease)| !lease.extend(until)).map(|(name, _)| name.clone());
        // Looked at between the clock's reading here and now: only a new epoch helps whoever works under it.
        for name in dead.collect::<Vec<_>>() {
            let next = match self.leases.get(&name).map(|lease| &lease.state) {
                Some(lease::State::Held(term)) => lease::State::Dead(term.epoch()),
                _ => lease::State::Minting(None),
            };
            self.lose(&name, next, "it was found dead before a beat was answered", effects);
        }
        effects.push(Effect::Trust(self.trust.until));
    }

    fn learn_others(&mut self, sent: &Sent, status: &Status, effects: &mut Vec<Effect>) {
        let gap = self.watch.gap(self.config.heartbeat, sent.at);
        let step = self.watch.told(status, self.config.heartbeat, sent.at, self.now);
        self.told = true;
        if gap {
            self.lineage.unwatched(self.now);
        }
        if let Some(by_ms) = step {
            let message = format!("the store's clock has stepped by {by_ms} ms; nobody is buried for a while");
            effects.push(Effect::Notice { code: "clock-step", message });
        }
    }

    fn learn_lineage(&mut self, sent: &Sent, status: &Status, effects: &mut Vec<Effect>) {
        let finding = self.lineage.learn(&status.head, sent.version, self.config.time_to_live, self.now);
        if !matches!(finding, Finding::Same | Finding::WentBack(_)) {
            self.fallen.clear();
            self.lineage.believe();
        }
        // Kept until the store has heard of them.
        let fallen = self.fallen.clone();
        match finding {
            // Also where others were faster and it is behind no longer: the answer ends the doubt.
            Finding::Same if !fallen.is_empty() || self.lineage.is_doubted() => {
                if let Some(lineage) = self.lineage.name().cloned() {
                    self.tell_that_it_went_back(lineage, sent.version, fallen, effects);
                }
            }
            Finding::Same => {}
            Finding::Accepted => self.forget_rows(),
            Finding::Changed => {
                self.end_terms("the store is not the one it was", effects);
                self.forget_history();
            }
            Finding::Unrecorded { was, found } => {
                self.end_terms("the store is not the one it was", effects);
                self.forget_history();
                if !self.calls.is_open(|asked| *asked == Asked::Lineage) {
                    self.call(Asked::Lineage, Request::NewLineage { was, found }, effects);
                }
            }
            Finding::WentBack(lineage) => self.tell_that_it_went_back(lineage, sent.version, fallen, effects),
            Finding::TwoWriters(server) => {
                self.end_terms("the store is not the one it was", effects);
                self.trust.phase = Phase::Gone;
                let said = format!(
                    "server {server} had been replaced and answers again: two servers take writes for one hive; \
                     see to it that clients reach only one"
                );
                effects.push(Effect::Refused(Failure::fatal("two-writers", said)));
            }
        }
    }

    /// A version or an epoch is lower than we have seen it: what is held under it may be held by others too.
    pub(super) fn tell_that_it_went_back(
        &mut self,
        lineage: Name,
        version: u64,
        leases: Vec<Held>,
        effects: &mut Vec<Effect>,
    ) {
        self.end_terms("the store has gone back in time", effects);
        self.lineage.doubt();
        if self.calls.is_open(|asked| *asked == Asked::Behind) {
            return;
        }
        let message = "the store shows an older state than before, as after a restore; nothing is led until somebody \
                       says that it is right: honeyflow hive accept-restore";
        effects.push(Effect::Notice { code: "store-went-back", message: message.to_owned() });
        self.call(Asked::Behind, Request::Behind { lineage, version, leases }, effects);
    }

    pub(super) fn went_back(&mut self, told: bool) {
        if told {
            self.lineage.went_back();
            self.fallen.clear();
            // Also where others were faster and it is behind no longer: what was known of it is another history.
            self.forget_history();
        }
        self.beat_soon(told);
    }

    /// The answer said that this node is no member: others have buried it.
    pub(super) fn buried(&mut self, effects: &mut Vec<Effect>) {
        self.end_terms("this node was buried by others", effects);
        effects.push(Effect::Buried);
        self.calls.forget();
        self.watch.begin_again();
        self.count.begin_again();
        self.heir_of.clear();
        self.queen_seen = None;
        self.leases_begin_again();
        if self.is_to_leave() {
            return self.gone(effects);
        }
        self.out_again(effects);
    }

    pub(super) fn read_view_if_outdated(&mut self, effects: &mut Vec<Effect>) {
        if self.calls.is_open(|asked| *asked == Asked::View) {
            return;
        }
        // Asked once per told version: an answer that brings nothing is not asked for again before the next beat.
        if let Some(question) = self.known.question() {
            self.known.asked();
            self.call(Asked::View, question, effects);
        }
    }

    pub(super) fn viewed(&mut self, sent: &Sent, result: Result<Reply, Failure>, effects: &mut Vec<Effect>) {
        let Ok(reply) = result else {
            let wait = self.retry_wait();
            return self.trust.sooner(self.now.after(wait));
        };
        let news = self.known.read(reply);
        let events = match news {
            super::view::News::Nothing => return,
            super::view::News::Whole => None,
            super::view::News::Events(events) => Some(events),
        };
        let Some(view) = self.known.view().cloned() else { return };
        self.gone.retain(|gone| view.nodes.iter().any(|node| node.id == *gone));
        self.unplaced = true;
        self.read_rows(&view.leases, sent, false, effects);
        effects.push(Effect::Changed { view, events });
    }

    pub(super) fn engage(&mut self, at: Moment) {
        self.traffic = Some(self.traffic.map_or(at, |before| before.max(at)));
        // The first after a pause is told at once; after that the mark rides along.
        let paused = self.traffic_told.is_none_or(|told| at.since(told) >= self.config.engaged_ttl);
        let rings_at = self.trust.beaten_at.after(self.config.heartbeat / 8);
        if paused && self.trust.phase == Phase::In {
            self.trust.sooner(rings_at.max(self.now));
        }
    }

    pub(super) fn set_ready(&mut self, ready: bool) {
        if std::mem::replace(&mut self.ready, ready) != ready && self.trust.phase == Phase::In {
            self.trust.sooner(self.now);
        }
    }
}

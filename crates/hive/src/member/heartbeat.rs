//! Sends joins and heartbeats, and handles their replies. The transition table is in [`super::trust`].

use honeyflow_event::Name;
use honeyflow_runtime::{Class, Failure, Moment};

use super::{
    Effect, Member,
    calls::{CallKind, PendingCall},
    lease,
    lineage::Finding,
    millis,
    trust::{Contact, Phase},
};
use crate::{
    codes,
    contract::{ENGAGED_MS, HeldLease, NodeId, Reply, Request, State, Status},
};

impl Member {
    pub(super) fn set_identity(&mut self, node: NodeId) {
        if self.trust.phase == Phase::Out {
            self.node = Some(node);
        }
    }

    pub(super) fn join_if_due(&mut self, effects: &mut Vec<Effect>) {
        let Some(node) = self.node.filter(|_| self.now >= self.trust.heartbeat_at) else { return };
        self.trust.phase = Phase::Joining;
        let request = Request::Join {
            node,
            name: self.config.name.clone(),
            heartbeat_ms: millis(self.config.heartbeat),
            ttl_ms: millis(self.config.time_to_live),
            meta: self.config.meta.clone(),
        };
        self.call(CallKind::Join, request, effects);
    }

    pub(super) fn on_join_reply(
        &mut self,
        sent: &PendingCall,
        result: Result<Reply, Failure>,
        effects: &mut Vec<Effect>,
    ) {
        if self.trust.phase != Phase::Joining {
            return;
        }
        match result {
            Ok(Reply::Joined(_)) => {
                self.trust.phase = Phase::In;
                self.trust.contact = Contact::Good;
                // Send a heartbeat at once: a node may hold leases only after one has reported it as eligible.
                self.trust.heartbeat_at = self.now;
                self.extend_trust(sent.at, effects);
            }
            // Only on the first join: a former member has work to continue once the cause is repaired, and keeps
            // trying.
            Err(failure)
                if self.trust.answered_at.is_none() && matches!(failure.class, Class::Fatal | Class::Reject) =>
            {
                self.trust.phase = Phase::Gone;
                effects.push(Effect::Refused(failure));
            }
            // Whether a row was created is unknown. No node uses it, and the members remove it when it expires.
            _ => self.rejoin_later(effects),
        }
    }

    /// Joins again under a fresh identity, after a short delay.
    fn rejoin_later(&mut self, effects: &mut Vec<Effect>) {
        self.trust.phase = Phase::Out;
        let wait = self.retry_wait();
        self.trust.heartbeat_at = self.now.after(wait);
        self.node = None;
        effects.push(Effect::Identify);
    }

    pub(super) fn send_heartbeat_if_due(&mut self, effects: &mut Vec<Effect>) {
        let Some(node) =
            self.node.filter(|_| self.now >= self.trust.heartbeat_at && !self.calls.has_heartbeat_in_flight())
        else {
            return;
        };
        let random = self.random();
        let period = self.config.period(random);
        self.trust.heartbeat_at = self.now.after(period);
        self.trust.sent_at = self.now;
        let read_only = self.trust.is_read_only();
        let state = self.reported_state();
        if !read_only {
            self.reported_traffic = self.traffic;
        }
        self.call(CallKind::Beat { read_only }, Request::Beat { node, read_only, state }, effects);
    }

    fn reported_state(&self) -> State {
        // Stores count traffic for 30 s. With a shorter configured time, the node reports a higher age.
        let gone = ENGAGED_MS.saturating_sub(millis(self.config.engaged_ttl));
        let age = self.traffic.map(|at| millis(self.now.since(at)) + gone).filter(|age| *age < ENGAGED_MS);
        State {
            engaged_age_ms: age,
            ready: self.ready && !self.watchdog.is_stalled(),
            eligible: self.is_eligible(),
            warm: self.warm_leases(),
        }
    }

    pub(super) fn on_heartbeat_reply(
        &mut self,
        sent: &PendingCall,
        read_only: bool,
        result: Result<Reply, Failure>,
        effects: &mut Vec<Effect>,
    ) {
        if self.trust.phase != Phase::In {
            return;
        }
        let Ok(Reply::Beat(status)) = result else {
            if self.should_leave() {
                return self.leave_without_store(effects);
            }
            if self.trust.contact == Contact::Renewing {
                self.trust.contact = Contact::Lost;
            }
            let wait = self.retry_wait();
            return self.trust.heartbeat_by(self.now.after(wait));
        };
        self.trust.answered_at = Some(self.now);
        if !status.member {
            return self.on_removed(effects);
        }
        self.learn_lineage(sent, &status, effects);
        if self.trust.phase != Phase::In {
            return;
        }
        self.count.on_published(&status.head.counts, status.head.hive_ms, self.now);
        self.known_view.on_version(status.head.version);
        if self.published_limits.replace(status.head.limits) != Some(status.head.limits) {
            effects.push(Effect::Limits(status.head.limits));
        }
        self.learn_successions(&status.successor_of);
        self.learn_queen(sent, &status, effects);
        if status.renewed {
            self.learn_others(sent, &status, effects);
        }
        if read_only {
            self.trust.contact = Contact::Renewing;
            self.trust.heartbeat_at = self.now;
            return;
        }
        self.extend_trust(sent.at, effects);
        self.tally_due = self.count.is_missing();
        self.count_due = true;
        self.mend_due |= status.ahead;
    }

    fn extend_trust(&mut self, sent_at: Moment, effects: &mut Vec<Effect>) {
        let from = if crate::planted::on("trust from reply time") { self.now } else { sent_at };
        self.trust.renew(from.after(self.config.trust()), self.now);
        let until = self.trust.until;
        let dead = self.leases.iter().filter(|(_, lease)| !lease.extend(until)).map(|(name, _)| name.clone());
        // The work under the term checked it at a later clock reading and found it dead. Only a new epoch helps.
        for name in dead.collect::<Vec<_>>() {
            let next = match self.leases.get(&name).map(|lease| &lease.state) {
                Some(lease::State::Held(term)) => lease::State::Dead(term.epoch()),
                _ => lease::State::Minting(None),
            };
            self.lose(&name, next, "its term expired before a heartbeat was answered", effects);
        }
        effects.push(Effect::Trust(self.trust.until));
    }

    fn learn_others(&mut self, sent: &PendingCall, status: &Status, effects: &mut Vec<Effect>) {
        let gap = self.failure_detector.is_after_gap(self.config.heartbeat, sent.at);
        let step = self.failure_detector.on_heartbeat_reply(status, self.config.heartbeat, sent.at, self.now);
        self.has_fresh_reply = true;
        if gap {
            self.lineage.restart_watch(self.now);
        }
        if let Some(by_ms) = step {
            let message = format!("the store's clock stepped by {by_ms} ms; no member is removed for a while");
            effects.push(Effect::Notice { code: codes::notice::CLOCK_STEP, message });
        }
    }

    fn learn_lineage(&mut self, sent: &PendingCall, status: &Status, effects: &mut Vec<Effect>) {
        let finding = self.lineage.learn(&status.head, sent.version, self.config.time_to_live, self.now);
        if !matches!(finding, Finding::Same | Finding::WentBack(_)) {
            self.lowered_epochs.clear();
            self.lineage.clear_doubt();
        }
        // Keep them until the store has acknowledged them.
        let lowered = self.lowered_epochs.clone();
        match finding {
            // Also if another node was faster and the store is no longer behind: only the answer ends the doubt.
            Finding::Same if !lowered.is_empty() || self.lineage.is_doubted() => {
                if let Some(lineage) = self.lineage.name().cloned() {
                    self.report_older_state(lineage, sent.version, lowered, effects);
                }
            }
            Finding::Same => {}
            Finding::Accepted => self.forget_rows(),
            Finding::Changed => {
                self.end_terms("the store was replaced", effects);
                self.forget_history();
            }
            Finding::Unrecorded { was, found } => {
                self.end_terms("the store was replaced", effects);
                self.forget_history();
                if !self.calls.is_in_flight(|kind| *kind == CallKind::Lineage) {
                    self.call(CallKind::Lineage, Request::NewLineage { was, found }, effects);
                }
            }
            Finding::WentBack(lineage) => self.report_older_state(lineage, sent.version, lowered, effects),
            Finding::TwoWriters(server) => {
                self.end_terms("the store was replaced", effects);
                self.trust.phase = Phase::Gone;
                let message = format!(
                    "server {server} was replaced and answers again: two servers take writes for one hive; \
                     make sure that clients reach only one"
                );
                effects.push(Effect::Refused(Failure::fatal(codes::TWO_WRITERS, message)));
            }
        }
    }

    /// Reports to the store that a version or an epoch is lower than this node knows it. Ends the terms, because
    /// another node may hold the same leases.
    pub(super) fn report_older_state(
        &mut self,
        lineage: Name,
        version: u64,
        leases: Vec<HeldLease>,
        effects: &mut Vec<Effect>,
    ) {
        self.end_terms("the store shows an older state than before", effects);
        self.lineage.doubt();
        if self.calls.is_in_flight(|kind| *kind == CallKind::Behind) {
            return;
        }
        let message = "the store shows an older state than before, as after a restore; no node takes a lease until a \
                       person confirms the state: honeyflow hive accept-restore";
        effects.push(Effect::Notice { code: codes::notice::STORE_WENT_BACK, message: message.to_owned() });
        self.call(CallKind::Behind, Request::Behind { lineage, version, leases }, effects);
    }

    pub(super) fn on_behind_reply(&mut self, acknowledged: bool) {
        if acknowledged {
            self.lineage.on_acknowledged();
            self.lowered_epochs.clear();
            // Also if another node was faster and the store is no longer behind: earlier rows are another history.
            self.forget_history();
        }
        self.send_heartbeat_soon(acknowledged);
    }

    /// The reply says that this node is not a member: other members removed it.
    pub(super) fn on_removed(&mut self, effects: &mut Vec<Effect>) {
        self.end_terms("other members removed this node", effects);
        effects.push(Effect::Removed);
        self.calls.drop_all();
        self.failure_detector.reset();
        self.count.reset();
        self.successor_of.clear();
        self.current_queen = None;
        self.reset_leases();
        if self.should_leave() {
            return self.finish_leaving(effects);
        }
        self.rejoin_later(effects);
    }

    pub(super) fn read_view_if_outdated(&mut self, effects: &mut Vec<Effect>) {
        if self.calls.is_in_flight(|kind| *kind == CallKind::View) {
            return;
        }
        // Ask once per heartbeat reply: if the answer brings nothing new, wait for the next heartbeat.
        if let Some(request) = self.known_view.next_request() {
            self.known_view.mark_requested();
            self.call(CallKind::View, request, effects);
        }
    }

    pub(super) fn on_view_reply(
        &mut self,
        sent: &PendingCall,
        result: Result<Reply, Failure>,
        effects: &mut Vec<Effect>,
    ) {
        let Ok(reply) = result else {
            let wait = self.retry_wait();
            return self.trust.heartbeat_by(self.now.after(wait));
        };
        let news = self.known_view.read(reply);
        let events = match news {
            super::view::News::Nothing => return,
            super::view::News::Whole => None,
            super::view::News::Events(events) => Some(events),
        };
        let Some(view) = self.known_view.view().cloned() else { return };
        self.removed.retain(|gone| view.nodes.iter().any(|node| node.id == *gone));
        self.placement_due = true;
        self.read_rows(&view.leases, sent, false, effects);
        effects.push(Effect::Changed { view, events });
    }

    pub(super) fn record_traffic(&mut self, at: Moment) {
        self.traffic = Some(self.traffic.map_or(at, |before| before.max(at)));
        // Report the first request after a pause at once; later ones go with the regular heartbeats.
        let paused = self.reported_traffic.is_none_or(|last| at.since(last) >= self.config.engaged_ttl);
        let rings_at = self.trust.sent_at.after(self.config.heartbeat / 8);
        if paused && self.trust.phase == Phase::In {
            self.trust.heartbeat_by(rings_at.max(self.now));
        }
    }

    pub(super) fn set_ready(&mut self, ready: bool) {
        if std::mem::replace(&mut self.ready, ready) != ready && self.trust.phase == Phase::In {
            self.trust.heartbeat_by(self.now);
        }
    }
}

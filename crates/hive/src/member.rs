//! A node's membership in a hive, as one pure state machine: `(state, input, now) → effects`.
//!
//! It consists of small machines, each with its transition table: [`trust`] and [`heartbeat`] (membership),
//! [`watchdog`] (whether the main runtime is alive), [`failure_detector`] (which members have expired), [`lineage`]
//! (the store's history), [`view`] (the members and leases), [`lease`] and [`take`] (the states of one lease),
//! [`transfer`] (handing a lease over), [`candidacy`] (which node should hold what), [`queen`], [`count`] and
//! [`leave`]. This file contains what they share: inputs, effects, and the order of the checks. Trust is checked first,
//! so that a late answer cannot revive a dead term; then deadlines; then the input; then everything that has become
//! possible.

mod calls;
mod candidacy;
mod config;
mod count;
mod failure_detector;
mod heartbeat;
mod lease;
mod leave;
mod lineage;
mod one_off;
mod queen;
mod take;
pub mod traits;
mod transfer;
mod trust;
mod view;
mod watchdog;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use honeyflow_event::{Epoch, Name};
use honeyflow_runtime::{Failure, Moment};

use self::{
    calls::{CallKind, Calls, PendingCall},
    candidacy::Source,
    count::Count,
    failure_detector::FailureDetector,
    lease::{Kind, Lease},
    leave::Draining,
    lineage::Lineage,
    trust::{Phase, Trust},
    view::KnownView,
    watchdog::Watchdog,
};
use crate::{
    contract::{Event, HeldLease, NodeId, QUEEN, Reply, Request, View},
    term::Term,
};

pub use config::Config;
pub use count::Engaged;
pub use one_off::{take, take_as_member};

#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// A fresh identity, the answer to [`Effect::Identify`].
    Identity(NodeId),
    Answer {
        call: u64,
        result: Result<Reply, Failure>,
    },
    /// This node is a candidate for the duty.
    Want(Name),
    /// This node is no longer a candidate; it releases the lease if it holds it.
    Unwant(Name),
    /// Releases the lease and does not take it again for `wait`: another node may have more success with it.
    SitOut {
        lease: Name,
        wait: Duration,
    },
    /// This node should take its part of a source's shards. `pinned_only`: shards without a pinned node wait.
    Shards {
        source: Name,
        count: u32,
        pinned_only: bool,
    },
    /// This process no longer works on the source's shards; the node releases them.
    NoShards(Name),
    /// A new epoch is needed: the sequence runs short, or a sink already has epoch `floor`.
    Mint {
        lease: Name,
        floor: Epoch,
    },
    /// A store has refused a write under this epoch.
    Stale {
        lease: Name,
        epoch: Epoch,
    },
    /// The work under this epoch has ended, as [`Effect::Leave`] requested.
    Left(HeldLease),
    HandOver {
        lease: Name,
        to: Option<NodeId>,
    },
    /// The time of the last served request.
    Traffic(Moment),
    /// Whether this node may be given traffic.
    Ready(bool),
    /// The main runtime is alive.
    Pulse,
    /// Take no new leases, and hand over the held ones.
    Drain,
    Leave,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Send the request. An answer after `until` is ignored, and the outcome counts as unknown.
    Call {
        call: u64,
        request: Request,
        until: Moment,
    },
    /// A fresh identity is needed.
    Identify,
    Granted(Term),
    /// End the work under this epoch before `until`, then send [`Input::Left`]. The term is dead afterwards.
    Leave {
        held: HeldLease,
        until: Moment,
    },
    Lost {
        lease: Name,
        cause: &'static str,
    },
    /// Every term is valid until this moment.
    Trust(Moment),
    /// The view has changed, by these events; without events, it was read as a whole.
    Changed {
        view: Arc<View>,
        events: Option<Vec<Event>>,
    },
    Engaged(Engaged),
    /// The current version of the hive's limit definitions.
    Limits(u64),
    /// A message for people, sent once.
    Notice {
        code: &'static str,
        message: String,
    },
    /// The main runtime has been stalled for too long. The program should end the process.
    Stuck,
    /// This node cannot be a member, for this reason.
    Refused(Failure),
    /// Other members removed this node: its leases are lost, and it joins again under a fresh identity.
    Removed,
    Left,
}

/// A copy is another possible future of the same node, for model checking: the copy and the original do not affect each
/// other.
#[derive(Clone, Debug)]
pub struct Member {
    config: Config,
    node: Option<NodeId>,
    now: Moment,
    random: u64,
    calls: Calls,
    trust: Trust,
    watchdog: Watchdog,
    failure_detector: FailureDetector,
    lineage: Lineage,
    known_view: KnownView,
    count: Count,
    published_engaged: Option<Engaged>,
    published_limits: Option<u64>,
    leases: BTreeMap<Name, Lease>,
    sources: Vec<Source>,
    /// Removed members that the view may still show.
    removed: BTreeSet<NodeId>,
    /// Leases that name this node as successor, and since when it knows.
    successor_of: BTreeMap<Name, Moment>,
    look_as_successor_at: Moment,
    /// The queen, as long as her row exists.
    current_queen: Option<NodeId>,
    traffic: Option<Moment>,
    /// The last traffic that a heartbeat has reported to the store.
    reported_traffic: Option<Moment>,
    ready: bool,
    draining: Option<Draining>,
    /// The placement has to be computed again.
    placement_due: bool,
    /// For each node, whether this node would get leases if that one expired.
    gains_from: BTreeMap<NodeId, bool>,
    /// A heartbeat reply has arrived since the last request to remove members.
    has_fresh_reply: bool,
    /// Rises when the store is replaced or restored: answers to requests from before count as unanswered.
    store_number: u64,
    /// Leases whose epoch the store shows lower than before, with the higher epoch.
    lowered_epochs: Vec<HeldLease>,
    early_heartbeat_at: Moment,
    transfer_at: Moment,
    sweep_at: Moment,
    probe_at: Moment,
    /// Set once per heartbeat.
    tally_due: bool,
    mend_due: bool,
    count_due: bool,
}

impl Member {
    pub fn new(config: Config) -> Member {
        let mut leases = BTreeMap::new();
        if config.stands {
            leases.insert(QUEEN.into(), Lease::new(Kind::Queen, true));
        }
        Member {
            node: None,
            now: Moment::default(),
            random: config.seed | 1,
            calls: Calls::default(),
            trust: Trust::new(),
            watchdog: Watchdog::default(),
            failure_detector: FailureDetector::default(),
            lineage: Lineage::default(),
            known_view: KnownView::default(),
            count: Count::new(config.expected_nodes),
            published_engaged: None,
            published_limits: None,
            leases,
            sources: Vec::new(),
            removed: BTreeSet::new(),
            successor_of: BTreeMap::new(),
            look_as_successor_at: Moment::FAR,
            current_queen: None,
            traffic: None,
            reported_traffic: None,
            ready: config.ready,
            draining: None,
            placement_due: true,
            gains_from: BTreeMap::new(),
            has_fresh_reply: false,
            store_number: 0,
            lowered_epochs: Vec::new(),
            early_heartbeat_at: Moment::FAR,
            transfer_at: Moment::default(),
            sweep_at: Moment::default(),
            probe_at: Moment::default(),
            tally_due: false,
            mend_due: false,
            count_due: false,
            config,
        }
    }

    /// The current identity; `None` before the first one, and between two.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// The terms of the leases it holds, dead or alive.
    pub fn terms(&self) -> impl Iterator<Item = &Term> {
        self.leases.values().filter_map(Lease::term)
    }

    pub fn step(&mut self, input: Input, now: Moment, effects: &mut Vec<Effect>) {
        let passed = now.since(self.now);
        self.now = self.now.max(now);
        if self.trust.expire(self.now) {
            self.end_terms("no heartbeat was answered in time", effects);
        }
        self.check_watchdog(passed, effects);
        for sent in self.calls.take_overdue(self.now) {
            let within = sent.until.since(sent.at);
            self.on_answer(&sent, Err(calls::no_answer(within)), effects);
        }
        self.on_input(input, effects);
        self.act(effects);
        self.publish_engaged(effects);
    }

    fn on_input(&mut self, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Tick => {}
            Input::Identity(node) => self.set_identity(node),
            Input::Answer { call, result } => {
                if let Some(sent) = self.calls.take_answered(call) {
                    self.on_answer(&sent, result, effects);
                }
            }
            Input::Want(lease) => self.want(lease),
            Input::Unwant(lease) => self.unwant(&lease, Moment::FAR, effects),
            Input::SitOut { lease, wait } => self.unwant(&lease, self.now.after(wait), effects),
            Input::Shards { source, count, pinned_only } => self.want_shards(source, count, pinned_only),
            Input::NoShards(source) => self.unwant_shards(&source),
            Input::Mint { lease, floor } => self.mint_above(&lease, floor, effects),
            Input::Stale { lease, epoch } => self.on_stale_fence(&lease, epoch, effects),
            Input::Left(held) => self.on_left(&held, effects),
            Input::HandOver { lease, to } => self.request_transfer(&lease, to),
            Input::Traffic(at) => self.record_traffic(at),
            Input::Ready(ready) => self.set_ready(ready),
            Input::Pulse => self.on_pulse(),
            Input::Drain => self.drain(),
            Input::Leave => self.leave(effects),
        }
    }

    fn on_answer(&mut self, sent: &PendingCall, result: Result<Reply, Failure>, effects: &mut Vec<Effect>) {
        let is_ours = sent.store == self.store_number
            || sent.kind.concerns_only_this_node()
            || crate::planted::on("answers of another store");
        let result = if is_ours { result } else { Err(calls::another_store()) };
        match &sent.kind {
            CallKind::Join => self.on_join_reply(sent, result, effects),
            CallKind::Beat { read_only } => self.on_heartbeat_reply(sent, *read_only, result, effects),
            CallKind::View => self.on_view_reply(sent, result, effects),
            CallKind::Lineage => self.send_heartbeat_soon(result.is_ok()),
            CallKind::Behind => self.on_behind_reply(result.is_ok()),
            CallKind::Mend => {}
            CallKind::Sweep => self.on_sweep_reply(&result),
            CallKind::Remove(nodes) => self.on_removal_reply(nodes, result, effects),
            CallKind::Count(nodes) => self.on_count_reply(nodes, result, effects),
            CallKind::Tally => self.on_tally_reply(&result),
            CallKind::Look(names) => self.on_look_reply(sent, names, result, effects),
            CallKind::Take(names) => self.on_take_reply(names, result, effects),
            CallKind::Mint(names) => self.on_mint_reply(names, result, effects),
            CallKind::Transfer(name, successor) => self.on_transfer_reply(name, *successor, result),
            CallKind::Release(names) => self.on_release_reply(names, &result),
            CallKind::SetSuccessor(name, successor) => self.on_set_successor_reply(name, *successor, &result, effects),
            CallKind::Leave => self.on_leave_reply(result.is_ok(), effects),
        }
    }

    /// Does everything that has become possible; called after every input.
    fn act(&mut self, effects: &mut Vec<Effect>) {
        match self.trust.phase {
            Phase::Out => self.join_if_due(effects),
            Phase::In => {
                self.plan_early_heartbeat();
                self.send_heartbeat_if_due(effects);
                if self.trust.holds(self.now) {
                    self.read_view_if_outdated(effects);
                    self.place_if_changed(effects);
                    self.advance_leases(effects);
                    self.advance_transfers(effects);
                    self.remove_expired(effects);
                    self.sweep_if_due(effects);
                    self.count_if_due(effects);
                }
                self.leave_when_transferred(effects);
            }
            Phase::Leaving => self.leave_when_settled(effects),
            Phase::Joining | Phase::Gone => {}
        }
    }

    /// When the next `Tick` is due.
    pub fn wake_at(&self) -> Moment {
        let mut at = self.calls.deadline();
        match self.trust.phase {
            Phase::Out if self.node.is_some() => at = at.min(self.trust.heartbeat_at),
            Phase::In => {
                if !self.calls.has_heartbeat_in_flight() {
                    at = at.min(self.trust.heartbeat_at).min(self.early_heartbeat_at);
                }
                if self.trust.holds(self.now) {
                    at = at.min(self.trust.until).min(self.leases_wake_at());
                    at = at.min(self.sweep_wake_at()).min(self.probe_wake_at());
                }
                if self.config.pulsed {
                    at = at.min(self.now.after(self.watchdog_interval()));
                }
                at = at.min(self.count.stale_at(self.now)).min(self.leave_wake_at());
            }
            Phase::Leaving if !self.calls.is_in_flight(|_| true) => at = at.min(self.leave_call_at()),
            _ => {}
        }
        // A time that is due and leads to nothing must not cause a busy loop.
        if at == Moment::FAR { at } else { at.max(self.now.after(Duration::from_millis(1))) }
    }

    /// Draws a pseudo-random number; the seed determines the sequence.
    fn random(&mut self) -> u64 {
        // xorshift64*: good enough to keep nodes out of step.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Sends the next heartbeat soon: its reply shows the result.
    fn send_heartbeat_soon(&mut self, answered: bool) {
        let wait = if answered { Duration::ZERO } else { self.retry_wait() };
        self.trust.heartbeat_by(self.now.after(wait));
    }

    /// The delay before a failed request is retried.
    fn retry_wait(&mut self) -> Duration {
        let random = self.random();
        self.config.retry_wait(random)
    }

    fn call(&mut self, kind: CallKind, request: Request, effects: &mut Vec<Effect>) {
        let within = match kind {
            CallKind::Take(_) | CallKind::Mint(_) | CallKind::Transfer(..) => self.config.mint_deadline(),
            CallKind::Leave => self.config.deadline().min(self.remaining_leave_time()),
            _ => self.config.deadline(),
        };
        let (at, version, store) = (self.now, self.lineage.version, self.store_number);
        let sent = PendingCall { kind, at, until: at.after(within), version, store };
        self.calls.send(sent, request, effects);
    }

    /// Whether this node may hold leases: it is configured to, does not drain, and its main runtime is alive.
    fn is_eligible(&self) -> bool {
        self.config.eligible && self.draining.is_none() && !self.watchdog.is_stalled()
    }

    fn publish_engaged(&mut self, effects: &mut Vec<Effect>) {
        let engaged = self.count.engaged(self.now);
        if self.published_engaged != Some(engaged) {
            self.published_engaged = Some(engaged);
            effects.push(Effect::Engaged(engaged));
        }
    }
}

/// A delay below `below`, derived from two ids: the same pair always gives the same delay.
fn spread(one: NodeId, other: NodeId, below: Duration) -> Duration {
    let mut text = [0; 32];
    text[..16].copy_from_slice(one.0.as_bytes());
    text[16..].copy_from_slice(other.0.as_bytes());
    let micros = u64::try_from(below.as_micros()).unwrap_or(u64::MAX).max(1);
    Duration::from_micros(xxhash_rust::xxh64::xxh64(&text, 0) % micros)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

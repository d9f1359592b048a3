//! The nodes: delivers inputs to members and cores, and carries out their effects.

use honeyflow_engine::{
    core::{Effect, Input},
    shell::evaluate,
};
use honeyflow_hive::member;
use honeyflow_invariant::{Breach, exclusion::HeldTerm};
use honeyflow_store::Request;

use super::{
    World,
    database::{CallEnd, StoreCall},
    queue::Happening,
};
use crate::{
    fault::{AGAIN, Fault},
    node::{Incarnation, LifeState},
    options::{MILLI, SECOND},
};

/// After this many inputs a core is asked where its runs are.
const LOOK_EVERY: u64 = 64;

impl World {
    pub(super) fn start(&mut self, node: usize) {
        let runs =
            |one: &Incarnation| one.node == node && one.life == LifeState::Running && one.cut_off_until <= self.now;
        if self.incarnations.iter().any(runs) {
            return;
        }
        let number = self.incarnations.len() as u64 + 1;
        let plan = self.shapes.plan_of(number);
        self.incarnations.push(Incarnation::new(&self.options, plan, node, number, self.now));
        let who = self.incarnations.len() - 1;
        for _ in 0..self.options.workers {
            self.new_worker(who);
        }
        for store in 0..self.stores.len() {
            let (source, count) = (["shop", "depot"][store].into(), u32::from(self.stores[store].shards));
            self.deliver_to_member(who, store, member::Input::Shards { source, count, pinned_only: false });
            let identity = self.incarnations[who].identity(self.options.seed);
            self.deliver_to_member(who, store, member::Input::Identity(identity));
        }
        if self.options.plan.holds > 0 {
            self.after(SECOND, Happening::Looks { who });
        }
    }

    pub(super) fn kill(&mut self, who: usize) {
        let incarnation = &mut self.incarnations[who];
        if incarnation.is_alive() {
            incarnation.life = LifeState::Dead;
            let missed = incarnation.pauses_before_write.take();
            self.stats.stale_answers += incarnation.core.status().stale_answers;
            self.history.gone(incarnation.number, &self.shapes);
            if missed.is_some() {
                self.after(AGAIN, Happening::Strikes(Fault::Pause));
            }
        }
    }

    pub(super) fn tick(&mut self, who: usize) {
        let incarnation = &mut self.incarnations[who];
        if !incarnation.is_alive() || incarnation.tick_at > self.now {
            return;
        }
        incarnation.tick_at = u64::MAX;
        if incarnation.paused_until > self.now {
            let wait = incarnation.paused_until - self.now;
            incarnation.tick_at = incarnation.paused_until;
            self.after(wait, Happening::Tick { who });
            return;
        }
        for store in 0..self.stores.len() {
            if self.incarnations[who].is_alive() {
                self.deliver_to_member(who, store, member::Input::Tick);
            }
        }
        if self.incarnations[who].is_alive() {
            self.deliver_to_core(who, Input::Tick);
        }
    }

    fn rearm(&mut self, who: usize) {
        let incarnation = &mut self.incarnations[who];
        if !incarnation.is_alive() {
            return;
        }
        let at = incarnation.wake_at().max(self.now + 1);
        if at < incarnation.tick_at {
            incarnation.tick_at = at;
            self.after(at - self.now, Happening::Tick { who });
        }
    }

    pub(super) fn deliver_to_member(&mut self, who: usize, store: usize, input: member::Input) {
        let now = self.incarnations[who].local(self.now);
        let mut effects = std::mem::take(&mut self.member_effects);
        self.incarnations[who].members[store].step(input, now, &mut effects);
        for effect in effects.drain(..) {
            match effect {
                member::Effect::Call { call, request, .. } => {
                    let (there, back, ends) = self.travel();
                    self.after(there, Happening::HiveArrives { who, store, call, request, ends, back });
                }
                member::Effect::Identify => {
                    let identity = self.incarnations[who].identity(self.options.seed);
                    self.send_to_member(who, store, member::Input::Identity(identity));
                }
                member::Effect::Granted(term) => {
                    // Every database has its own hive, with leases of the same names.
                    let (lease, epoch) = (format!("{store}: {}", term.lease()), term.epoch());
                    self.note(epoch.0);
                    let holder = self.incarnations[who].number;
                    self.history.held.push(HeldTerm { lease, epoch, holder });
                    // A queen writes nothing here.
                    if term.lease().starts_with("shard/") {
                        self.incarnations[who].leases.insert(term.lease().clone());
                    }
                    self.deliver_to_core(who, Input::Granted(term));
                }
                member::Effect::Lost { lease, .. } => {
                    let incarnation = &mut self.incarnations[who];
                    incarnation.leases.remove(&lease);
                    if incarnation.leases.is_empty() && incarnation.pauses_before_write.take().is_some() {
                        self.after(AGAIN, Happening::Strikes(Fault::Pause));
                    }
                    self.deliver_to_core(who, Input::Lost { lease });
                }
                member::Effect::Leave { held, .. } => self.deliver_to_core(who, Input::Leave(held)),
                member::Effect::Trust(until) => {
                    for source in 0..self.options.sources() {
                        if self.store_of(source) == store {
                            self.deliver_to_core(who, Input::Trust { source, until });
                        }
                    }
                }
                member::Effect::Left if self.incarnations[who].left + 1 < self.incarnations[who].members.len() => {
                    self.incarnations[who].left += 1;
                }
                member::Effect::Refused(_) | member::Effect::Left => {
                    self.kill(who);
                    let node = self.incarnations[who].node;
                    let wait = self.random.between(50 * MILLI, SECOND);
                    self.after(wait, Happening::Restarts { node });
                }
                _ => {}
            }
        }
        self.member_effects = effects;
        self.rearm(who);
    }

    pub(super) fn deliver_to_core(&mut self, who: usize, input: Input) {
        let now = self.incarnations[who].local(self.now);
        if let Input::Pause { workflow, paused } = &input {
            self.incarnations[who].hold(workflow, *paused);
        }
        let mut effects = std::mem::take(&mut self.effects);
        let incarnation = &mut self.incarnations[who];
        incarnation.core.advance(input, now, &mut effects);
        incarnation.core.take_facts(&mut self.facts);
        incarnation.heard += 1;
        if incarnation.heard.is_multiple_of(LOOK_EVERY) {
            self.history.look(&incarnation.core, incarnation.number);
        }
        let (runs, rows) = incarnation.core.in_memory();
        self.history.most_runs = self.history.most_runs.max(runs);
        self.history.most_rows = self.history.most_rows.max(rows);
        let holder = incarnation.number;
        for fact in self.facts.drain(..) {
            if let Some(key) = self.watched.as_deref()
                && self.history.key_of(holder, &fact) == Some(key)
            {
                eprintln!("{:>12} {key}: incarnation {who} {fact:?}", self.now);
            }
            self.history.note(holder, &fact, &self.shapes);
        }
        for effect in effects.drain(..) {
            self.carry_out(who, effect);
        }
        self.effects = effects;
        self.rearm(who);
    }

    /// Reads from every core where its runs are.
    pub(super) fn look_everywhere(&mut self) {
        for incarnation in self.incarnations.iter().filter(|one| one.is_alive()) {
            self.history.look(&incarnation.core, incarnation.number);
            self.stats.stale_answers += incarnation.core.status().stale_answers;
        }
    }

    fn carry_out(&mut self, who: usize, effect: Effect) {
        let (asked, request) = match effect {
            Effect::Recover { source, shard, recovery } => {
                (StoreCall::Recover(source, recovery), Request::Recover { shard })
            }
            Effect::Poll { source, poll, request } => (StoreCall::Poll(source, poll), Request::Poll(request)),
            Effect::Write { source, write, request } => (StoreCall::Write(source, write), Request::Write(request)),
            Effect::LookUpSignals { source, lookup, wanted } => {
                (StoreCall::Look(source, lookup), Request::Signals(wanted))
            }
            Effect::Give { worker, batch, work, .. } => {
                let workflow = super::workers::workflow_of(&work);
                if self.incarnations[who].holds(&workflow) {
                    let what = format!("{workflow} is paused, and a batch of it was given out");
                    self.history.breaches.push(Breach::new("WF-52", what));
                }
                self.use_permits(who, &work);
                return self.give(who, worker, batch, work);
            }
            Effect::Take { limit, take, permits } => return self.take(who, limit, take, permits),
            Effect::GiveBack { permits, .. } => return self.given_back(who, permits),
            Effect::Mint { source, lease, floor } => {
                return self.send_to_member(who, self.store_of(source), member::Input::Mint { lease, floor });
            }
            Effect::Left(held) => {
                self.incarnations[who].leases.remove(&held.lease);
                let store = self.shapes.plan.sources.iter().find(|source| source.lease == held.lease);
                return self.send_to_member(who, store.map_or(0, |source| source.port), member::Input::Left(held));
            }
            Effect::Drained => {
                return (0..self.stores.len()).for_each(|store| self.send_to_member(who, store, member::Input::Leave));
            }
            Effect::CheckEvents { check, items, .. } => {
                let input = Input::EventsChecked { check, results: items.iter().map(evaluate::check_event).collect() };
                let wait = 1 + self.random.below(self.options.steps.latency_us);
                return self.after(wait, Happening::Hears { who, input });
            }
            Effect::Cancel { .. } | Effect::Withdraw { .. } | Effect::Alarm { .. } => return,
        };
        let (mut there, back, mut ends) = self.travel();
        if let (StoreCall::Write(..), Some(pause)) = (asked, self.incarnations[who].pauses_before_write) {
            self.incarnations[who].pauses_before_write = None;
            if self.has_peer(who) {
                self.incarnations[who].paused_until = self.now + pause;
                there += pause;
                ends = CallEnd::Well;
                let since = self.history.held.len();
                self.after(pause, Happening::Wakes { who, since });
            } else {
                self.after(AGAIN, Happening::Strikes(Fault::Pause));
            }
        }
        self.after(there, Happening::StoreArrives { who, asked, request, ends, back });
    }

    /// Sends an input to the member. The member has its own thread, so it receives the input a moment later.
    pub(super) fn send_to_member(&mut self, who: usize, store: usize, input: member::Input) {
        self.after(1, Happening::Tells { who, store, input });
    }

    /// Reports the pauses that operators have requested to the core, repeatedly.
    pub(super) fn report_pauses(&mut self, who: usize) {
        if !self.incarnations[who].is_alive() {
            return;
        }
        self.after(SECOND, Happening::Looks { who });
        if self.deferred(who).is_some() || self.incarnations[who].cut_off_until > self.now {
            return;
        }
        for workflow in self.shapes.plan.clone().workflows.iter().map(|workflow| workflow.name.clone()) {
            let paused = self.stores.iter().flat_map(|store| &store.paused).any(|pause| *pause.name == *workflow);
            self.deliver_to_core(who, Input::Pause { workflow, paused });
        }
    }
}

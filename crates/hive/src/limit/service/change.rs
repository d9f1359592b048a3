//! Definitions: what the store has, what this process was told, and when a change comes into force.
//!
//! A change has an instant on the store's clock, of which a node knows only an interval. Lowering counts from its early
//! end and raising from its late one, so that at no time anybody is above the limit in force.
//!
//! The store also keeps what the limit was last *told* to be, as a definition under a name of its own ([`told_name`]):
//!
//! | told, by the store's word   | in force                | what a node does that was told something      |
//! |-----------------------------|-------------------------|-----------------------------------------------|
//! | the same                    | anything                | nothing: what somebody has set stands         |
//! | something else, or nothing  | what this node was told | writes down what it was told                  |
//! | something else, or nothing  | something else          | sets the limit once, then writes down         |
//!
//! So a limit that a person has set lasts until what is told changes itself. Each process looks once: a fleet of two
//! minds does not quarrel, the last one that started is right.

use std::sync::{Arc, atomic::Ordering};

use honeyflow_event::Name;

use super::{Aim, Service, State, ledger};
use crate::{
    bucket::SLOT_MS,
    contract::limit::{Definition, Limit, Rule},
    limit::definition::{SECOND, Terms},
};

const TOLD: &str = "told/";

/// What was booked under the old definition has ended by then.
pub const BOOKED_MS: u64 = 2 * SLOT_MS;

/// No node knows the store's clock less well than a call may take.
const EARLY_MS: u64 = 1_000;

/// Under this name the store keeps what a limit was last told to be. It limits nothing.
pub fn told_name(limit: &str) -> Name {
    format!("{TOLD}{limit}").into()
}

/// Whether a definition only says what another one was told to be.
pub fn is_told_name(name: &str) -> bool {
    name.starts_with(TOLD)
}

pub(super) struct Change {
    pub at_ns: u64,
    limit: Arc<State>,
    terms: Terms,
}

impl Service {
    pub(super) fn read_limits(&mut self) {
        if !std::mem::replace(&mut self.reading, true) {
            self.ask(Aim::Limits, ledger::Request::Limits);
        }
    }

    pub(super) fn land_limits(&mut self, asked_ns: u64, reply: Option<ledger::Reply>) {
        self.reading = false;
        let Some(ledger::Reply::Limits { hive_ms, version, limits }) = reply else {
            // Soon: a change that it would have told of comes into force after two heartbeats.
            self.read_at_ns = Some(self.now_ns().saturating_add(SECOND / 4));
            return;
        };
        let answered_ns = self.now_ns();
        self.version = version;
        for state in self.registry.all() {
            let Some(stored) = limits.iter().find(|limit| limit.name == state.name) else {
                self.set(&state, None);
                continue;
            };
            let terms = state.defined.under(stored.now.rule, stored.now.version);
            let own = state.setting.load().terms.version;
            // A lower one is in force here a little sooner than there.
            let is_early = |next: &Definition| next.version == own && next.effective_ms < hive_ms + EARLY_MS;
            if own != stored.now.version && !stored.next.as_ref().is_some_and(is_early) {
                self.put_in_force(&state, terms);
            }
            self.forget_changes(&state, stored.next.map(|next| next.version));
            if let Some(next) = stored.next.filter(|next| !is_early(next)) {
                self.plan(&state, terms, next, hive_ms, asked_ns, answered_ns);
            }
            let told = limits.iter().find(|limit| *limit.name == *told_name(&state.name));
            self.tell(&state, stored, told);
        }
    }

    /// What was to come and is not told of any more does not come: the store has lost it.
    fn forget_changes(&mut self, state: &Arc<State>, next: Option<u64>) {
        let planned = self.changes.len();
        self.changes.retain(|change| !Arc::ptr_eq(&change.limit, state) || next == Some(change.terms.version));
        if self.changes.len() < planned {
            state.ends_ns.store(u64::MAX, Ordering::Relaxed);
            state.set(&state.setting.load().terms);
        }
    }

    /// One request at a time: each answer leads back here, until the store knows.
    fn tell(&mut self, state: &Arc<State>, stored: &Limit, told: Option<&Limit>) {
        let rule = state.defined.rule();
        let newest = |limit: &Limit| limit.next.unwrap_or(limit.now);
        // Seen or heard, it was set: a lost answer must not have it set again over somebody else's word.
        if newest(stored).rule == rule {
            self.set.insert(state.name.clone());
        }
        let is_set = self.set.contains(&state.name);
        if self.reading || self.told.contains(&state.name) {
            return;
        }
        if told.is_some_and(|told| newest(told).rule == rule) {
            self.told.insert(state.name.clone());
        } else if is_set && told.is_none_or(|told| told.next.is_none()) {
            let was = told.map(|told| told.now.version);
            self.write(told_name(&state.name), rule, was);
        } else if !is_set && stored.next.is_none() {
            self.set(state, Some(stored.now.version));
        } else {
            // Another change is on its way; once it is in force, this one can be told.
            self.read_again();
        }
    }

    pub(super) fn read_again(&mut self) {
        self.read_at_ns = Some(self.now_ns().saturating_add(SECOND));
    }

    fn set(&mut self, state: &Arc<State>, was: Option<u64>) {
        if !self.reading {
            self.write(state.name.clone(), state.defined.rule(), was);
        }
    }

    fn write(&mut self, limit: Name, rule: Rule, was: Option<u64>) {
        self.reading = true;
        self.ask(Aim::Set(limit.clone()), ledger::Request::Set { limit, was, rule, after_ms: BOOKED_MS });
    }

    pub(super) fn land_set(&mut self, name: Name, reply: Option<&ledger::Reply>) {
        self.reading = false;
        match reply {
            Some(ledger::Reply::Set { .. }) => {
                self.set.insert(name);
                self.read_limits();
            }
            Some(_) => self.read_limits(),
            None => self.read_again(),
        }
    }

    fn plan(
        &mut self,
        state: &Arc<State>,
        now: Terms,
        next: Definition,
        hive_ms: u64,
        asked_ns: u64,
        answered_ns: u64,
    ) {
        if self.changes.iter().any(|change| Arc::ptr_eq(&change.limit, state) && change.terms.version == next.version) {
            return;
        }
        let terms = state.defined.under(next.rule, next.version);
        let wait_ns = next.effective_ms.saturating_sub(hive_ms).saturating_mul(1_000_000);
        let lowers = is_lower(&terms, &now);
        let at_ns = if lowers { asked_ns } else { answered_ns }.saturating_add(wait_ns);
        if lowers {
            state.end_at(at_ns);
        }
        self.changes.push(Change { at_ns, limit: state.clone(), terms });
    }

    pub(super) fn change_limits(&mut self, now_ns: u64) {
        while let Some(at) = self.changes.iter().position(|change| change.at_ns <= now_ns) {
            let Change { limit, terms, .. } = self.changes.swap_remove(at);
            if limit.setting.load().terms.version < terms.version {
                self.put_in_force(&limit, terms);
            }
        }
    }

    fn put_in_force(&mut self, state: &Arc<State>, terms: Terms) {
        let before = state.setting.load().terms;
        state.ends_ns.store(u64::MAX, Ordering::Relaxed);
        state.set(&terms);
        if is_lower(&terms, &before) {
            state.void();
        }
        self.tell_all(state);
    }
}

fn is_lower(next: &Terms, now: &Terms) -> bool {
    next.rate.as_per_second() < now.rate.as_per_second() || next.burst < now.burst
}

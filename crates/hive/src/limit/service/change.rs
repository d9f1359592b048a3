//! Definitions of limits: what the store has, what this process declared, and when a change comes into force.
//!
//! A change comes into force at an instant of the store's clock, which a node knows only as an interval of its own
//! clock. A node lowers a limit at the early end of the interval and raises it at the late end, so that it is never
//! above the limit in force.
//!
//! The store also records what a process last *declared* the limit to be, as a definition under another name
//! ([`declared_name`]). A node that starts with a declaration compares:
//!
//! | recorded declaration  | limit in the store         | what the node does                                    |
//! |-----------------------|----------------------------|-------------------------------------------------------|
//! | the same              | any                        | nothing: a limit that an operator has set stays       |
//! | another, or none      | as this node declared it   | records its declaration                               |
//! | another, or none      | another                    | sets the limit once, then records its declaration     |
//!
//! So a limit that an operator has set lasts until the declaration changes. Each process does this once: if processes
//! declare different limits, they do not overwrite each other again and again, and the one that started last wins.

use std::sync::{Arc, atomic::Ordering};

use honeyflow_event::Name;

use super::{Purpose, Service, State, ledger};
use crate::{
    bucket::SECOND_MS,
    contract::limit::{Definition, Limit, Rule},
    limit::definition::{SECOND, Terms},
};

const DECLARED_PREFIX: &str = "told/";

/// Reservations that were made under the old definition have ended after this time.
pub const RESERVED_MS: u64 = 2 * SECOND_MS;

/// A node knows the store's clock at least this well: the uncertainty is at most the duration of a call.
const EARLY_MS: u64 = 1_000;

/// The name under which the store records the last declaration of a limit. It limits nothing.
pub fn declared_name(limit: &str) -> Name {
    format!("{DECLARED_PREFIX}{limit}").into()
}

/// Whether a definition is only the recorded declaration of another one.
pub fn is_declared_name(name: &str) -> bool {
    name.starts_with(DECLARED_PREFIX)
}

pub(super) struct Change {
    pub at_ns: u64,
    limit: Arc<State>,
    terms: Terms,
}

impl Service {
    pub(super) fn read_limits(&mut self) {
        if !std::mem::replace(&mut self.reading, true) {
            self.ask(Purpose::Limits, ledger::Request::Limits);
        }
    }

    pub(super) fn on_limits_reply(&mut self, asked_ns: u64, reply: Option<ledger::Reply>) {
        self.reading = false;
        let Some(ledger::Reply::Limits { hive_ms, version, limits }) = reply else {
            // Read again soon: a change that the answer would have contained comes into force after two heartbeats.
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
            let terms = state.defined.with_rule(stored.now.rule, stored.now.version);
            let own = state.setting.load().terms.version;
            // A lower limit is in force on the node a little sooner than in the store.
            let is_early = |next: &Definition| next.version == own && next.effective_ms < hive_ms + EARLY_MS;
            if own != stored.now.version && !stored.next.as_ref().is_some_and(is_early) {
                self.put_in_force(&state, terms);
            }
            self.forget_changes(&state, stored.next.map(|next| next.version));
            if let Some(next) = stored.next.filter(|next| !is_early(next)) {
                self.plan(&state, terms, next, hive_ms, asked_ns, answered_ns);
            }
            let declared = limits.iter().find(|limit| *limit.name == *declared_name(&state.name));
            self.sync_declaration(&state, stored, declared);
        }
    }

    /// Cancels planned changes that the store's answer does not contain any more: the store has lost them.
    fn forget_changes(&mut self, state: &Arc<State>, next: Option<u64>) {
        let planned = self.changes.len();
        self.changes.retain(|change| !Arc::ptr_eq(&change.limit, state) || next == Some(change.terms.version));
        if self.changes.len() < planned {
            state.ends_ns.store(u64::MAX, Ordering::Relaxed);
            state.set(&state.setting.load().terms);
        }
    }

    /// Sets the limit and records the declaration, one request at a time; each answer leads back here until both are
    /// stored.
    fn sync_declaration(&mut self, state: &Arc<State>, stored: &Limit, declared: Option<&Limit>) {
        let rule = state.defined.rule();
        let newest = |limit: &Limit| limit.next.unwrap_or(limit.now);
        // The limit was set, even if the answer was lost. It must not be set again over a later change by an operator.
        if newest(stored).rule == rule {
            self.was_set.insert(state.name.clone());
        }
        let is_set = self.was_set.contains(&state.name);
        if self.reading || self.recorded.contains(&state.name) {
            return;
        }
        if declared.is_some_and(|declared| newest(declared).rule == rule) {
            self.recorded.insert(state.name.clone());
        } else if is_set && declared.is_none_or(|declared| declared.next.is_none()) {
            let was = declared.map(|declared| declared.now.version);
            self.write(declared_name(&state.name), rule, was);
        } else if !is_set && stored.next.is_none() {
            self.set(state, Some(stored.now.version));
        } else {
            // Another change is pending; once it is in force, this one can be sent.
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
        self.ask(Purpose::Set(limit.clone()), ledger::Request::Set { limit, was, rule, after_ms: RESERVED_MS });
    }

    pub(super) fn on_set_reply(&mut self, name: Name, reply: Option<&ledger::Reply>) {
        self.reading = false;
        match reply {
            Some(ledger::Reply::Set { .. }) => {
                self.was_set.insert(name);
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
        let terms = state.defined.with_rule(next.rule, next.version);
        let wait_ns = next.effective_ms.saturating_sub(hive_ms).saturating_mul(1_000_000);
        let lowers = is_lower(&terms, &now);
        let at_ns = if lowers { asked_ns } else { answered_ns }.saturating_add(wait_ns);
        if lowers {
            state.expire_by(at_ns);
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
            state.void_permits();
        }
        self.notify_keys(state);
    }
}

fn is_lower(next: &Terms, now: &Terms) -> bool {
    next.rate.as_per_second() < now.rate.as_per_second() || next.burst < now.burst
}

//! Definitions: what the store has, what this process was told, and when a change comes into force.
//!
//! A change has an instant on the store's clock, of which a node knows only an interval. Lowering counts from its early
//! end and raising from its late one, so that at no time anybody is above the limit in force.

use std::sync::Arc;

use super::{Aim, Service, State, ledger};
use crate::{contract::limit::Definition, limit::definition::Terms};

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
        let Some(ledger::Reply::Limits { hive_ms, version, limits }) = reply else { return };
        let answered_ns = self.now_ns();
        self.version = version;
        for state in self.registry.all() {
            let Some(stored) = limits.iter().find(|limit| limit.name == state.name) else {
                self.set(&state, None);
                continue;
            };
            let terms = state.defined.under(stored.now.rule, stored.now.version);
            if state.setting.load().terms.version != stored.now.version {
                self.put_in_force(&state, terms);
            }
            if let Some(next) = stored.next {
                self.plan(&state, terms, next, hive_ms, asked_ns, answered_ns);
            }
            // What this process was told wins over what stands there, once: what is set later stays.
            let is_first_look = self.told.insert(state.name.clone());
            if is_first_look && stored.next.is_none() && stored.now.rule != state.defined.rule() {
                self.set(&state, Some(stored.now.version));
            }
        }
    }

    fn set(&mut self, state: &Arc<State>, was: Option<u64>) {
        self.told.insert(state.name.clone());
        self.reading = true;
        let request = ledger::Request::Set { limit: state.name.clone(), was, rule: state.defined.rule(), after_ms: 0 };
        self.ask(Aim::Set, request);
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
        let from_ns = if is_lower(&terms, &now) { asked_ns } else { answered_ns };
        self.changes.push(Change { at_ns: from_ns.saturating_add(wait_ns), limit: state.clone(), terms });
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
        let setting = self.registry.common.standing().setting(&terms);
        state.setting.store(Arc::new(setting));
        if is_lower(&terms, &before) {
            state.void();
        }
        self.tell_all(state);
    }
}

fn is_lower(next: &Terms, now: &Terms) -> bool {
    next.rate.as_per_second() < now.rate.as_per_second() || next.burst < now.burst
}

//! Limits for which the store decides on every request. The node remembers only refusals, until the time that the store
//! named.

use super::{
    Effect, FullAt, Key, LocalPermits, Origin, Patience, PendingDecision, Reason, RememberedRefusal, Setting,
    StoreAnswer,
};
use crate::limit::definition::MILLISECOND;

/// The most decisions in flight for one key; further requests wait in the queue.
const PENDING_MAX: usize = 64;

impl<W> Key<W> {
    pub(super) fn attend_exact(&mut self, now_ns: u64, setting: &Setting, effects: &mut Vec<Effect<W>>) {
        self.draw_at_ns = u64::MAX;
        let version = setting.terms.version;
        self.refusal = self.refusal.filter(|refusal| refusal.version == version && refusal.until_ns > now_ns);
        if let Some(refusal) = self.refusal {
            let retry_ns = refusal.until_ns - now_ns;
            let immediate =
                self.queue.remove(|waiter| waiter.patience == Patience::Immediate && waiter.cost >= refusal.cost);
            effects.extend(immediate.into_iter().map(|waiter| Effect::Refuse {
                token: waiter.token,
                retry_ns,
                reason: Reason::Exhausted,
            }));
        }
        while self.pending.len() < PENDING_MAX {
            let Some(waiter) = self.queue.pop() else { break };
            if let Some(refusal) = self.refusal.filter(|refusal| waiter.cost >= refusal.cost) {
                self.draw_at_ns = refusal.until_ns;
                self.queue.push_front(waiter);
                break;
            }
            self.calls += 1;
            effects.push(Effect::Take { call: self.calls, cost: waiter.cost });
            self.pending.push(PendingDecision { call: self.calls, started_ns: now_ns, version, waiter });
        }
    }

    /// Handles the store's decision on one request; the node asked at `asked_ns`. `None`: the store failed to decide.
    #[expect(clippy::too_many_arguments, reason = "the call and its answer, and what every step of a key is given")]
    pub fn on_decision(
        &mut self,
        call: u64,
        asked_ns: u64,
        answer: Option<StoreAnswer>,
        now_ns: u64,
        setting: &Setting,
        local: &LocalPermits,
        full_at: &FullAt,
        effects: &mut Vec<Effect<W>>,
    ) {
        let Some(at) = self.pending.iter().position(|pending| pending.call == call) else {
            // The caller has gone, so the permits go back.
            if let Some(drawn) = answer.filter(|drawn| drawn.given > 0) {
                let origin = Origin::from_store(asked_ns, drawn.full_ms, drawn.window_ms);
                effects.push(Effect::GiveBack { permits: drawn.given, origin });
            }
            return;
        };
        let PendingDecision { waiter, version, started_ns, .. } = self.pending.remove(at);
        if let Some(drawn) = answer {
            self.remember_remainder(drawn, now_ns);
        }
        match answer {
            Some(drawn) if drawn.given >= waiter.cost => {
                self.admitted += waiter.cost;
                let waited_ns = now_ns.saturating_sub(waiter.since_ns);
                let origin = Origin::from_store(started_ns, drawn.full_ms, drawn.window_ms);
                effects.push(Effect::Grant { token: waiter.token, permits: waiter.cost, origin, waited_ns });
            }
            Some(drawn) => {
                // The wait counts from the start of the call: the store may have decided as early as that.
                let retry_ns = drawn.retry_ms.saturating_mul(MILLISECOND);
                let until_ns = started_ns.saturating_add(retry_ns).max(now_ns + MILLISECOND);
                let known = self.refusal.filter(|refusal| refusal.version == version && refusal.cost <= waiter.cost);
                if known.is_none() {
                    self.refusal = Some(RememberedRefusal { until_ns, cost: waiter.cost, version });
                }
                match waiter.patience {
                    Patience::Immediate => {
                        let retry_ns = until_ns - now_ns;
                        effects.push(Effect::Refuse { token: waiter.token, retry_ns, reason: Reason::Exhausted });
                    }
                    Patience::UntilDeadline => self.queue.push_front(waiter),
                }
            }
            None if waiter.patience == Patience::Immediate => {
                let retry_ns = self.retry_ns(now_ns);
                effects.push(Effect::Refuse { token: waiter.token, retry_ns, reason: Reason::StoreSilent });
            }
            None => {
                self.queue.push_front(waiter);
                self.draw_at_ns = now_ns + setting.batch_ns;
                return;
            }
        }
        // The limit may have another decider or another mode by now.
        self.attend(now_ns, setting, local, full_at, effects);
    }
}

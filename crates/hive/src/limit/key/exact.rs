//! Every decision is the store's; only refusals are remembered, until the store said that it would say otherwise.

use super::{Asked, Drawn, Effect, FullAt, Key, Origin, Patience, Reason, Refused, Setting, Stock};
use crate::limit::definition::MILLISECOND;

/// Decisions under way at once for one key; the others wait their turn.
const ASKED_MAX: usize = 64;

impl<W> Key<W> {
    pub(super) fn attend_exact(&mut self, now_ns: u64, setting: &Setting, effects: &mut Vec<Effect<W>>) {
        self.draw_at_ns = u64::MAX;
        let version = setting.terms.version;
        self.refused = self.refused.filter(|refused| refused.version == version && refused.until_ns > now_ns);
        if let Some(refused) = self.refused {
            let retry_ns = refused.until_ns - now_ns;
            let doors = self.queue.remove(|one| one.patience == Patience::Door && one.cost >= refused.cost);
            effects.extend(doors.into_iter().map(|waiter| Effect::Refuse {
                token: waiter.token,
                retry_ns,
                reason: Reason::Exhausted,
            }));
        }
        while self.asked.len() < ASKED_MAX {
            let Some(waiter) = self.queue.pop() else { break };
            if let Some(refused) = self.refused.filter(|refused| waiter.cost >= refused.cost) {
                self.draw_at_ns = refused.until_ns;
                self.queue.push_front(waiter);
                break;
            }
            self.calls += 1;
            effects.push(Effect::Take { call: self.calls, cost: waiter.cost });
            self.asked.push(Asked { call: self.calls, started_ns: now_ns, version, waiter });
        }
    }

    /// The store has decided on one request that it was asked for at `asked_ns`, or has failed to.
    #[expect(clippy::too_many_arguments, reason = "the call and its answer, and what every step of a key is given")]
    pub fn decided(
        &mut self,
        call: u64,
        asked_ns: u64,
        answer: Option<Drawn>,
        now_ns: u64,
        setting: &Setting,
        stock: &Stock,
        full_at: &FullAt,
        effects: &mut Vec<Effect<W>>,
    ) {
        let Some(at) = self.asked.iter().position(|asked| asked.call == call) else {
            // Whoever it was for has gone.
            if let Some(drawn) = answer.filter(|drawn| drawn.given > 0) {
                let origin = Origin::taken(asked_ns, drawn.full_ms, drawn.window_ms);
                effects.push(Effect::GiveBack { permits: drawn.given, origin });
            }
            return;
        };
        let Asked { waiter, version, started_ns, .. } = self.asked.remove(at);
        if let Some(drawn) = answer {
            self.hear_left(drawn, now_ns);
        }
        match answer {
            Some(drawn) if drawn.given >= waiter.cost => {
                self.admitted += waiter.cost;
                let waited_ns = now_ns.saturating_sub(waiter.since_ns);
                let origin = Origin::taken(started_ns, drawn.full_ms, drawn.window_ms);
                effects.push(Effect::Grant { token: waiter.token, permits: waiter.cost, origin, waited_ns });
            }
            Some(drawn) => {
                // From the start: the store may have decided as early as that.
                let retry_ns = drawn.retry_ms.saturating_mul(MILLISECOND);
                let until_ns = started_ns.saturating_add(retry_ns).max(now_ns + MILLISECOND);
                let known = self.refused.filter(|refused| refused.version == version && refused.cost <= waiter.cost);
                if known.is_none() {
                    self.refused = Some(Refused { until_ns, cost: waiter.cost, version });
                }
                match waiter.patience {
                    Patience::Door => {
                        let retry_ns = until_ns - now_ns;
                        effects.push(Effect::Refuse { token: waiter.token, retry_ns, reason: Reason::Exhausted });
                    }
                    Patience::Step => self.queue.push_front(waiter),
                }
            }
            None if waiter.patience == Patience::Door => {
                let retry_ns = self.retry_ns(now_ns);
                effects.push(Effect::Refuse { token: waiter.token, retry_ns, reason: Reason::StoreSilent });
            }
            None => {
                self.queue.push_front(waiter);
                self.draw_at_ns = now_ns + setting.batch_ns;
                return;
            }
        }
        // The limit may be of another kind by now, or on its own.
        self.attend(now_ns, setting, stock, full_at, effects);
    }
}

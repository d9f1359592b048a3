//! Brings the answers of the store back to the keys and callers that wait for them.

use std::sync::{Arc, atomic::Ordering};

use honeyflow_runtime::Failure;

use super::{FinishedCall, Purpose, Service, State, TakeAllCaller, ledger};
use crate::{
    codes,
    contract::{
        Reply,
        limit::{Denial, MICRO, Remainder, SlotsHeld},
    },
    limit::{
        definition::{Decider, MILLISECOND, SECOND},
        handle::{Limit, Refusal},
        key::{Origin, PATIENCE_NS, Reason, SlotsAnswer, StoreAnswer},
        permit::Grant,
    },
};

impl Service {
    pub(super) fn on_finished_call(&mut self, finished: FinishedCall) {
        let FinishedCall { purpose, asked_ns, result } = finished;
        let reply = match result {
            Ok(Reply::Limit(reply)) => Some(reply),
            Ok(_) => {
                self.on_failure(
                    asked_ns,
                    &Failure::fatal(
                        codes::MISPLACED_REPLY,
                        "the store sent a reply that does not belong to the request",
                    ),
                );
                None
            }
            Err(failure) => {
                self.on_failure(asked_ns, &failure);
                None
            }
        };
        if reply.is_some() {
            let closed = self.registry.common.store_health().breaker.on_answer();
            if closed {
                tracing::info!("the store of the limits answers again");
                self.refresh_settings();
            }
        }
        self.learn_time(asked_ns, reply.as_ref());
        match purpose {
            Purpose::Draws(draws) => self.on_draw_replies(draws, reply),
            Purpose::Take { limit, key, call, cost, may_retry } => {
                self.on_take_reply(limit, key, (call, asked_ns), cost, may_retry, reply);
            }
            Purpose::Slots(asks) => self.on_slots_replies(asks, reply),
            Purpose::All { takes, caller, may_retry } => {
                self.on_take_all_reply(takes, caller, may_retry, asked_ns, reply.as_ref());
            }
            Purpose::Refund => {}
            Purpose::Limits => self.on_limits_reply(asked_ns, reply),
            Purpose::Set(name) => self.on_set_reply(name, reply.as_ref()),
        }
    }

    fn on_failure(&mut self, asked_ns: u64, failure: &Failure) {
        let now_ns = self.now_ns();
        let opened = self.registry.common.store_health().tick(Some(asked_ns), now_ns);
        tracing::debug!(%failure, "the store of the limits failed");
        if opened {
            tracing::warn!(%failure, "the store of the limits does not answer: this node keeps to its share of each limit");
            self.refresh_settings();
        }
    }

    /// Learns the hive time, which is taken to be that of the middle of the call.
    fn learn_time(&mut self, asked_ns: u64, reply: Option<&ledger::Reply>) {
        let hive_ms = match reply {
            Some(
                ledger::Reply::Drawn { hive_ms, .. }
                | ledger::Reply::Admitted { hive_ms, .. }
                | ledger::Reply::Limits { hive_ms, .. },
            ) => *hive_ms,
            Some(ledger::Reply::Denied(denied)) => match denied.why {
                Denial::OtherWindow { hive_ms } => hive_ms,
                _ => return,
            },
            _ => return,
        };
        self.hive_ms = Some((hive_ms, u64::midpoint(asked_ns, self.now_ns())));
    }

    fn on_draw_replies(&mut self, draws: Vec<(Arc<State>, u128, u64)>, reply: Option<ledger::Reply>) {
        let mut answers = match reply {
            Some(ledger::Reply::Drawn { drawn, .. }) => drawn,
            _ => Vec::new(),
        }
        .into_iter();
        for (limit, key, started_ns) in draws {
            let answer = match answers.next() {
                Some(Ok(drawn)) => {
                    limit.counters.pool.store(drawn.pool_u / MICRO, Ordering::Relaxed);
                    self.check_version(&limit, drawn.version);
                    // The life and the number of these permits belong to another definition, so they are discarded.
                    let own = limit.setting.load().terms.version;
                    if drawn.version != own && !crate::planted::on("batch of another definition") {
                        limit.discard_draw(key, started_ns);
                        continue;
                    }
                    if drawn.reserved > 0 {
                        limit.counters.reserving_until_ns.store(self.now_ns() + 2 * SECOND, Ordering::Relaxed);
                    }
                    let ledger::DrawOutcome { granted: given, pool_u, retry_ms, reserved, begins_ms, .. } = drawn;
                    let (pool, retry_ms) = (pool_u / MICRO, retry_ms.unwrap_or(1000));
                    Some(StoreAnswer { given, retry_ms, pool, full_ms: 0, window_ms: 0, reserved, begins_ms })
                }
                Some(Err(_)) => {
                    self.read_limits();
                    None
                }
                None => None,
            };
            limit.on_draw_answer(key, started_ns, answer);
        }
    }

    fn on_take_reply(
        &mut self,
        limit: Arc<State>,
        key: u128,
        (call, asked_ns): (u64, u64),
        cost: u64,
        may_retry: bool,
        reply: Option<ledger::Reply>,
    ) {
        let answer = match reply {
            Some(ledger::Reply::Admitted { hive_ms, left }) => {
                let drawn = StoreAnswer::now(cost, 0);
                Some(left.first().map_or(drawn, |left| {
                    self.check_version(&limit, left.version);
                    let window_ms = window_ms(&limit, left, hive_ms);
                    StoreAnswer { pool: left.pool_u / MICRO, full_ms: left.full_ms, window_ms, ..drawn }
                }))
            }
            Some(ledger::Reply::Denied(denied)) => match denied.why {
                Denial::Empty { retry_ms, .. } => Some(StoreAnswer::now(0, retry_ms)),
                Denial::OtherWindow { .. } if may_retry => return self.take(limit, key, call, cost, false),
                Denial::TooLarge | Denial::OtherWindow { .. } => Some(StoreAnswer::now(0, 1000)),
                Denial::Undefined => {
                    self.read_limits();
                    None
                }
            },
            _ => None,
        };
        limit.on_decision(key, call, asked_ns, answer);
    }

    fn on_slots_replies(&mut self, asks: Vec<(Arc<State>, u128, u64)>, reply: Option<ledger::Reply>) {
        // This member was removed from the hive, and its slots were given back.
        let is_removed = matches!(reply, Some(ledger::Reply::Unfit));
        let mut answers = match reply {
            Some(ledger::Reply::Slots(held)) => held,
            _ => Vec::new(),
        }
        .into_iter();
        for (limit, key, started_ns) in asks {
            let answer = match answers.next() {
                Some(Ok(SlotsHeld { has, free, over, version, .. })) => {
                    limit.counters.pool.store(free, Ordering::Relaxed);
                    self.check_version(&limit, version);
                    Some(SlotsAnswer { has, free, over, version })
                }
                Some(Err(_)) => {
                    self.read_limits();
                    None
                }
                None => {
                    let version = limit.setting.load().terms.version;
                    is_removed.then_some(SlotsAnswer { has: 0, free: 0, over: 0, version })
                }
            };
            limit.on_slots_answer(key, started_ns, answer);
        }
    }

    fn on_take_all_reply(
        &mut self,
        takes: Vec<(Arc<State>, u128, u64)>,
        caller: TakeAllCaller,
        may_retry: bool,
        asked_ns: u64,
        reply: Option<&ledger::Reply>,
    ) {
        let deny = |at: usize, retry_ns: u64, reason: Reason| {
            let refusing = takes.get(at).or(takes.first());
            let denied: Option<Refusal> = refusing.map(|(limit, ..)| limit.refuse(retry_ns, reason));
            // Without any takes there is no limit that could refuse.
            denied.map_or(Ok(Vec::new()), |denied| Err((at, denied)))
        };
        let verdict = match reply {
            Some(ledger::Reply::Admitted { hive_ms, left }) => {
                for (limit, _, cost) in &takes {
                    limit.counters.admitted.fetch_add(*cost, Ordering::Relaxed);
                }
                let each = takes.iter().zip(left);
                let grant = |((limit, key, cost), left): (&(Arc<State>, u128, u64), &Remainder)| {
                    let origin = Origin::from_store(asked_ns, left.full_ms, window_ms(limit, left, *hive_ms));
                    Grant::new(Limit(limit.clone()), *key, *cost, origin)
                };
                Ok(each.map(grant).collect())
            }
            Some(ledger::Reply::Denied(denied)) => match denied.why {
                Denial::Empty { retry_ms, .. } => {
                    deny(denied.at, retry_ms.saturating_mul(MILLISECOND), Reason::Exhausted)
                }
                Denial::TooLarge => deny(denied.at, 0, Reason::CostTooHigh),
                Denial::OtherWindow { .. } if may_retry => return self.take_all(takes, caller, false),
                Denial::OtherWindow { .. } => deny(denied.at, PATIENCE_NS, Reason::StoreSilent),
                Denial::Undefined => {
                    let verdict = deny(denied.at, PATIENCE_NS, Reason::StoreSilent);
                    self.read_limits();
                    verdict
                }
            },
            _ => deny(0, PATIENCE_NS, Reason::StoreSilent),
        };
        // If the caller has gone, the permits go back as they are dropped.
        drop(caller.send(verdict));
    }

    /// Reads the definitions if an answer has another version than the one known here.
    fn check_version(&mut self, limit: &State, version: u64) {
        if version != limit.setting.load().terms.version && !self.reading {
            self.read_limits();
        }
    }
}

/// The end of the calendar window that the permits were taken from; 0 if the limit has no windows.
fn window_ms(limit: &State, left: &Remainder, hive_ms: u64) -> u64 {
    match limit.setting.load().terms.decider {
        Decider::Calendar(_) => hive_ms.saturating_add(left.full_ms),
        _ => 0,
    }
}

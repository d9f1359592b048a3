//! What the store has answered, carried back to the keys.

use std::sync::{Arc, atomic::Ordering};

use honeyflow_runtime::Failure;

use super::{Aim, Landed, Service, State, Told, ledger};
use crate::{
    contract::{
        Reply,
        limit::{Denial, Left, MICRO, SlotsHeld},
    },
    limit::{
        definition::{Decider, MILLISECOND, SECOND},
        handle::{Denied, Limit},
        key::{Drawn, Holds, Origin, PATIENCE_NS, Reason},
        permit::Grant,
    },
};

impl Service {
    pub(super) fn land(&mut self, landed: Landed) {
        let Landed { aim, asked_ns, result } = landed;
        let reply = match result {
            Ok(Reply::Limit(reply)) => Some(reply),
            Ok(_) => {
                self.failed(asked_ns, &Failure::fatal("misplaced-reply", "the hive answered another question"));
                None
            }
            Err(failure) => {
                self.failed(asked_ns, &failure);
                None
            }
        };
        if reply.is_some() {
            let closed = self.registry.common.standing().breaker.answered();
            if closed {
                tracing::info!("the store of the limits answers again");
                self.restand();
            }
        }
        self.learn_time(asked_ns, reply.as_ref());
        match aim {
            Aim::Draws(draws) => self.land_draws(draws, reply),
            Aim::Take { limit, key, call, cost, again } => {
                self.land_take(limit, key, (call, asked_ns), cost, again, reply);
            }
            Aim::Slots(asks) => self.land_slots(asks, reply),
            Aim::All { takes, told, again } => self.land_all(takes, told, again, asked_ns, reply.as_ref()),
            Aim::Refund => {}
            Aim::Limits => self.land_limits(asked_ns, reply),
            Aim::Set(name) => self.land_set(name, reply.as_ref()),
        }
    }

    fn failed(&mut self, asked_ns: u64, failure: &Failure) {
        let now_ns = self.now_ns();
        let opened = self.registry.common.standing().tick(Some(asked_ns), now_ns);
        tracing::debug!(%failure, "the store of the limits failed");
        if opened {
            tracing::warn!(%failure, "the store of the limits is away: each node keeps to its share");
            self.restand();
        }
    }

    /// Hive time, as of the middle of the call.
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

    fn land_draws(&mut self, draws: Vec<(Arc<State>, u128, u64)>, reply: Option<ledger::Reply>) {
        let mut answers = match reply {
            Some(ledger::Reply::Drawn { drawn, .. }) => drawn,
            _ => Vec::new(),
        }
        .into_iter();
        for (limit, key, started_ns) in draws {
            let answer = match answers.next() {
                Some(Ok(drawn)) => {
                    limit.counters.pool.store(drawn.pool_u / MICRO, Ordering::Relaxed);
                    self.noticed(&limit, drawn.version);
                    // How long it may live is another definition's, and so is how much there may be of it.
                    let own = limit.setting.load().terms.version;
                    if drawn.version != own && !crate::planted::on("batch of another definition") {
                        limit.spent(key, started_ns);
                        continue;
                    }
                    if drawn.booked > 0 {
                        limit.counters.booked_until_ns.store(self.now_ns() + 2 * SECOND, Ordering::Relaxed);
                    }
                    let ledger::Drawn { granted: given, pool_u, retry_ms, booked, begins_ms, .. } = drawn;
                    let (pool, retry_ms) = (pool_u / MICRO, retry_ms.unwrap_or(1000));
                    Some(Drawn { given, retry_ms, pool, full_ms: 0, window_ms: 0, booked, begins_ms })
                }
                Some(Err(_)) => {
                    self.read_limits();
                    None
                }
                None => None,
            };
            limit.drawn(key, started_ns, answer);
        }
    }

    fn land_take(
        &mut self,
        limit: Arc<State>,
        key: u128,
        (call, asked_ns): (u64, u64),
        cost: u64,
        again: bool,
        reply: Option<ledger::Reply>,
    ) {
        let answer = match reply {
            Some(ledger::Reply::Admitted { hive_ms, left }) => {
                let drawn = Drawn::now(cost, 0);
                Some(left.first().map_or(drawn, |left| {
                    self.noticed(&limit, left.version);
                    let window_ms = window_ms(&limit, left, hive_ms);
                    Drawn { pool: left.pool_u / MICRO, full_ms: left.full_ms, window_ms, ..drawn }
                }))
            }
            Some(ledger::Reply::Denied(denied)) => match denied.why {
                Denial::Empty { retry_ms, .. } => Some(Drawn::now(0, retry_ms)),
                Denial::OtherWindow { .. } if again => return self.take(limit, key, call, cost, false),
                Denial::TooLarge | Denial::OtherWindow { .. } => Some(Drawn::now(0, 1000)),
                Denial::Undefined => {
                    self.read_limits();
                    None
                }
            },
            _ => None,
        };
        limit.decided(key, call, asked_ns, answer);
    }

    fn land_slots(&mut self, asks: Vec<(Arc<State>, u128, u64)>, reply: Option<ledger::Reply>) {
        // Buried: what it held was given back.
        let unfit = matches!(reply, Some(ledger::Reply::Unfit));
        let mut answers = match reply {
            Some(ledger::Reply::Slots(held)) => held,
            _ => Vec::new(),
        }
        .into_iter();
        for (limit, key, started_ns) in asks {
            let answer = match answers.next() {
                Some(Ok(SlotsHeld { has, free, over, version, .. })) => {
                    limit.counters.pool.store(free, Ordering::Relaxed);
                    self.noticed(&limit, version);
                    Some(Holds { has, free, over, version })
                }
                Some(Err(_)) => {
                    self.read_limits();
                    None
                }
                None => {
                    let version = limit.setting.load().terms.version;
                    unfit.then_some(Holds { has: 0, free: 0, over: 0, version })
                }
            };
            limit.held(key, started_ns, answer);
        }
    }

    fn land_all(
        &mut self,
        takes: Vec<(Arc<State>, u128, u64)>,
        told: Told,
        again: bool,
        asked_ns: u64,
        reply: Option<&ledger::Reply>,
    ) {
        let deny = |at: usize, retry_ns: u64, reason: Reason| {
            let refusing = takes.get(at).or(takes.first());
            let denied: Option<Denied> = refusing.map(|(limit, ..)| limit.denied(retry_ns, reason));
            // Only nothing at all is refused by nobody.
            denied.map_or(Ok(Vec::new()), |denied| Err((at, denied)))
        };
        let verdict = match reply {
            Some(ledger::Reply::Admitted { hive_ms, left }) => {
                for (limit, _, cost) in &takes {
                    limit.counters.admitted.fetch_add(*cost, Ordering::Relaxed);
                }
                let each = takes.iter().zip(left);
                let grant = |((limit, key, cost), left): (&(Arc<State>, u128, u64), &Left)| {
                    let origin = Origin::taken(asked_ns, left.full_ms, window_ms(limit, left, *hive_ms));
                    Grant::new(Limit(limit.clone()), *key, *cost, origin)
                };
                Ok(each.map(grant).collect())
            }
            Some(ledger::Reply::Denied(denied)) => match denied.why {
                Denial::Empty { retry_ms, .. } => {
                    deny(denied.at, retry_ms.saturating_mul(MILLISECOND), Reason::Exhausted)
                }
                Denial::TooLarge => deny(denied.at, 0, Reason::CostTooHigh),
                Denial::OtherWindow { .. } if again => return self.take_all(takes, told, false),
                Denial::OtherWindow { .. } => deny(denied.at, PATIENCE_NS, Reason::StoreSilent),
                Denial::Undefined => {
                    let verdict = deny(denied.at, PATIENCE_NS, Reason::StoreSilent);
                    self.read_limits();
                    verdict
                }
            },
            _ => deny(0, PATIENCE_NS, Reason::StoreSilent),
        };
        // If nobody listens any more what was taken goes back, as it is dropped.
        drop(told.send(verdict));
    }

    /// An answer under another version than we know: the limit has changed.
    fn noticed(&mut self, limit: &State, version: u64) {
        if version != limit.setting.load().terms.version && !self.reading {
            self.read_limits();
        }
    }
}

/// When the window ends that it was taken in; 0 if there are none.
fn window_ms(limit: &State, left: &Left, hive_ms: u64) -> u64 {
    match limit.setting.load().terms.decider {
        Decider::Calendar(_) => hive_ms.saturating_add(left.full_ms),
        _ => 0,
    }
}

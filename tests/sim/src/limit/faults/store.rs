//! The network path to the store and back, with everything that can happen to a request; and the store.

use std::time::Duration;

use futures_util::future::{BoxFuture, pending};
use honeyflow_hive::{
    Capabilities, HiveStore, Reply, Request,
    contract::limit::{self as ledger, ExactTake},
};
use honeyflow_runtime::Failure;
use tokio::{sync::oneshot, time::sleep};

use super::{
    history::StoreDecision,
    plan::{BOTH, CALENDAR, EXACT, POOL, SLOTS},
    world::{Inner, World},
};

/// The extra delay of a late message, longer than a caller waits.
const LATE_MS: (u64, u64) = (40, 900);

/// The store as one machine reaches it.
pub struct Line {
    pub world: World,
    pub machine: usize,
}

#[derive(Clone, Copy)]
struct Delivery {
    there_ms: u64,
    back_ms: u64,
    lost_there: bool,
    lost_back: bool,
    broken: bool,
    again_ms: Option<u64>,
}

impl Inner {
    fn draw_delivery(&mut self, request: &Request) -> Delivery {
        let (low, high) = self.plan.trip_ms;
        let [there_ms, back_ms] = [(); 2].map(|()| self.random.between(low, high));
        let [lost, late, repeated, broken] = match self.healed {
            true => [0; 4],
            false => [self.plan.lost, self.plan.late, self.plan.repeated, self.plan.broken],
        };
        let mut fate = Delivery {
            there_ms,
            back_ms,
            lost_there: self.random.per_mille(lost),
            lost_back: self.random.per_mille(lost),
            broken: self.random.per_mille(broken),
            again_ms: None,
        };
        if self.random.per_mille(late) {
            let more_ms = self.random.between(LATE_MS.0, LATE_MS.1);
            let way = if self.random.one_in(2) { &mut fate.there_ms } else { &mut fate.back_ms };
            *way += more_ms;
            self.history.counts.late += 1;
        }
        // A backend never repeats a change by itself. Requests that a node may send twice are sometimes sent twice
        // here.
        let once = matches!(request, Request::Limit(ledger::Request::Refund(_)) | Request::Join { .. });
        if !once && self.random.per_mille(repeated) {
            fate.again_ms = Some(self.random.between(0, 300));
            self.history.counts.repeated += 1;
        }
        fate
    }

    fn is_away(&self, now_ns: u64) -> bool {
        now_ns < self.away_until_ns
    }

    fn can_send(&self, machine: usize, now_ns: u64) -> bool {
        !self.is_away(now_ns) && now_ns >= self.cut_until_ns[machine]
    }

    fn can_receive(&self, machine: usize, now_ns: u64) -> bool {
        self.can_send(machine, now_ns) && now_ns >= self.deaf_until_ns[machine]
    }

    pub fn apply(&mut self, request: Request, now_ns: u64) -> Result<Reply, Failure> {
        let hive_ms = self.hive_ms(now_ns);
        self.look_at_laws(now_ns);
        match &request {
            Request::Join { node, .. } => drop(self.members.insert(*node, now_ns)),
            Request::Beat { node, .. } => {
                if let Some(heard_ns) = self.members.get_mut(node) {
                    *heard_ns = now_ns;
                }
            }
            Request::Leave { node } => drop(self.members.remove(node)),
            _ => {}
        }
        let asked = request.clone();
        let reply = self.rows.apply(hive_ms, request)?;
        if let (Request::Limit(asked), Reply::Limit(reply)) = (asked, &reply) {
            self.note(asked, reply, now_ns, hive_ms);
        }
        Ok(reply)
    }

    fn note(&mut self, asked: ledger::Request, reply: &ledger::Reply, now_ns: u64, hive_ms: u64) {
        let history = &mut self.history;
        match (asked, reply) {
            (ledger::Request::Draw(_), ledger::Reply::Drawn { drawn, .. }) => {
                history.counts.booked += drawn.iter().flatten().map(|drawn| drawn.reserved).sum::<u64>();
            }
            (ledger::Request::Exact { takes, peek: false }, ledger::Reply::Admitted { .. }) => {
                history.decided.extend(takes.iter().filter_map(|take| decided(take, now_ns, 1)));
            }
            (ledger::Request::Refund(takes), _) => {
                history.decided.extend(takes.iter().filter_map(|take| decided(take, now_ns, -1)));
            }
            (ledger::Request::Set { limit, rule, .. }, ledger::Reply::Set { effective_ms, .. }) => {
                if let Some(name) = known(&limit) {
                    history.laws.entry(name).or_default().set(rule, *effective_ms, now_ns, hive_ms);
                }
            }
            _ => {}
        }
    }
}

fn known(limit: &str) -> Option<&'static str> {
    [POOL, EXACT, CALENDAR, SLOTS, BOTH[0], BOTH[1]].into_iter().find(|name| *name == limit)
}

fn decided(take: &ExactTake, at_ns: u64, sign: i64) -> Option<StoreDecision> {
    let permits = sign * i64::try_from(take.cost).unwrap_or(i64::MAX);
    Some(StoreDecision { at_ns, limit: known(&take.limit)?, key: take.key.0, permits })
}

impl HiveStore for Line {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        let (world, machine) = (self.world.clone(), self.machine);
        let fate = world.lock().draw_delivery(&request);
        let (tell, told) = oneshot::channel();
        tokio::spawn(carry(world, machine, request, fate, tell));
        Box::pin(async move {
            match told.await {
                Ok(answer) => answer,
                // No answer comes, and no error either.
                Err(_) => pending().await,
            }
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { many_hosts: true, durable: true, doorbell: false }
    }
}

async fn carry(
    world: World,
    machine: usize,
    request: Request,
    fate: Delivery,
    tell: oneshot::Sender<Result<Reply, Failure>>,
) {
    sleep(Duration::from_millis(fate.there_ms)).await;
    let reset = || Err(Failure::retry("store-down", "connection reset"));
    let reply = {
        let mut inner = world.lock();
        let now_ns = world.now_ns();
        if fate.broken {
            inner.history.counts.broken += 1;
            drop(tell.send(reset()));
            return;
        }
        if fate.lost_there || !inner.can_send(machine, now_ns) {
            inner.history.counts.lost += 1;
            return;
        }
        inner.apply(request.clone(), now_ns)
    };
    if let Some(again_ms) = fate.again_ms {
        let world = world.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(again_ms)).await;
            let (mut inner, now_ns) = (world.lock(), world.now_ns());
            if inner.can_send(machine, now_ns) {
                drop(inner.apply(request, now_ns));
            }
        });
    }
    sleep(Duration::from_millis(fate.back_ms)).await;
    let mut inner = world.lock();
    if fate.lost_back || !inner.can_receive(machine, world.now_ns()) {
        inner.history.counts.lost += 1;
        return;
    }
    drop(inner);
    drop(tell.send(reply));
}

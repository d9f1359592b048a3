//! What programs do with limits: take at once, wait, take an estimate and correct it later, take from several limits at
//! once, hold a slot, give permits back, or drop a request.

use std::time::Duration;

use honeyflow_hive::limit::{Limit, Limits, Permit, Refusal, all, calendar, rate::Calendar};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::{
    history::TakenPermits,
    node::Process,
    plan::{BOTH, CALENDAR, EXACT, POOL, SLOTS},
    world::World,
};
use crate::random::Random;

const WHOLE: &str = "";
const KEYS: [&str; 2] = ["a", "b"];
const PROOF_MS: u64 = 6_000;

#[derive(Debug)]
pub enum Job {
    Take {
        limit: &'static str,
        key: &'static str,
        cost: u64,
        wait_ms: Option<u64>,
        walks_off_ms: Option<u64>,
        then: FollowUp,
    },
    /// Takes from three limits or from none.
    All {
        cost: u64,
    },
    Slot {
        cost: u64,
        wait_ms: Option<u64>,
        hold_ms: u64,
    },
    /// Checks that this much can be taken with a long wait.
    Prove {
        limit: &'static str,
        cost: u64,
        tell: oneshot::Sender<Result<(), Refusal>>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FollowUp {
    Use,
    /// Gives back the part that was not needed.
    GiveBack {
        after_ms: u64,
        permits: u64,
    },
}

impl Job {
    pub fn of_pool(random: &mut Random, cost_max: u64) -> Job {
        let cost = if random.one_in(12) { random.between(2, cost_max.clamp(2, 9)) } else { 1 };
        let key = if random.one_in(12) { *random.pick(&KEYS) } else { WHOLE };
        let wait_ms = random.one_in(12).then(|| random.between(10, 400));
        let walks_off_ms = random.one_in(25).then(|| random.between(0, 20));
        let then = match random.one_in(10) {
            true => FollowUp::GiveBack { after_ms: random.between(0, 200), permits: random.between(1, cost) },
            false => FollowUp::Use,
        };
        Job::Take { limit: POOL, key, cost, wait_ms, walks_off_ms, then }
    }

    pub fn of_store(random: &mut Random) -> Job {
        let limit = if random.one_in(3) { CALENDAR } else { EXACT };
        let cost = if random.one_in(6) { random.between(2, 4) } else { 1 };
        let wait_ms = random.one_in(6).then(|| random.between(10, 600));
        let walks_off_ms = random.one_in(20).then(|| random.between(0, 20));
        let then = match random.one_in(4) {
            true => FollowUp::GiveBack { after_ms: random.between(0, 2_500), permits: random.between(1, cost) },
            false => FollowUp::Use,
        };
        Job::Take { limit, key: WHOLE, cost, wait_ms, walks_off_ms, then }
    }

    pub fn of_slots(random: &mut Random) -> Job {
        let wait_ms = random.one_in(3).then(|| random.between(10, 800));
        Job::Slot { cost: random.between(1, 2), wait_ms, hold_ms: random.between(5, 500) }
    }
}

pub async fn run(job: Job, limits: Limits, process: Process, world: World) {
    let limit = |name: &str| limits.get(name).expect("every process defines them all");
    match job {
        Job::Take { limit: name, key, cost, wait_ms, walks_off_ms, then } => {
            let asked_ns = world.now_ns();
            let limit = limit(name);
            let asked = take(&limit, key, cost, wait_ms);
            let verdict = match walks_off_ms {
                None => asked.await,
                Some(ms) => match timeout(Duration::from_millis(ms), asked).await {
                    Ok(verdict) => verdict,
                    Err(_) => return world.lock().history.counts.abandoned += 1,
                },
            };
            let Ok(permit) = verdict else { return world.lock().history.counts.refused += 1 };
            let number = note(&world, &process, name, key, &permit, asked_ns);
            if let FollowUp::GiveBack { after_ms, permits } = then {
                let permit = permit.into_owned();
                sleep(Duration::from_millis(after_ms)).await;
                let mut inner = world.lock();
                inner.history.counts.refunded += 1;
                inner.history.taken[number].permits -= permits;
                drop(inner);
                permit.refund(permits);
            }
        }
        Job::All { cost } => {
            let asked_ns = world.now_ns();
            let [pool, left, right] = [POOL, BOTH[0], BOTH[1]].map(limit);
            let wanted = [(right.whole(), cost), (pool.key("both"), cost), (left.whole(), cost)];
            let verdict = all(&wanted).await;
            match verdict {
                Ok(permits) => {
                    for (name, permit) in [BOTH[1], POOL, BOTH[0]].into_iter().zip(&permits) {
                        let key = if name == POOL { "both" } else { WHOLE };
                        note(&world, &process, name, key, permit, asked_ns);
                    }
                    world.lock().history.counts.all += 1;
                }
                Err(_) => world.lock().history.counts.none += 1,
            }
        }
        Job::Slot { cost, wait_ms, hold_ms } => {
            let limit = limit(SLOTS);
            let Ok(permit) = take(&limit, WHOLE, cost, wait_ms).await else { return };
            let id = process.id();
            world.lock().lend(id, cost);
            sleep(Duration::from_millis(hold_ms)).await;
            world.lock().returned(id, cost);
            drop(permit);
        }
        Job::Prove { limit: name, cost, tell } => {
            let verdict = take(&limit(name), "proof", cost, Some(PROOF_MS)).await.map(drop);
            drop(tell.send(verdict));
        }
    }
}

async fn take<'a>(limit: &'a Limit, key: &str, cost: u64, wait_ms: Option<u64>) -> Result<Permit<'a>, Refusal> {
    match wait_ms {
        None => limit.key(key).try_take(cost).await,
        Some(ms) => limit.key(key).take(cost, Duration::from_millis(ms)).await,
    }
}

fn note(
    world: &World,
    process: &Process,
    limit: &'static str,
    key: &'static str,
    permit: &Permit<'_>,
    asked_ns: u64,
) -> usize {
    let at_ns = world.now_ns();
    let mut inner = world.lock();
    let window = |at_ns: u64| calendar::window(Calendar::Hour, inner.hive_ms(at_ns));
    let window = (limit == CALENDAR && window(asked_ns) == window(at_ns)).then(|| window(at_ns));
    let share = permit.is_from_share().then(|| process.divisor());
    let counts = &mut inner.history.counts;
    counts.admitted += permit.cost();
    counts.of_share += u64::from(share.is_some());
    let permits = permit.cost();
    inner.history.taken.push(TakenPermits {
        asked_ns,
        at_ns,
        process: process.number,
        limit,
        key,
        permits,
        share,
        window,
    });
    inner.history.taken.len() - 1
}

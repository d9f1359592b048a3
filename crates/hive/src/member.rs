//! A node's membership and its leases, as a pure state machine: `(state, input, now) → effects`.
//!
//! | state of a lease | input                         | next    | effect                       |
//! |------------------|-------------------------------|---------|------------------------------|
//! | wanted           | eligible member, look due     | looking | call Look                    |
//! | looking          | free                          | taking  | call Take (epoch seen)       |
//! | looking          | held by another               | wanted  | look again after a heartbeat |
//! | taking           | Taken                         | held    | Granted(term)                |
//! | taking           | Refused or failed             | wanted  |                              |
//! | held             | mint asked (sequence, floor)  | minting | call HandOver to itself      |
//! | minting          | Taken                         | held    | Granted(term)                |
//! | minting          | Refused                       | wanted  | Lost                         |
//! | held, minting    | trust has run out             | dead    | Lost                         |
//! | dead             | a beat is answered again      | minting | call HandOver to itself      |
//!
//! Trust counts from the *start* of the last good beat. A dead term never revives: the lease goes on only under a new
//! epoch. Whoever is told that it is no member any more stops everything and comes back as a new incarnation. A store
//! that is not the one it was (its lineage) ends all terms, and is recorded as the new one.

use std::{collections::BTreeMap, time::Duration};

use honeyflow_event::{Epoch, Name};
use honeyflow_runtime::{Class, Failure, Moment};

use crate::{
    contract::{Claim, Held, HiveStore, Mint, NodeId, Reply, Request, State, Status},
    term::Term,
};

#[derive(Clone, Debug)]
pub struct Config {
    pub node: NodeId,
    pub name: Name,
    pub meta: String,
    pub heartbeat: Duration,
    pub time_to_live: Duration,
}

impl Config {
    pub const HEARTBEAT: Duration = Duration::from_secs(2);
    pub const TIME_TO_LIVE: Duration = Duration::from_secs(6);

    pub fn new(node: NodeId, name: Name, meta: String) -> Config {
        Config { node, name, meta, heartbeat: Self::HEARTBEAT, time_to_live: Self::TIME_TO_LIVE }
    }

    /// Four fifths of the time to live: the rest is margin for clocks that run at different rates.
    fn trust(&self) -> Duration {
        self.time_to_live * 4 / 5
    }
}

#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed.
    Tick,
    Answer {
        call: u64,
        sent_at: Moment,
        result: Result<Reply, Failure>,
    },
    /// This lease should be ours.
    Want(Name),
    /// A new epoch is due: the sequence runs short, or a sink is ahead of `floor`.
    Mint {
        lease: Name,
        floor: Epoch,
    },
    Leave,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    Call {
        call: u64,
        request: Request,
    },
    Granted(Term),
    Lost {
        lease: Name,
        why: &'static str,
    },
    /// Every term is good until here.
    Trust(Moment),
    /// Joining is hopeless, with the reason.
    Refused(Failure),
    /// Buried by others: begin again under a fresh identity.
    Buried,
    Left,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Out,
    Joining,
    In,
    Leaving,
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    Wanted { look_at: Moment },
    Looking,
    Taking,
    Held { epoch: Epoch },
    Minting { epoch: Epoch },
    Dead { epoch: Epoch },
}

#[derive(Clone, PartialEq, Debug)]
enum Asked {
    Join,
    Beat { read_only: bool },
    Lease(Name),
    Lineage,
    Leave,
}

pub struct Member {
    config: Config,
    phase: Phase,
    holds: BTreeMap<Name, Hold>,
    asked: BTreeMap<u64, Asked>,
    calls: u64,
    trust_until: Moment,
    beat_at: Moment,
    hearing: Hearing,
    /// Of the store, once a written beat has made this node eligible there; without it nothing is taken.
    lineage: Option<Name>,
}

/// After trust has run out the node asks without renewing until someone answers, and only then renews: one that
/// cannot hear must not hold its leases for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hearing {
    Good,
    Deaf,
    Renewing,
}

impl Member {
    pub fn new(config: Config) -> Member {
        Member {
            config,
            phase: Phase::Out,
            holds: BTreeMap::new(),
            asked: BTreeMap::new(),
            calls: 0,
            trust_until: Moment::default(),
            beat_at: Moment::default(),
            hearing: Hearing::Good,
            lineage: None,
        }
    }

    pub fn node(&self) -> NodeId {
        self.config.node
    }

    /// When the next `Tick` is due.
    pub fn wake_at(&self) -> Moment {
        // A time that has come and leads to nothing would be asked for again and again.
        match self.phase {
            Phase::Out => self.beat_at,
            Phase::In => {
                let mut at = if self.is_beating() { Moment::FAR } else { self.beat_at };
                if self.hearing == Hearing::Good {
                    at = at.min(self.trust_until);
                    for hold in self.holds.values() {
                        if let (Hold::Wanted { look_at }, true) = (hold, self.lineage.is_some()) {
                            at = at.min(*look_at);
                        }
                    }
                }
                at
            }
            Phase::Joining | Phase::Leaving | Phase::Gone => Moment::FAR,
        }
    }

    pub fn step(&mut self, input: Input, now: Moment, effects: &mut Vec<Effect>) {
        match input {
            Input::Tick => {}
            Input::Want(lease) => {
                self.holds.entry(lease).or_insert(Hold::Wanted { look_at: now });
            }
            Input::Mint { lease, floor } => self.mint(&lease, floor, effects),
            Input::Leave => self.leave(effects),
            Input::Answer { call, sent_at, result } => self.answer(call, sent_at, result, now, effects),
        }
        self.check_trust(now, effects);
        self.act(now, effects);
    }

    fn act(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        match self.phase {
            Phase::Out if now >= self.beat_at => {
                self.phase = Phase::Joining;
                let request = Request::Join {
                    node: self.config.node,
                    name: self.config.name.clone(),
                    heartbeat_ms: millis(self.config.heartbeat),
                    ttl_ms: millis(self.config.time_to_live),
                    meta: self.config.meta.clone(),
                };
                self.call(Asked::Join, request, effects);
            }
            Phase::In => {
                if now >= self.beat_at && !self.is_beating() {
                    self.beat_at = now.after(self.config.heartbeat);
                    let read_only = self.hearing == Hearing::Deaf;
                    let request = Request::Beat { node: self.config.node, read_only, state: leading() };
                    self.call(Asked::Beat { read_only }, request, effects);
                }
                let due: Vec<Name> = self
                    .holds
                    .iter()
                    .filter(|(_, hold)| matches!(hold, Hold::Wanted { look_at } if *look_at <= now))
                    .map(|(lease, _)| lease.clone())
                    .collect();
                for lease in due {
                    if self.hearing != Hearing::Good || self.lineage.is_none() {
                        break;
                    }
                    self.holds.insert(lease.clone(), Hold::Looking);
                    self.call(Asked::Lease(lease.clone()), Request::Look { leases: vec![lease] }, effects);
                }
            }
            _ => {}
        }
    }

    fn is_beating(&self) -> bool {
        self.asked.values().any(|asked| matches!(asked, Asked::Beat { .. }))
    }

    fn call(&mut self, asked: Asked, request: Request, effects: &mut Vec<Effect>) {
        self.calls += 1;
        self.asked.insert(self.calls, asked);
        effects.push(Effect::Call { call: self.calls, request });
    }

    fn check_trust(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        if self.phase != Phase::In || now < self.trust_until || self.hearing != Hearing::Good {
            return;
        }
        self.hearing = Hearing::Deaf;
        self.end_terms("no heartbeat was answered in time", effects);
        self.beat_at = now;
    }

    fn end_terms(&mut self, why: &'static str, effects: &mut Vec<Effect>) {
        for (lease, hold) in &mut self.holds {
            if let Hold::Held { epoch } | Hold::Minting { epoch } = *hold {
                *hold = Hold::Dead { epoch };
                effects.push(Effect::Lost { lease: lease.clone(), why });
            }
        }
    }

    fn mint(&mut self, lease: &Name, floor: Epoch, effects: &mut Vec<Effect>) {
        let Some(Hold::Held { epoch } | Hold::Dead { epoch }) = self.holds.get(lease).copied() else { return };
        let Some(lineage) = self.lineage.clone() else { return };
        self.holds.insert(lease.clone(), Hold::Minting { epoch });
        let node = self.config.node;
        let claims = vec![Claim { lease: lease.clone(), epoch, floor }];
        let mint = Mint { lineage, watched: false };
        let request = Request::HandOver { node, heir: node, claims, cause: "mint".into(), mint };
        self.call(Asked::Lease(lease.clone()), request, effects);
    }

    fn leave(&mut self, effects: &mut Vec<Effect>) {
        if matches!(self.phase, Phase::Leaving | Phase::Gone) {
            return;
        }
        let joined = self.phase == Phase::In;
        self.phase = Phase::Leaving;
        if !joined {
            self.phase = Phase::Gone;
            effects.push(Effect::Left);
            return;
        }
        let node = self.config.node;
        for (lease, hold) in std::mem::take(&mut self.holds) {
            if let Hold::Held { epoch } | Hold::Minting { epoch } | Hold::Dead { epoch } = hold {
                let held = vec![Held { lease: lease.clone(), epoch }];
                self.call(Asked::Lease(lease), Request::Release { node, held, cause: "leaving".into() }, effects);
            }
        }
        self.call(Asked::Leave, Request::Leave { node }, effects);
    }

    fn answer(
        &mut self,
        call: u64,
        sent_at: Moment,
        result: Result<Reply, Failure>,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        let Some(asked) = self.asked.remove(&call) else { return };
        match (asked, result) {
            (Asked::Join, Ok(Reply::Joined(_))) if self.phase == Phase::Joining => {
                self.phase = Phase::In;
                // At once: nobody may lead before a beat has said that it wants to.
                self.beat_at = now;
                self.trusted(sent_at, effects);
            }
            // An earlier join whose answer was lost has made a row of this identity: it stays nobody's.
            (Asked::Join, Ok(_)) if self.phase == Phase::Joining => self.buried(effects),
            (Asked::Join, Err(failure)) if self.phase == Phase::Joining => {
                self.phase = Phase::Out;
                self.beat_at = now.after(self.config.heartbeat / 4);
                if matches!(failure.class, Class::Fatal | Class::Reject) {
                    self.phase = Phase::Gone;
                    effects.push(Effect::Refused(failure));
                }
            }
            (Asked::Beat { read_only }, Ok(Reply::Beat(status))) if self.phase == Phase::In => {
                self.learn_lineage(&status, effects);
                if !status.member {
                    self.buried(effects);
                } else if read_only {
                    self.hearing = Hearing::Renewing;
                    self.beat_at = now;
                } else {
                    self.trusted(sent_at, effects);
                    if now < self.trust_until {
                        self.hearing = Hearing::Good;
                        self.revive(effects);
                    }
                }
            }
            (Asked::Beat { .. }, _) if self.phase == Phase::In => {
                self.beat_at = now.after(self.config.heartbeat / 4);
            }
            (Asked::Lease(lease), result) => self.lease_answered(&lease, result, now, effects),
            (Asked::Lineage, _) => self.beat_at = self.beat_at.min(now.after(self.config.heartbeat / 4)),
            (Asked::Leave, _) => {
                self.phase = Phase::Gone;
                effects.push(Effect::Left);
            }
            _ => {}
        }
    }

    fn learn_lineage(&mut self, status: &Status, effects: &mut Vec<Effect>) {
        let head = &status.head;
        if head.lineage.as_ref() != Some(&head.server) {
            self.lineage = None;
            self.end_terms("the store is not the one it was", effects);
            let was = head.lineage.as_deref().map(Name::from);
            let found = head.server.as_str().into();
            self.call(Asked::Lineage, Request::NewLineage { was, found }, effects);
        } else if status.renewed {
            self.lineage = Some(head.server.as_str().into());
        }
    }

    fn trusts(&self, now: Moment) -> bool {
        self.hearing == Hearing::Good && now < self.trust_until
    }

    fn trusted(&mut self, sent_at: Moment, effects: &mut Vec<Effect>) {
        self.trust_until = sent_at.after(self.config.trust());
        effects.push(Effect::Trust(self.trust_until));
    }

    fn revive(&mut self, effects: &mut Vec<Effect>) {
        let dead: Vec<Name> =
            self.holds.iter().filter(|(_, h)| matches!(h, Hold::Dead { .. })).map(|(name, _)| name.clone()).collect();
        for lease in dead {
            self.mint(&lease, Epoch(0), effects);
        }
    }

    fn buried(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Gone;
        for (lease, hold) in std::mem::take(&mut self.holds) {
            if matches!(hold, Hold::Held { .. } | Hold::Minting { .. }) {
                effects.push(Effect::Lost { lease, why: "this node was buried by others" });
            }
        }
        effects.push(Effect::Buried);
    }

    fn lease_answered(&mut self, lease: &Name, result: Result<Reply, Failure>, now: Moment, effects: &mut Vec<Effect>) {
        let Some(hold) = self.holds.get(lease).copied() else { return };
        let node = self.config.node;
        let again = Hold::Wanted { look_at: now.after(self.config.heartbeat / 4) };
        let next = match (hold, result) {
            (Hold::Looking, Ok(Reply::Leases { leases, .. })) => match (leases.into_iter().next(), &self.lineage) {
                (Some(row), Some(lineage)) if row.free => {
                    let claims = vec![Claim::new(lease.clone(), row.epoch)];
                    let mint = Mint { lineage: lineage.clone(), watched: false };
                    let request = Request::Take { node, claims, cause: "free".into(), mint };
                    self.call(Asked::Lease(lease.clone()), request, effects);
                    Hold::Taking
                }
                // An earlier take of ours whose answer was lost.
                (Some(row), _) if row.holder == Some(node) => Hold::Dead { epoch: row.epoch },
                _ => again,
            },
            (Hold::Taking | Hold::Minting { .. } | Hold::Dead { .. }, Ok(Reply::Taken(taken))) => match taken.first() {
                Some(&Held { epoch, .. }) if self.trusts(now) && !matches!(hold, Hold::Dead { .. }) => {
                    effects.push(Effect::Granted(Term::granted(lease.clone(), epoch, node)));
                    Hold::Held { epoch }
                }
                // Won, but nobody may trust it any more, or it has died meanwhile: mint anew from it when heard.
                Some(&Held { epoch, .. }) => Hold::Dead { epoch },
                None => again,
            },
            (Hold::Minting { .. }, Ok(Reply::Refused(_))) => {
                effects.push(Effect::Lost { lease: lease.clone(), why: "the lease has another holder" });
                again
            }
            (Hold::Minting { .. }, _) => {
                // Unknown whether a new epoch was minted: the old one may be gone. Look before anything else.
                effects.push(Effect::Lost { lease: lease.clone(), why: "the store did not say whether it minted" });
                again
            }
            (Hold::Held { .. }, _) => hold,
            _ => again,
        };
        self.holds.insert(lease.clone(), next);
        if matches!(next, Hold::Dead { .. }) && self.trusts(now) {
            self.mint(lease, Epoch(0), effects);
        }
    }
}

fn leading() -> State {
    State { ready: true, eligible: true, ..State::default() }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Joins and takes: for commands and tests that need a term and run no heartbeat.
///
/// # Errors
/// As the store says, or `lease-held` if another node holds it.
pub async fn take(store: &dyn HiveStore, node: NodeId, lease: &str) -> Result<Term, Failure> {
    let (heartbeat_ms, ttl_ms) = (millis(Config::HEARTBEAT), millis(Config::TIME_TO_LIVE));
    let join = Request::Join { node, name: "once".into(), heartbeat_ms, ttl_ms, meta: "{}".to_owned() };
    // Whoever is known already is taken for what it says it is.
    store.call(join).await?;
    take_as_member(store, node, lease).await
}

/// Beats, looks and takes, one after the other, as a node that has joined.
///
/// # Errors
/// As the store says, or `lease-held` if another node holds it.
pub async fn take_as_member(store: &dyn HiveStore, node: NodeId, lease: &str) -> Result<Term, Failure> {
    let misplaced = || Failure::fatal("misplaced-reply", "the hive answered another question");
    let Reply::Beat(status) = store.call(Request::Beat { node, read_only: false, state: leading() }).await? else {
        return Err(misplaced());
    };
    let lineage: Name = status.head.server.as_str().into();
    if status.head.lineage.as_deref() != Some(&*lineage) {
        let was = status.head.lineage.as_deref().map(Name::from);
        store.call(Request::NewLineage { was, found: lineage.clone() }).await?;
    }
    let lease: Name = lease.into();
    let Reply::Leases { leases, .. } = store.call(Request::Look { leases: vec![lease.clone()] }).await? else {
        return Err(misplaced());
    };
    let row = leases.into_iter().next().ok_or_else(misplaced)?;
    if !row.free {
        let holder = row.holder.map_or_else(|| "nobody".to_owned(), |holder| holder.to_string());
        return Err(Failure::fatal("lease-held", format!("lease {lease} is held by node {holder}")));
    }
    let claims = vec![Claim::new(lease.clone(), row.epoch)];
    let mint = Mint { lineage, watched: false };
    match store.call(Request::Take { node, claims, cause: "once".into(), mint }).await? {
        Reply::Taken(taken) if !taken.is_empty() => Ok(Term::granted(lease, taken[0].epoch, node)),
        other => Err(Failure::retry("lease-raced", format!("lease {lease} was not given: {other:?}"))),
    }
}

#[cfg(test)]
mod tests;

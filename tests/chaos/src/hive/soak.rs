//! One large hive for a long time, under random faults that hit several nodes at a time. Then all faults end, and the
//! hive must become stable: every node is counted, there is one queen, the one duty is done, and every shard has a
//! holder.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use honeyflow::demo::dice::Dice;
use serde::Serialize;

use super::{
    Backend, Clocks, Kind, LEASE, NodeMessage, Profile, StoreLocation, Swarm, SwarmOptions, Verdict, check,
    node_proxy::ProxyFactory, swarm::FaultOptions,
};
use crate::proxy::LinkMode;

const SHARDS: u32 = 64;
/// At this pace, all shards together write a few dozen times a second.
const PACE_MS: u64 = 1000;
const RESTS_WITHIN: Duration = Duration::from_secs(120);
const HOUR_S: i64 = 3600;
const HIVE: &str = "soak";

pub struct Options {
    pub backend: Backend,
    pub program: PathBuf,
    pub minutes: u64,
    pub bees: usize,
    pub seed: u64,
    pub clocks: Option<Arc<Clocks>>,
}

#[derive(Serialize)]
pub struct Report {
    pub backend: Backend,
    pub bees: usize,
    pub faults_made: BTreeMap<Kind, u32>,
    pub two_terms_at_once: u32,
    #[serde(flatten)]
    pub verdict: Verdict,
    pub stale_tried: u32,
    pub stale_refused: u32,
    pub rest: RestState,
    /// Since the last fault ended.
    pub seconds_to_rest: f64,
    pub seconds: f64,
}

/// What all nodes report, taken together.
#[derive(Clone, Default, Debug, PartialEq, Eq, Serialize)]
pub struct RestState {
    pub answered: usize,
    /// The number of engaged nodes that the nodes know of: the smallest and the largest answer.
    pub engaged: (u64, u64),
    pub queens: usize,
    pub shards: u32,
    /// Whether the one duty is done.
    pub duty: bool,
}

impl RestState {
    fn wanted(bees: usize) -> RestState {
        RestState { answered: bees, engaged: (bees as u64, bees as u64), queens: 1, shards: SHARDS, duty: true }
    }
}

impl Report {
    /// Returns what is missing or wrong.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut unless = |holds: bool, fault: String| {
            if !holds {
                faults.push(fault);
            }
        };
        unless(self.verdict.stale == 0, format!("{} stale writes were accepted", self.verdict.stale));
        unless(self.verdict.shared_epochs == 0, format!("{} epochs were shared", self.verdict.shared_epochs));
        unless(
            self.two_terms_at_once == 0,
            format!("{} terms were still good when their successors began", self.two_terms_at_once),
        );
        unless(self.stale_refused > 0, "no stale write was tried".to_owned());
        let wanted = RestState::wanted(self.bees);
        unless(self.rest == wanted, format!("at the end the hive is {:?} instead of {wanted:?}", self.rest));
        faults
    }
}

/// # Errors
/// Returns what kept the campaign from running.
pub fn run(options: &Options) -> Result<Report, String> {
    let began = Instant::now();
    let (location, _guard) = StoreLocation::prepare(options.backend)?;
    let proxies = ProxyFactory::for_server(&location)?;
    let faults = FaultOptions {
        proxies,
        clocks: options.clocks.clone(),
        drifts: true,
        shards: SHARDS,
        ..FaultOptions::default()
    };
    let swarm_options = SwarmOptions {
        program: options.program.clone(),
        location: location.clone(),
        hive: HIVE.to_owned(),
        profile: Profile::Fast,
        fenced: true,
        pace_ms: PACE_MS,
    };
    let mut soak = Soak { swarm: Swarm::start_with_faults(faults, swarm_options, options.bees)?, tried: 0, refused: 0 };
    let mut dice = Dice::new(options.seed);
    let mut kinds = Kind::others(options.backend, options.clocks.is_some());
    kinds.push(Kind::Pause);
    let mut faults_made = BTreeMap::new();
    let until = Instant::now() + Duration::from_secs(options.minutes * 60);
    while Instant::now() < until {
        let kind = kinds[below(kinds.len(), &mut dice)];
        soak.strike(kind, &mut dice).map_err(|error| format!("{kind:?}: {error}"))?;
        *faults_made.entry(kind).or_default() += 1;
        eprintln!("{} faults, {} stale writes refused", faults_made.values().sum::<u32>(), soak.refused);
    }
    let faults_ended = Instant::now();
    let rest = soak.wait_for_rest(options.bees)?;
    let seconds_to_rest = faults_ended.elapsed().as_secs_f64();
    Ok(Report {
        backend: options.backend,
        bees: options.bees,
        faults_made,
        two_terms_at_once: soak.swarm.terms.overlaps(),
        verdict: check::judge(&location.ledger(HIVE)?.read()?),
        stale_tried: soak.tried,
        stale_refused: soak.refused,
        rest,
        seconds_to_rest,
        seconds: began.elapsed().as_secs_f64(),
    })
}

fn below(bound: usize, dice: &mut Dice) -> usize {
    usize::try_from(dice.below(i64::try_from(bound).unwrap_or(i64::MAX))).unwrap_or(0)
}

struct Soak {
    swarm: Swarm,
    tried: u32,
    refused: u32,
}

impl Soak {
    /// Causes one fault, ends it, and waits a moment.
    fn strike(&mut self, kind: Kind, dice: &mut Dice) -> Result<(), String> {
        let leader = self.swarm.writer(LEASE).map(|(leader, _)| leader);
        let names = self.swarm.names();
        let some = |most: usize, dice: &mut Dice| -> Vec<String> {
            let mut left: Vec<String> = names.iter().filter(|name| Some(*name) != leader.as_ref()).cloned().collect();
            let count = (1 + below(most, dice)).min(left.len());
            (0..count).map(|_| left.swap_remove(below(left.len(), dice))).collect()
        };
        let led = leader.clone().into_iter();
        let lasts = Duration::from_millis(1000 + dice.below(6000).unsigned_abs());
        let swarm = &mut self.swarm;
        match kind {
            Kind::Pause | Kind::Half | Kind::Follower => {
                let victims: Vec<String> = match kind {
                    Kind::Pause => led.chain(some(2, dice)).collect(),
                    Kind::Half => some(names.len() / 2, dice),
                    _ => some(3, dice),
                };
                victims.iter().try_for_each(|name| swarm.pause(name))?;
                self.listen(lasts)?;
                victims.iter().try_for_each(|name| self.swarm.resume(name))?;
            }
            Kind::Inside => {
                if let Some(leader) = &leader {
                    swarm.command(leader, "hold")?;
                    self.listen(lasts)?;
                    // The node may not have been the leader any more; it must not stop later, when the campaign no
                    // longer resumes it.
                    self.swarm.command(leader, "move")?;
                    self.swarm.resume(leader)?;
                }
            }
            Kind::Kill => {
                for name in led.chain(some(2, dice)) {
                    swarm.kill(&name)?;
                    swarm.add()?;
                }
            }
            Kind::Flush => {
                swarm.options.location.forget_hive(HIVE)?;
                self.listen(lasts)?;
            }
            Kind::Silent | Kind::NoRequests | Kind::NoAnswers | Kind::Late | Kind::Crowded => {
                let victims: Vec<String> = led.chain(some(5, dice)).collect();
                let mode = match kind {
                    Kind::Crowded => LinkMode::NoMore,
                    Kind::Silent => LinkMode::Silent,
                    Kind::NoRequests => LinkMode::NoRequests,
                    Kind::NoAnswers => LinkMode::NoAnswers,
                    _ => LinkMode::Late(Duration::from_millis(2000 + dice.below(8001).unsigned_abs())),
                };
                victims.iter().try_for_each(|name| swarm.set_link(name, mode))?;
                self.listen(lasts)?;
                victims.iter().try_for_each(|name| self.swarm.set_link(name, LinkMode::Open))?;
            }
            Kind::Clocks => {
                for name in led.chain(some(10, dice)) {
                    swarm.set_clock(&name, (dice.below(24) - 12) * HOUR_S)?;
                }
            }
        }
        self.listen(Duration::from_millis(dice.below(3000).unsigned_abs()))
    }

    fn listen(&mut self, wait: Duration) -> Result<(), String> {
        let Soak { swarm, tried, refused } = self;
        let mut stopped = Vec::new();
        let on_message = |who: &str, message: &NodeMessage| {
            match message {
                NodeMessage::Tried { accepted, refused: no, .. } => {
                    *tried += accepted + no;
                    *refused += no;
                }
                NodeMessage::Holding { .. } => stopped.push(who.to_owned()),
                _ => {}
            }
            None::<()>
        };
        swarm.wait_for(wait, on_message)?;
        // Resumes each node that has stopped itself, whether it was asked just now or long ago; it may have been killed
        // meanwhile.
        stopped.iter().for_each(|name| drop(swarm.resume(name)));
        Ok(())
    }

    /// Asks all nodes until their answers are as wanted, or [`RESTS_WITHIN`] has passed.
    fn wait_for_rest(&mut self, bees: usize) -> Result<RestState, String> {
        let began = Instant::now();
        loop {
            let mut rest = self.ask_all()?;
            rest.duty = self.swarm.keeps_writing("")?;
            if rest == RestState::wanted(bees) || began.elapsed() > RESTS_WITHIN {
                return Ok(rest);
            }
            self.listen(Duration::from_secs(1))?;
        }
    }

    fn ask_all(&mut self) -> Result<RestState, String> {
        let mut rest = RestState { engaged: (u64::MAX, 0), ..RestState::default() };
        for name in self.swarm.names() {
            self.swarm.command(&name, "rest")?;
            let rests = |who: &str, message: &NodeMessage| match message {
                NodeMessage::Rests { queen, engaged, shards } if who == name => Some((*queen, *engaged, *shards)),
                _ => None,
            };
            let Some((queen, engaged, shards)) = self.swarm.wait_for(Duration::from_secs(5), rests)? else { continue };
            let engaged = engaged.unwrap_or(0);
            rest.answered += 1;
            rest.engaged = (rest.engaged.0.min(engaged), rest.engaged.1.max(engaged));
            rest.queens += usize::from(queen);
            rest.shards += shards;
        }
        Ok(rest)
    }
}

//! One large hive for a long time: faults of all kinds at random, several bees at a time. Then everything is mended, and
//! the hive must come to rest: all of them counted, one queen, the one duty done, every shard in somebody's hands.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use honeyflow::demo::dice::Dice;
use serde::Serialize;

use super::{
    Backend, Clocks, Kind, LEASE, Place, Profile, Said, Setting, Swarm, Verdict, check, line::Exchange, swarm::Reach,
};
use crate::proxy::Way;

const SHARDS: u32 = 64;
/// All shards together write a few dozen times a second.
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
    pub rest: Rest,
    /// Since the last fault was mended.
    pub seconds_to_rest: f64,
    pub seconds: f64,
}

/// What the bees say, all together.
#[derive(Clone, Default, Debug, PartialEq, Eq, Serialize)]
pub struct Rest {
    pub answered: usize,
    /// How many they believe to serve: the least and the most.
    pub engaged: (u64, u64),
    pub queens: usize,
    pub shards: u32,
    /// The one duty is done.
    pub duty: bool,
}

impl Rest {
    fn of(bees: usize) -> Rest {
        Rest { answered: bees, engaged: (bees as u64, bees as u64), queens: 1, shards: SHARDS, duty: true }
    }
}

impl Report {
    /// What is missing or wrong.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut unless = |holds: bool, fault: String| {
            if !holds {
                faults.push(fault);
            }
        };
        unless(self.verdict.stale == 0, format!("{} stale writes were accepted", self.verdict.stale));
        unless(self.verdict.shared_epochs == 0, format!("{} epochs were shared", self.verdict.shared_epochs));
        unless(self.two_terms_at_once == 0, format!("{} terms were good after others", self.two_terms_at_once));
        unless(self.stale_refused > 0, "nothing stale was tried".to_owned());
        let wanted = Rest::of(self.bees);
        unless(self.rest == wanted, format!("at rest it is {:?} instead of {wanted:?}", self.rest));
        faults
    }
}

/// # Errors
/// What kept it from being carried out at all.
pub fn run(options: &Options) -> Result<Report, String> {
    let began = Instant::now();
    let (place, _made) = Place::prepare(options.backend)?;
    let exchange = Exchange::before(&place)?;
    let reach = Reach { exchange, clocks: options.clocks.clone(), drifts: true, shards: SHARDS, ..Reach::default() };
    let setting = Setting {
        program: options.program.clone(),
        place: place.clone(),
        hive: HIVE.to_owned(),
        profile: Profile::Fast,
        fenced: true,
        pace_ms: PACE_MS,
    };
    let mut soak = Soak { swarm: Swarm::within(reach, setting, options.bees)?, tried: 0, refused: 0 };
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
    let mended = Instant::now();
    let rest = soak.rest(options.bees)?;
    let seconds_to_rest = mended.elapsed().as_secs_f64();
    Ok(Report {
        backend: options.backend,
        bees: options.bees,
        faults_made,
        two_terms_at_once: soak.swarm.terms.at_once(),
        verdict: check::judge(&place.ledger(HIVE)?.read()?),
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
    /// One fault, as long as it lasts, and a moment after.
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
                self.hear(lasts)?;
                victims.iter().try_for_each(|name| self.swarm.go_on(name))?;
            }
            Kind::Inside => {
                if let Some(leader) = &leader {
                    swarm.command(leader, "hold")?;
                    self.hear(lasts)?;
                    // It may not have led any more; it must not stop when nobody is there to wake it.
                    self.swarm.command(leader, "move")?;
                    self.swarm.go_on(leader)?;
                }
            }
            Kind::Kill => {
                for name in led.chain(some(2, dice)) {
                    swarm.kill(&name)?;
                    swarm.add()?;
                }
            }
            Kind::Flush => {
                swarm.setting.place.forget(HIVE)?;
                self.hear(lasts)?;
            }
            Kind::Silent | Kind::NoRequests | Kind::NoAnswers | Kind::Late | Kind::Crowded => {
                let victims: Vec<String> = led.chain(some(5, dice)).collect();
                let way = match kind {
                    Kind::Crowded => Way::NoMore,
                    Kind::Silent => Way::Silent,
                    Kind::NoRequests => Way::NoRequests,
                    Kind::NoAnswers => Way::NoAnswers,
                    _ => Way::Late(Duration::from_millis(2000 + dice.below(8001).unsigned_abs())),
                };
                victims.iter().try_for_each(|name| swarm.cut(name, way))?;
                self.hear(lasts)?;
                victims.iter().try_for_each(|name| self.swarm.cut(name, Way::Open))?;
            }
            Kind::Clocks => {
                for name in led.chain(some(10, dice)) {
                    swarm.set_clock(&name, (dice.below(24) - 12) * HOUR_S)?;
                }
            }
        }
        self.hear(Duration::from_millis(dice.below(3000).unsigned_abs()))
    }

    fn hear(&mut self, wait: Duration) -> Result<(), String> {
        let Soak { swarm, tried, refused } = self;
        let mut stopped = Vec::new();
        let heard = |who: &str, said: &Said| {
            match said {
                Said::Tried { accepted, refused: no, .. } => {
                    *tried += accepted + no;
                    *refused += no;
                }
                Said::Holding { .. } => stopped.push(who.to_owned()),
                _ => {}
            }
            None::<()>
        };
        swarm.wait_for(wait, heard)?;
        // Whoever has stopped itself, asked to just now or long ago, is woken; it may have been killed meanwhile.
        stopped.iter().for_each(|name| drop(swarm.go_on(name)));
        Ok(())
    }

    /// Asks all of them until they agree, or for so long.
    fn rest(&mut self, bees: usize) -> Result<Rest, String> {
        let began = Instant::now();
        loop {
            let mut rest = self.ask()?;
            rest.duty = self.swarm.writes_on("")?;
            if rest == Rest::of(bees) || began.elapsed() > RESTS_WITHIN {
                return Ok(rest);
            }
            self.hear(Duration::from_secs(1))?;
        }
    }

    fn ask(&mut self) -> Result<Rest, String> {
        let mut rest = Rest { engaged: (u64::MAX, 0), ..Rest::default() };
        for name in self.swarm.names() {
            self.swarm.command(&name, "rest")?;
            let rests = |who: &str, said: &Said| match said {
                Said::Rests { queen, engaged, shards } if who == name => Some((*queen, *engaged, *shards)),
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

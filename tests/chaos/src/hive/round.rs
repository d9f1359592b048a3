//! One round: something happens to whoever leads, another takes over and writes, and the first one is heard again.

use std::time::{Duration, Instant};

use honeyflow::demo::dice::Dice;
use honeyflow_hive::contract::QUEEN;
use honeyflow_runtime::{Clock, time::BootClock};

use super::{Kind, LEASE, Said, Swarm, swarm::PATIENCE, tally::CameTo};
use crate::proxy::Way;

/// So long a stopped transaction may keep the others waiting; where the whole database waits for it, nobody takes over.
const HELD_FOR: Duration = Duration::from_secs(6);
/// On a file, burial takes two times to live at least; past this the writer was stopped in the middle of a write.
const LOCKED_OUT: Duration = Duration::from_secs(15);
/// Until whoever was woken has tried to write; it may have been no leader any more when it was stopped.
const TRIES_WITHIN: Duration = Duration::from_secs(20);
/// A time to live, and then some.
const BEYOND_LEASE: Duration = Duration::from_millis(2500);
/// Until a clock that was set is looked at, and a beat or two after.
const CLOCK_IS_SEEN: Duration = Duration::from_millis(1800);
const WRITES_ON_WITHIN: Duration = Duration::from_secs(1);
const HOUR_S: i64 = 3600;

/// Who led when the round began.
struct Leader {
    name: String,
    lease: &'static str,
    epoch: u64,
}

impl Swarm {
    /// # Errors
    /// If nobody leads, or nobody takes over.
    pub fn play(&mut self, kind: Kind, dice: &mut Dice) -> Result<CameTo, String> {
        let leader = self.leader(dice)?;
        match kind {
            Kind::Pause => self.pause_all(&leader, &[]),
            Kind::Half => {
                let other = self.other_than(&leader.name, dice)?;
                self.pause_all(&leader, &[other])
            }
            Kind::Clocks => {
                for name in self.names() {
                    if dice.below(2) == 0 {
                        self.set_clock(&name, (dice.below(24) - 12) * HOUR_S + dice.below(HOUR_S))?;
                    }
                }
                self.wait_for(CLOCK_IS_SEEN, |_, _| None::<()>)?;
                let leader = self.leader(dice)?;
                self.pause_all(&leader, &[])
            }
            Kind::Inside => self.stop_inside(&leader),
            Kind::Kill => {
                self.kill(&leader.name)?;
                let killed_us = BootClock.now().0;
                let at_us = self.wait("another takes over and writes", leader.succeeded())?;
                self.add()?;
                Ok(CameTo { took_over_ms: Some(at_us.saturating_sub(killed_us) / 1000), ..CameTo::default() })
            }
            Kind::Flush => {
                self.pause(&leader.name)?;
                self.setting.place.forget(&self.setting.hive)?;
                self.wait("another takes over and writes", leader.succeeded())?;
                self.go_on(&leader.name)?;
                self.hear_tries(&leader)
            }
            Kind::Crowded => self.crowd(),
            Kind::Follower => self.pause_follower(&leader, dice),
            Kind::Silent => self.cut_off(&leader, Way::Silent),
            Kind::NoRequests => self.cut_off(&leader, Way::NoRequests),
            Kind::NoAnswers => self.cut_off(&leader, Way::NoAnswers),
            Kind::Late => {
                let delay_ms = u64::try_from(2000 + dice.below(8001)).unwrap_or(2000);
                self.cut_off(&leader, Way::Late(Duration::from_millis(delay_ms)))
            }
        }
    }

    /// Whoever writes under [`LEASE`] by now, after a while that differs from round to round.
    fn leader(&mut self, dice: &mut Dice) -> Result<Leader, String> {
        let wait = Duration::from_millis(u64::try_from(20 + dice.below(600)).unwrap_or(100));
        self.wait_for(wait, |_, _| None::<()>)?;
        // Whoever was woken may be given back what it had: then its heir leads no longer.
        let leads = self.writer(LEASE).filter(|(_, epoch)| !self.terms.is_over(LEASE, *epoch));
        let (name, epoch) = match leads {
            Some(leader) => leader,
            None => self.wait("somebody leads", |who, said| wrote(LEASE, who, said))?,
        };
        Ok(Leader { name, lease: LEASE, epoch })
    }

    fn other_than(&self, name: &str, dice: &mut Dice) -> Result<String, String> {
        let mut others = self.names();
        others.retain(|other| other != name);
        let at = dice.below(i64::try_from(others.len()).unwrap_or(1));
        others.into_iter().nth(usize::try_from(at).unwrap_or(0)).ok_or_else(|| "it is alone".to_owned())
    }

    /// The leader first: once it stands still nobody hands over to it.
    fn pause_all(&mut self, leader: &Leader, others: &[String]) -> Result<CameTo, String> {
        self.pause(&leader.name)?;
        others.iter().try_for_each(|other| self.pause(other))?;
        let succeeded = if self.setting.place.backend.has_server() {
            self.wait("another takes over and writes", leader.succeeded()).map(Some)
        } else {
            // Stopped while it holds the file's write lock, it keeps everybody out; that is no take-over to wait for.
            self.wait_for(LOCKED_OUT, leader.succeeded())
        }?;
        self.go_on(&leader.name)?;
        others.iter().try_for_each(|other| self.go_on(other))?;
        if succeeded.is_some() { self.hear_tries(leader) } else { Ok(CameTo::default()) }
    }

    fn stop_inside(&mut self, leader: &Leader) -> Result<CameTo, String> {
        self.command(&leader.name, "hold")?;
        let holds = |who: &str, said: &Said| (who == leader.name && matches!(said, Said::Holding { .. })).then_some(());
        let holds = self.wait_for(TRIES_WITHIN, holds)?.is_some();
        let held_for = if self.setting.place.backend.has_server() { HELD_FOR } else { HELD_FOR / 3 };
        let succeeded = holds && self.wait_for(held_for, leader.succeeded())?.is_some();
        // It may not have come to that, and must not do so when nobody is there to wake it.
        self.command(&leader.name, "move")?;
        self.go_on(&leader.name)?;
        if succeeded { self.hear_tries(leader) } else { Ok(CameTo::default()) }
    }

    /// Whoever leads has what it needs; but an answer that comes too late costs a connection, so it may be that nobody has
    /// one. Then they go on once there are others.
    fn crowd(&mut self) -> Result<CameTo, String> {
        for name in self.names() {
            self.cut(&name, Way::NoMore)?;
        }
        self.wait_for(BEYOND_LEASE, |_, _| None::<()>)?;
        let goes_on = self.writes_on("")?;
        for name in self.names() {
            self.cut(&name, Way::Open)?;
        }
        if goes_on || self.writes_on("")? {
            Ok(CameTo::default())
        } else {
            Err("there were no further connections, and once there were nobody wrote any more".to_owned())
        }
    }

    fn cut_off(&mut self, leader: &Leader, way: Way) -> Result<CameTo, String> {
        self.cut(&leader.name, way)?;
        self.wait("another takes over and writes", leader.succeeded())?;
        self.cut(&leader.name, Way::Open)?;
        self.hear_tries(leader)
    }

    /// The lease stays where it is, or goes on to another; writes do not end. Was it the queen, she is heard afterwards.
    fn pause_follower(&mut self, leader: &Leader, dice: &mut Dice) -> Result<CameTo, String> {
        let follower = self.other_than(&leader.name, dice)?;
        let queen = self.writer(QUEEN).filter(|(queen, _)| *queen == follower);
        let queen = queen.map(|(name, epoch)| Leader { name, lease: QUEEN, epoch });
        self.pause(&follower)?;
        self.wait_for(BEYOND_LEASE, |_, _| None::<()>)?;
        let mut goes_on = self.writes_on(&follower)?;
        let mut succeeded = false;
        if let Some(queen) = &queen {
            succeeded = self.writer(QUEEN).is_some_and(|(_, epoch)| epoch > queen.epoch)
                || self.wait_for(LOCKED_OUT, queen.succeeded())?.is_some();
        }
        self.go_on(&follower)?;
        // On a file, whoever stands still may have kept all the others out.
        if !goes_on && !self.setting.place.backend.has_server() {
            goes_on = self.writes_on("")?;
        }
        if !goes_on {
            return Err(format!("{follower} stood still, which did not lead, and nobody wrote any more"));
        }
        match queen {
            Some(queen) if succeeded => self.hear_tries(&queen),
            _ => Ok(CameTo::default()),
        }
    }

    /// Whether somebody else than `paused` writes under [`LEASE`] from now on.
    pub fn writes_on(&mut self, paused: &str) -> Result<bool, String> {
        let patience = if self.setting.place.backend.has_server() { PATIENCE } else { LOCKED_OUT };
        let (until, mut before) = (Instant::now() + patience, None);
        while Instant::now() < until {
            let Some((name, _)) = self.writer(LEASE).filter(|(name, _)| name != paused) else {
                self.wait_for(WRITES_ON_WITHIN, |who, said| wrote(LEASE, who, said))?;
                continue;
            };
            self.command(&name, "count")?;
            let counted = |who: &str, said: &Said| match said {
                Said::Counted { lease, epoch, writes } if who == name && lease == LEASE => Some((*epoch, *writes)),
                _ => None,
            };
            let counted = self.wait_for(WRITES_ON_WITHIN, counted)?;
            if before.is_some() && counted > before {
                return Ok(true);
            }
            before = counted.or(before);
            self.wait_for(Duration::from_millis(self.setting.pace_ms * 3), |_, _| None::<()>)?;
        }
        Ok(false)
    }

    /// After it was woken: what came of its writes. Nothing, if it had handed over before.
    fn hear_tries(&mut self, leader: &Leader) -> Result<CameTo, String> {
        if self.terms.is_over(leader.lease, leader.epoch) {
            return Ok(CameTo::default());
        }
        let tried = |who: &str, said: &Said| match said {
            Said::Tried { lease, epoch, accepted, refused, .. }
                if who == leader.name && lease == leader.lease && *epoch == leader.epoch =>
            {
                Some(CameTo { accepted: *accepted, refused: *refused, took_over_ms: None })
            }
            _ => None,
        };
        Ok(self.wait_for(TRIES_WITHIN, tried)?.unwrap_or_default())
    }
}

impl Leader {
    /// Another one writes under a later epoch, since then.
    fn succeeded(&self) -> impl FnMut(&str, &Said) -> Option<u64> {
        let (leader, led, after) = (self.name.clone(), self.lease, self.epoch);
        move |who, said| match said {
            Said::Wrote { lease, epoch, at_us } if lease == led && who != leader && *epoch > after => Some(*at_us),
            _ => None,
        }
    }
}

fn wrote(led: &str, who: &str, said: &Said) -> Option<(String, u64)> {
    match said {
        Said::Wrote { lease, epoch, .. } if lease == led => Some((who.to_owned(), *epoch)),
        _ => None,
    }
}

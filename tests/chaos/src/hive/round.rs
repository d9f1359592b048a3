//! One round: a fault hits the leader, another node takes over and writes, and the former leader reports what came of
//! its own writes.

use std::time::{Duration, Instant};

use honeyflow::demo::dice::Dice;
use honeyflow_hive::contract::QUEEN;
use honeyflow_runtime::{Clock, time::BootClock};

use super::{Kind, LEASE, NodeMessage, Swarm, swarm::PATIENCE, tally::RoundResult};
use crate::proxy::LinkMode;

/// How long a stopped transaction may block the other nodes. Where it blocks the whole database, no node takes over.
const BLOCKED_MAX: Duration = Duration::from_secs(6);
/// On a file, an expired member is removed after two times to live at least. If no node takes over for longer than
/// this, the leader was stopped in the middle of a write.
const LOCKED_OUT_AFTER: Duration = Duration::from_secs(15);
/// How long the round waits for the writes of a node that was resumed. It may not have been the leader any more when it
/// was stopped.
const REPORT_WITHIN: Duration = Duration::from_secs(20);
/// Longer than a time to live.
const BEYOND_LEASE: Duration = Duration::from_millis(2500);
/// The time until a node sees a clock change, and has sent one or two heartbeats after it.
const CLOCK_CHANGE_SEEN_AFTER: Duration = Duration::from_millis(1800);
const WRITES_ON_WITHIN: Duration = Duration::from_secs(1);
const HOUR_S: i64 = 3600;

/// The leader when the round began.
struct Leader {
    name: String,
    lease: &'static str,
    epoch: u64,
}

impl Swarm {
    /// Plays one round.
    ///
    /// # Errors
    /// If the hive has no leader, or no node takes over.
    pub fn play(&mut self, kind: Kind, dice: &mut Dice) -> Result<RoundResult, String> {
        let leader = self.leader(dice)?;
        match kind {
            Kind::Pause => self.pause_leader_and(&leader, &[]),
            Kind::Half => {
                let other = self.pick_other_than(&leader.name, dice)?;
                self.pause_leader_and(&leader, &[other])
            }
            Kind::Clocks => {
                for name in self.names() {
                    if dice.below(2) == 0 {
                        self.set_clock(&name, (dice.below(24) - 12) * HOUR_S + dice.below(HOUR_S))?;
                    }
                }
                self.wait_for(CLOCK_CHANGE_SEEN_AFTER, |_, _| None::<()>)?;
                let leader = self.leader(dice)?;
                self.pause_leader_and(&leader, &[])
            }
            Kind::Inside => self.stop_before_commit(&leader),
            Kind::Kill => {
                self.kill(&leader.name)?;
                let killed_us = BootClock.now().0;
                let at_us = self.wait("another takes over and writes", leader.succeeded())?;
                self.add()?;
                Ok(RoundResult { took_over_ms: Some(at_us.saturating_sub(killed_us) / 1000), ..RoundResult::default() })
            }
            Kind::Flush => {
                self.pause(&leader.name)?;
                self.options.location.forget_hive(&self.options.hive)?;
                self.wait("another takes over and writes", leader.succeeded())?;
                self.resume(&leader.name)?;
                self.wait_for_report(&leader)
            }
            Kind::Crowded => self.refuse_new_connections(),
            Kind::Follower => self.pause_follower(&leader, dice),
            Kind::Silent => self.cut_off(&leader, LinkMode::Silent),
            Kind::NoRequests => self.cut_off(&leader, LinkMode::NoRequests),
            Kind::NoAnswers => self.cut_off(&leader, LinkMode::NoAnswers),
            Kind::Late => {
                let delay_ms = u64::try_from(2000 + dice.below(8001)).unwrap_or(2000);
                self.cut_off(&leader, LinkMode::Late(Duration::from_millis(delay_ms)))
            }
        }
    }

    /// Returns the node that now writes under [`LEASE`], after a wait that differs from round to round.
    fn leader(&mut self, dice: &mut Dice) -> Result<Leader, String> {
        let wait = Duration::from_millis(u64::try_from(20 + dice.below(600)).unwrap_or(100));
        self.wait_for(wait, |_, _| None::<()>)?;
        // A node that was resumed may get its lease back: then its successor is no longer the leader.
        let leads = self.writer(LEASE).filter(|(_, epoch)| !self.terms.is_over(LEASE, *epoch));
        let (name, epoch) = match leads {
            Some(leader) => leader,
            None => self.wait("a node leads", |who, message| first_write(LEASE, who, message))?,
        };
        Ok(Leader { name, lease: LEASE, epoch })
    }

    fn pick_other_than(&self, name: &str, dice: &mut Dice) -> Result<String, String> {
        let mut others = self.names();
        others.retain(|other| other != name);
        let at = dice.below(i64::try_from(others.len()).unwrap_or(1));
        others.into_iter().nth(usize::try_from(at).unwrap_or(0)).ok_or_else(|| "there is no other node".to_owned())
    }

    /// Stops the leader first: once it stands still, no node transfers the lease to it.
    fn pause_leader_and(&mut self, leader: &Leader, others: &[String]) -> Result<RoundResult, String> {
        self.pause(&leader.name)?;
        others.iter().try_for_each(|other| self.pause(other))?;
        let succeeded = if self.options.location.backend.has_server() {
            self.wait("another takes over and writes", leader.succeeded()).map(Some)
        } else {
            // A leader that was stopped while it holds the file's write lock blocks all others; then there is no
            // take-over to wait for.
            self.wait_for(LOCKED_OUT_AFTER, leader.succeeded())
        }?;
        self.resume(&leader.name)?;
        others.iter().try_for_each(|other| self.resume(other))?;
        if succeeded.is_some() { self.wait_for_report(leader) } else { Ok(RoundResult::default()) }
    }

    fn stop_before_commit(&mut self, leader: &Leader) -> Result<RoundResult, String> {
        self.command(&leader.name, "hold")?;
        let holds = |who: &str, message: &NodeMessage| {
            (who == leader.name && matches!(message, NodeMessage::Holding { .. })).then_some(())
        };
        let holds = self.wait_for(REPORT_WITHIN, holds)?.is_some();
        let blocked_max = if self.options.location.backend.has_server() { BLOCKED_MAX } else { BLOCKED_MAX / 3 };
        let succeeded = holds && self.wait_for(blocked_max, leader.succeeded())?.is_some();
        // The leader may not have stopped yet, and must not do so later, when this round no longer resumes it.
        self.command(&leader.name, "move")?;
        self.resume(&leader.name)?;
        if succeeded { self.wait_for_report(leader) } else { Ok(RoundResult::default()) }
    }

    /// The leader has the connections it needs. But an answer that comes too late costs a connection, so all nodes may
    /// be without one; then they go on once new connections are allowed.
    fn refuse_new_connections(&mut self) -> Result<RoundResult, String> {
        for name in self.names() {
            self.set_link(&name, LinkMode::NoMore)?;
        }
        self.wait_for(BEYOND_LEASE, |_, _| None::<()>)?;
        let goes_on = self.keeps_writing("")?;
        for name in self.names() {
            self.set_link(&name, LinkMode::Open)?;
        }
        if goes_on || self.keeps_writing("")? {
            Ok(RoundResult::default())
        } else {
            Err("new connections were refused for a while, and afterwards no node wrote any more".to_owned())
        }
    }

    fn cut_off(&mut self, leader: &Leader, mode: LinkMode) -> Result<RoundResult, String> {
        self.set_link(&leader.name, mode)?;
        self.wait("another takes over and writes", leader.succeeded())?;
        self.set_link(&leader.name, LinkMode::Open)?;
        self.wait_for_report(leader)
    }

    /// Stops a node that is not the leader. The lease stays where it is or is transferred; the writes go on. If the
    /// stopped node was the queen, the round waits for her report afterwards.
    fn pause_follower(&mut self, leader: &Leader, dice: &mut Dice) -> Result<RoundResult, String> {
        let follower = self.pick_other_than(&leader.name, dice)?;
        let queen = self.writer(QUEEN).filter(|(queen, _)| *queen == follower);
        let queen = queen.map(|(name, epoch)| Leader { name, lease: QUEEN, epoch });
        self.pause(&follower)?;
        self.wait_for(BEYOND_LEASE, |_, _| None::<()>)?;
        let mut goes_on = self.keeps_writing(&follower)?;
        let mut succeeded = false;
        if let Some(queen) = &queen {
            succeeded = self.writer(QUEEN).is_some_and(|(_, epoch)| epoch > queen.epoch)
                || self.wait_for(LOCKED_OUT_AFTER, queen.succeeded())?.is_some();
        }
        self.resume(&follower)?;
        // On a file, the stopped node may have locked out all others.
        if !goes_on && !self.options.location.backend.has_server() {
            goes_on = self.keeps_writing("")?;
        }
        if !goes_on {
            return Err(format!("{follower} was stopped, which was not the leader, and no node wrote any more"));
        }
        match queen {
            Some(queen) if succeeded => self.wait_for_report(&queen),
            _ => Ok(RoundResult::default()),
        }
    }

    /// Whether a node other than `paused` goes on writing under [`LEASE`].
    pub fn keeps_writing(&mut self, paused: &str) -> Result<bool, String> {
        let patience = if self.options.location.backend.has_server() { PATIENCE } else { LOCKED_OUT_AFTER };
        let (until, mut before) = (Instant::now() + patience, None);
        while Instant::now() < until {
            let Some((name, _)) = self.writer(LEASE).filter(|(name, _)| name != paused) else {
                self.wait_for(WRITES_ON_WITHIN, |who, message| first_write(LEASE, who, message))?;
                continue;
            };
            self.command(&name, "count")?;
            let counted = |who: &str, message: &NodeMessage| match message {
                NodeMessage::Counted { lease, epoch, writes } if who == name && lease == LEASE => {
                    Some((*epoch, *writes))
                }
                _ => None,
            };
            let counted = self.wait_for(WRITES_ON_WITHIN, counted)?;
            if before.is_some() && counted > before {
                return Ok(true);
            }
            before = counted.or(before);
            self.wait_for(Duration::from_millis(self.options.pace_ms * 3), |_, _| None::<()>)?;
        }
        Ok(false)
    }

    /// Returns what came of the leader's writes after it was resumed. The result is empty if it had transferred the
    /// lease before.
    fn wait_for_report(&mut self, leader: &Leader) -> Result<RoundResult, String> {
        if self.terms.is_over(leader.lease, leader.epoch) {
            return Ok(RoundResult::default());
        }
        let tried = |who: &str, message: &NodeMessage| match message {
            NodeMessage::Tried { lease, epoch, accepted, refused, .. }
                if who == leader.name && lease == leader.lease && *epoch == leader.epoch =>
            {
                Some(RoundResult { accepted: *accepted, refused: *refused, took_over_ms: None })
            }
            _ => None,
        };
        Ok(self.wait_for(REPORT_WITHIN, tried)?.unwrap_or_default())
    }
}

impl Leader {
    /// Matches the first write of another node under a later epoch.
    fn succeeded(&self) -> impl FnMut(&str, &NodeMessage) -> Option<u64> {
        let (leader, led, after) = (self.name.clone(), self.lease, self.epoch);
        move |who, message| match message {
            NodeMessage::Wrote { lease, epoch, at_us } if lease == led && who != leader && *epoch > after => {
                Some(*at_us)
            }
            _ => None,
        }
    }
}

fn first_write(led: &str, who: &str, message: &NodeMessage) -> Option<(String, u64)> {
    match message {
        NodeMessage::Wrote { lease, epoch, .. } if lease == led => Some((who.to_owned(), *epoch)),
        _ => None,
    }
}

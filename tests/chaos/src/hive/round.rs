//! One round: something happens to whoever leads, another takes over and writes, and the first one is heard again.

use std::time::Duration;

use honeyflow::demo::dice::Dice;
use serde::Serialize;

use super::{LEASE, Said, Swarm};

/// So long a stopped transaction may keep the others waiting; where the whole database waits for it, nobody takes over.
const HELD_FOR: Duration = Duration::from_secs(6);
/// On a file, burial takes two times to live at least; past this the writer was stopped in the middle of a write.
const LOCKED_OUT: Duration = Duration::from_secs(15);
/// Until whoever was woken has tried to write; it may have been no leader any more when it was stopped.
const TRIES_WITHIN: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Stopped anywhere, beyond its lease.
    Pause,
    /// Stopped inside a fenced transaction.
    Inside,
    Kill,
}

impl Kind {
    /// Mostly pauses.
    pub fn of_round(round: u32) -> Kind {
        match round % 10 {
            4 => Kind::Kill,
            8 => Kind::Inside,
            _ => Kind::Pause,
        }
    }
}

#[derive(Default)]
pub struct CameTo {
    /// Under a term that was lost: tried, and refused.
    tried: u32,
    refused: u32,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    pub pauses: u32,
    pub inside_transactions: u32,
    pub kills: u32,
    pub stale_tried: u32,
    pub stale_refused: u32,
    /// Pauses after which nothing stale was tried: the leader had just handed over, or kept everybody out (SQLite).
    pub pauses_of_nobody: u32,
}

impl Tally {
    pub fn rounds(&self) -> u32 {
        self.pauses + self.inside_transactions + self.kills
    }

    pub fn add(&mut self, kind: Kind, came_to: &CameTo) {
        match kind {
            Kind::Pause => {
                self.pauses += 1;
                self.pauses_of_nobody += u32::from(came_to.tried == 0);
            }
            Kind::Inside => self.inside_transactions += 1,
            Kind::Kill => self.kills += 1,
        }
        self.stale_tried += came_to.tried;
        self.stale_refused += came_to.refused;
    }
}

impl Swarm {
    /// # Errors
    /// If nobody leads, or nobody takes over.
    pub fn play(&mut self, kind: Kind, dice: &mut Dice) -> Result<CameTo, String> {
        let (leader, epoch) = self.leader(dice)?;
        match kind {
            Kind::Pause => {
                self.pause(&leader)?;
                let succeeded = if self.setting.place.backend.has_server() {
                    self.wait("another takes over and writes", succeeds(&leader, epoch)).map(Some)
                } else {
                    // Stopped while it holds the file's write lock, it keeps everybody out; that is no take-over to wait for.
                    self.wait_for(LOCKED_OUT, succeeds(&leader, epoch))
                }?;
                self.go_on(&leader)?;
                if succeeded.is_some() { self.hear_tries(&leader) } else { Ok(CameTo::default()) }
            }
            Kind::Inside => {
                self.command(&leader, "hold")?;
                let holds =
                    |who: &str, said: &Said| (who == leader && matches!(said, Said::Holding { .. })).then_some(());
                let holds = self.wait_for(TRIES_WITHIN, holds)?.is_some();
                let held_for = if self.setting.place.backend.has_server() { HELD_FOR } else { HELD_FOR / 3 };
                let succeeded = holds && self.wait_for(held_for, succeeds(&leader, epoch))?.is_some();
                self.go_on(&leader)?;
                if succeeded { self.hear_tries(&leader) } else { Ok(CameTo::default()) }
            }
            Kind::Kill => {
                self.kill(&leader)?;
                self.wait("another takes over and writes", succeeds(&leader, epoch))?;
                self.add()?;
                Ok(CameTo::default())
            }
        }
    }

    /// Whoever writes under [`LEASE`] by now, after a while that differs from round to round.
    fn leader(&mut self, dice: &mut Dice) -> Result<(String, u64), String> {
        let wait = Duration::from_millis(u64::try_from(20 + dice.below(600)).unwrap_or(100));
        self.wait_for(wait, |_, _| None::<()>)?;
        match self.writer(LEASE) {
            Some(leader) => Ok(leader),
            None => self.wait("somebody leads", wrote),
        }
    }

    /// After it was woken: what came of its writes.
    fn hear_tries(&mut self, leader: &str) -> Result<CameTo, String> {
        let tried = |who: &str, said: &Said| match said {
            Said::Tried { lease, accepted, refused, .. } if who == leader && lease == LEASE => {
                Some(CameTo { tried: accepted + refused, refused: *refused })
            }
            _ => None,
        };
        Ok(self.wait_for(TRIES_WITHIN, tried)?.unwrap_or_default())
    }
}

fn wrote(who: &str, said: &Said) -> Option<(String, u64)> {
    match said {
        Said::Wrote { lease, epoch, .. } if lease == LEASE => Some((who.to_owned(), *epoch)),
        _ => None,
    }
}

fn succeeds(leader: &str, after: u64) -> impl FnMut(&str, &Said) -> Option<()> {
    let leader = leader.to_owned();
    move |who, said| wrote(who, said).filter(|(who, epoch)| *who != leader && *epoch > after).map(drop)
}

//! Requests that were overtaken by a second one beside them. On a connection that tells what is under way they run on until
//! their own deadline, elsewhere they end with the race; what becomes of them says as much about the server as any other
//! answer: a server whose requests are all rescued in time would else seem well for ever, and its times too short.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use honeyflow_runtime::Moment;

use super::{Carried, Core, Effects, Judgement, Key, TICK};

/// What of a loan is still under way.
#[derive(Debug, Default)]
pub struct Flights {
    count: AtomicU32,
    /// When the loan was given back, in the clock's microseconds; written before [`LOAN_GONE`].
    gone_at: AtomicU64,
    /// When the answer came, of a loan that was overtaken; of others [`CAME`], or [`UNASKED`] if none has.
    answered_at: AtomicU64,
}

/// The loan has been given back.
const LOAN_GONE: u32 = 1 << 31;

const UNASKED: u64 = 0;
const UNANSWERED: u64 = u64::MAX;
/// The connection ended before, or it was never sent.
const NEVER: u64 = u64::MAX - 1;
const CAME: u64 = u64::MAX - 2;

impl Flights {
    pub fn begin(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// The loan is given back: whether anything is still under way.
    pub fn leave(&self, now: Moment) -> bool {
        self.gone_at.store(now.0, Ordering::Relaxed);
        // From now on the last answer counts, not those before it.
        if self.answered_at.load(Ordering::Relaxed) == CAME {
            self.answered_at.store(UNASKED, Ordering::Relaxed);
        }
        self.count.fetch_or(LOAN_GONE, Ordering::AcqRel) > 0
    }

    /// An answer has come. The clock is read only if somebody wants to know when.
    pub fn answered(&self, now: impl FnOnce() -> Moment) {
        match self.answered_at.load(Ordering::Relaxed) {
            UNASKED => self.answered_at.store(CAME, Ordering::Relaxed),
            UNANSWERED => self.answered_at.store(now().0, Ordering::Relaxed),
            _ => {}
        }
    }

    /// One has ended, with an answer or without. If the loan was given back before and this is the last: when that was,
    /// and whether there was an answer.
    pub fn end(&self) -> Option<(Moment, bool)> {
        let before = self.count.fetch_sub(1, Ordering::AcqRel);
        if before & !LOAN_GONE != 1 {
            return None;
        }
        let answered_at = self.answered_at.load(Ordering::Relaxed);
        if answered_at == UNANSWERED {
            self.answered_at.store(NEVER, Ordering::Relaxed);
        }
        let answered = !matches!(answered_at, UNASKED | UNANSWERED | NEVER);
        (before == LOAN_GONE | 1).then(|| (Moment(self.gone_at.load(Ordering::Relaxed)), answered))
    }

    /// From now on it is of interest when the answer comes. False if nothing is under way.
    fn overtake(&self) -> bool {
        self.answered_at.store(UNANSWERED, Ordering::Relaxed);
        // Written to: whoever ends one afterwards sees the line above.
        self.count.fetch_add(0, Ordering::AcqRel) & !LOAN_GONE > 0
    }
}

#[derive(Debug)]
pub struct Overtaken {
    pub server: Key,
    pub begun: Moment,
    pub due: Moment,
    /// None: its connection is closed, and nothing more is heard of it.
    pub flights: Option<Arc<Flights>>,
}

impl Overtaken {
    /// What became of it, if anything has.
    fn judgement(&self, now: Moment) -> Option<Judgement> {
        let answered_at = self.flights.as_ref().map_or(NEVER, |flights| flights.answered_at.load(Ordering::Relaxed));
        match answered_at {
            UNANSWERED => (self.due <= now).then_some(Judgement::Silent),
            UNASKED | CAME | NEVER => Some(Judgement::Neutral),
            at => Some(Judgement::Answered(Moment(at).since(self.begun))),
        }
    }
}

impl<K: Carried> Core<K> {
    /// Another one was quicker. Where the connection does not tell what is under way on it, nothing more is heard of the
    /// loser: that it took as long as until now is all there will ever be to know.
    pub fn overtaken(&mut self, one: Overtaken, now: Moment, effects: &mut Effects<K>) {
        if !one.flights.as_ref().is_some_and(|flights| flights.overtake()) {
            return self.judge(one.server, Judgement::Overtaken(now.since(one.begun)), now, effects);
        }
        self.overtaken.push(one);
        if self.tick_at == Moment::FAR {
            self.tick_at = now.after(TICK);
            effects.rearm = true;
        }
    }

    pub(super) fn overtaken_at(&self, server: Key) -> u64 {
        self.overtaken.iter().filter(|one| one.server == server).count() as u64
    }

    pub(super) fn hear_overtaken(&mut self, now: Moment, effects: &mut Effects<K>) {
        let mut running = std::mem::take(&mut self.overtaken);
        running.retain(|one| match one.judgement(now) {
            None => true,
            Some(judgement) => {
                self.judge(one.server, judgement, now, effects);
                false
            }
        });
        self.overtaken = running;
    }
}

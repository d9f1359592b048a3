//! Requests that were overtaken by a second one beside them. On their connection they run on until their own deadline, and
//! what becomes of them says as much about the server as any other answer: a server whose requests are all rescued in time
//! would else seem well for ever, and its times too short.

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
    /// When the answer came, of a loan that was overtaken; [`UNASKED`] of others.
    answered_at: AtomicU64,
}

/// The loan has been given back.
const LOAN_GONE: u32 = 1 << 31;

const UNASKED: u64 = 0;
const UNANSWERED: u64 = u64::MAX;
/// The connection ended before.
const LOST: u64 = u64::MAX - 1;

impl Flights {
    pub fn begin(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// The loan is given back: whether anything is still under way.
    pub fn leave(&self, now: Moment) -> bool {
        self.gone_at.store(now.0, Ordering::Relaxed);
        self.count.fetch_or(LOAN_GONE, Ordering::AcqRel) > 0
    }

    /// One has ended. When the loan was given back, if that was before and this is the last.
    pub fn end(&self, lost: impl FnOnce() -> bool, now: impl FnOnce() -> Moment) -> Option<Moment> {
        let before = self.count.fetch_sub(1, Ordering::AcqRel);
        if before & !LOAN_GONE == 1 && self.answered_at.load(Ordering::Relaxed) == UNANSWERED {
            self.answered_at.store(if lost() { LOST } else { now().0 }, Ordering::Relaxed);
        }
        (before == LOAN_GONE | 1).then(|| Moment(self.gone_at.load(Ordering::Relaxed)))
    }

    /// From now on it is of interest when the answer comes. False if it is there already.
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
    pub flights: Arc<Flights>,
}

impl Overtaken {
    /// What became of it, if anything has.
    fn judgement(&self, now: Moment) -> Option<Judgement> {
        match self.flights.answered_at.load(Ordering::Relaxed) {
            UNANSWERED => (self.due <= now).then_some(Judgement::Silent),
            UNASKED | LOST => Some(Judgement::Neutral),
            at => Some(Judgement::Answered(Moment(at).since(self.begun))),
        }
    }
}

impl<K: Carried> Core<K> {
    /// Another one was quicker.
    pub fn overtaken(&mut self, one: Overtaken, now: Moment, effects: &mut Effects<K>) {
        if !one.flights.overtake() {
            return;
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

//! Requests that lost against their hedge. On a connection that reports its requests in flight they run on until their
//! deadline; on others they end with the race. Their result counts for the server's health like any other: otherwise a
//! server whose requests are all rescued by hedges would seem healthy for ever, and its times would look too short.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use honeyflow_runtime::Moment;

use super::{Core, Effects, Judgement, Key, PooledConnection, TICK};

/// The requests in flight of one loan.
#[derive(Debug, Default)]
pub struct Flights {
    count: AtomicU32,
    /// When the loan was given back, in microseconds of the clock; written before [`LOAN_GONE`].
    gone_at: AtomicU64,
    /// For an overtaken loan, when the answer came. For other loans [`CAME`], or [`UNASKED`] if there was no answer.
    answered_at: AtomicU64,
}

/// The loan has been given back.
const LOAN_GONE: u32 = 1 << 31;

const UNASKED: u64 = 0;
const UNANSWERED: u64 = u64::MAX;
/// The connection ended first, or the request was never sent.
const NEVER: u64 = u64::MAX - 1;
const CAME: u64 = u64::MAX - 2;

impl Flights {
    pub fn begin(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the loan is given back. Returns whether a request is still in flight.
    pub fn leave(&self, now: Moment) -> bool {
        self.gone_at.store(now.0, Ordering::Relaxed);
        // From now on only the last answer counts.
        if self.answered_at.load(Ordering::Relaxed) == CAME {
            self.answered_at.store(UNASKED, Ordering::Relaxed);
        }
        self.count.fetch_or(LOAN_GONE, Ordering::AcqRel) > 0
    }

    /// Notes an answer. The clock is read only for an overtaken loan, which needs the time.
    pub fn answered(&self, now: impl FnOnce() -> Moment) {
        match self.answered_at.load(Ordering::Relaxed) {
            UNASKED => self.answered_at.store(CAME, Ordering::Relaxed),
            UNANSWERED => self.answered_at.store(now().0, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Ends one request, with an answer or without. If the loan was given back before and this is the last request,
    /// returns when the loan was given back, and whether there was an answer.
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

    /// Starts to record when the answer comes. Returns false if no request is in flight.
    fn overtake(&self) -> bool {
        self.answered_at.store(UNANSWERED, Ordering::Relaxed);
        // A write, so that a later `end` sees the store above.
        self.count.fetch_add(0, Ordering::AcqRel) & !LOAN_GONE > 0
    }
}

#[derive(Debug)]
pub struct OvertakenRequest {
    pub server: Key,
    pub begun: Moment,
    pub due: Moment,
    /// `None`: its connection is closed, and no answer can come.
    pub flights: Option<Arc<Flights>>,
}

impl OvertakenRequest {
    /// What the request says about its server, once it is decided.
    fn judgement(&self, now: Moment) -> Option<Judgement> {
        let answered_at = self.flights.as_ref().map_or(NEVER, |flights| flights.answered_at.load(Ordering::Relaxed));
        match answered_at {
            UNANSWERED => (self.due <= now).then_some(Judgement::Silent),
            UNASKED | CAME | NEVER => Some(Judgement::Neutral),
            at => Some(Judgement::Answered(Moment(at).since(self.begun))),
        }
    }
}

impl<K: PooledConnection> Core<K> {
    /// Records a request that lost against its hedge. If its connection does not report requests in flight, no answer
    /// will be seen: then all that is known is that it took at least until now.
    pub fn overtaken(&mut self, one: OvertakenRequest, now: Moment, effects: &mut Effects<K>) {
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

    pub(super) fn judge_overtaken(&mut self, now: Moment, effects: &mut Effects<K>) {
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

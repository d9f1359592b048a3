//! The counters of a pool and of each connection. They are plain integers, since they only change under the core's
//! lock.

use honeyflow_runtime::Moment;

/// What became of requests and connections, since the start or the last
/// [`Core::take_counters`](super::Core::take_counters).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
#[repr(C)]
pub struct Counters {
    pub checkouts: u64,
    pub checkins: u64,
    /// Checkouts of callers that had to wait.
    pub hand_offs: u64,
    pub waiters_expired: u64,
    pub waiters_gone: u64,
    pub waiters_displaced: u64,
    pub refused_early: u64,
    pub refused_full: u64,
    pub dead_idle: u64,
    /// Answers that came after their caller had gone.
    pub late_answers: u64,
    /// Closed connections that had received data which answers no request; each connection counts once, however much
    /// came. An error while connecting counts as a failed connect instead.
    pub wrong_answers: u64,
    pub decayed: u64,
    pub aged: u64,
    pub idled_out: u64,
    pub use_errors: u64,
    pub use_timeouts: u64,
    pub connects_ok: u64,
    pub connects_failed: u64,
    pub connects_timed_out: u64,
    pub logins_refused: u64,
    pub suspicions: u64,
    pub speculations: u64,
    pub speculations_won: u64,
    pub retries: u64,
    pub notices: u64,
    pub rounds_ok: u64,
    pub rounds_failed: u64,
    pub overdue_loans: u64,
    pub one_offs: u64,
    /// The connector's own counters, by name.
    pub own: Vec<(&'static str, u64)>,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        let Counters {
            checkouts,
            checkins,
            hand_offs,
            waiters_expired,
            waiters_gone,
            waiters_displaced,
            refused_early,
            refused_full,
            dead_idle,
            late_answers,
            wrong_answers,
            decayed,
            aged,
            idled_out,
            use_errors,
            use_timeouts,
            connects_ok,
            connects_failed,
            connects_timed_out,
            logins_refused,
            suspicions,
            speculations,
            speculations_won,
            retries,
            notices,
            rounds_ok,
            rounds_failed,
            overdue_loans,
            one_offs,
            own,
        } = other;
        self.checkouts += checkouts;
        self.checkins += checkins;
        self.hand_offs += hand_offs;
        self.waiters_expired += waiters_expired;
        self.waiters_gone += waiters_gone;
        self.waiters_displaced += waiters_displaced;
        self.refused_early += refused_early;
        self.refused_full += refused_full;
        self.dead_idle += dead_idle;
        self.late_answers += late_answers;
        self.wrong_answers += wrong_answers;
        self.decayed += decayed;
        self.aged += aged;
        self.idled_out += idled_out;
        self.use_errors += use_errors;
        self.use_timeouts += use_timeouts;
        self.connects_ok += connects_ok;
        self.connects_failed += connects_failed;
        self.connects_timed_out += connects_timed_out;
        self.logins_refused += logins_refused;
        self.suspicions += suspicions;
        self.speculations += speculations;
        self.speculations_won += speculations_won;
        self.retries += retries;
        self.notices += notices;
        self.rounds_ok += rounds_ok;
        self.rounds_failed += rounds_failed;
        self.overdue_loans += overdue_loans;
        self.one_offs += one_offs;
        for (name, count) in own {
            match self.own.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known += count,
                None => self.own.push((name, count)),
            }
        }
    }
}

/// How often something happened, and when it happened first and last.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Times {
    count: u64,
    first: Moment,
    last: Moment,
}

impl Times {
    #[inline]
    pub(super) fn add(&mut self, now: Moment) {
        if self.count == 0 {
            self.first = now;
        }
        self.count += 1;
        self.last = now;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn first(&self) -> Option<Moment> {
        (self.count > 0).then_some(self.first)
    }

    pub fn last(&self) -> Option<Moment> {
        (self.count > 0).then_some(self.last)
    }
}

/// The use of one connection since it was opened or its record was last taken.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Record {
    pub checkouts: Times,
    pub checkins: Times,
    pub hand_offs: Times,
}

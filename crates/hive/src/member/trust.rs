//! Membership and trust.
//!
//! | phase    | hearing  | input                         | next            | effect                              |
//! |----------|----------|-------------------------------|-----------------|-------------------------------------|
//! | out      |          | an identity, and it is time   | joining         | call Join                           |
//! | joining  |          | Joined                        | in, good        | a beat at once                      |
//! | joining  |          | known, failed, unanswered     | out             | a fresh identity, later             |
//! | joining  |          | refused for good              | gone            | Refused                             |
//! | in       | good     | beat due                      |                 | call Beat                           |
//! | in       | good     | beat answered                 |                 | trust = start of that beat + 0.8 ttl |
//! | in       | good     | trust has run out             | deaf            | every term dies                     |
//! | in       | deaf     | beat due                      |                 | call Beat, read-only                |
//! | in       | deaf     | read-only beat answered       | renewing        | a writing beat at once              |
//! | in       | renewing | beat answered in time         | good            | leases go on under new epochs       |
//! | in       | renewing | beat failed                   | deaf            |                                     |
//! | in       | any      | "not a member"                | out             | Buried, a fresh identity            |
//! | in       | any      | leave                         | leaving → gone  | see [`super::leave`]                |
//!
//! Reply times never count. A node that cannot hear must not hold its leases for ever, so it asks without renewing until
//! it is answered. What comes late is judged after trust was: it revives nothing.

use honeyflow_runtime::Moment;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Out,
    Joining,
    In,
    Leaving,
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hearing {
    Good,
    Deaf,
    Renewing,
}

#[derive(Clone, Debug)]
pub(super) struct Trust {
    pub phase: Phase,
    pub hearing: Hearing,
    pub until: Moment,
    /// When the next beat is due, or the next join.
    pub beat_at: Moment,
    /// When the last beat was sent.
    pub beaten_at: Moment,
    /// When the last beat was answered.
    pub heard_at: Option<Moment>,
}

impl Trust {
    pub fn new() -> Trust {
        Trust {
            phase: Phase::Out,
            hearing: Hearing::Good,
            until: Moment::default(),
            beat_at: Moment::default(),
            beaten_at: Moment::default(),
            heard_at: None,
        }
    }

    pub fn holds(&self, now: Moment) -> bool {
        self.phase == Phase::In && self.hearing == Hearing::Good && now < self.until
    }

    /// True the first time that it is found to have run out.
    pub fn runs_out(&mut self, now: Moment) -> bool {
        let out = self.phase == Phase::In && self.hearing == Hearing::Good && now >= self.until;
        if out {
            self.hearing = Hearing::Deaf;
            self.beat_at = now;
        }
        out
    }

    pub fn is_read_only(&self) -> bool {
        self.hearing == Hearing::Deaf && !crate::planted::on("deaf node renews")
    }

    /// A writing beat was answered: trusted from when it was sent, if that is not too late already.
    pub fn renewed(&mut self, until: Moment, now: Moment) {
        self.until = self.until.max(until);
        if now < self.until {
            self.hearing = Hearing::Good;
        }
    }

    pub fn sooner(&mut self, at: Moment) {
        self.beat_at = self.beat_at.min(at);
    }
}

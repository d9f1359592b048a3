//! Membership and trust.
//!
//! | phase    | contact  | input                         | next            | effect                              |
//! |----------|----------|-------------------------------|-----------------|-------------------------------------|
//! | out      |          | an identity, and join due     | joining         | call Join                           |
//! | joining  |          | Joined                        | in, good        | a heartbeat at once                 |
//! | joining  |          | known, failed, unanswered     | out             | a fresh identity, later             |
//! | joining  |          | refused for good              | gone            | Refused                             |
//! | in       | good     | heartbeat due                 |                 | call Beat                           |
//! | in       | good     | heartbeat answered            |                 | trust = start of that heartbeat + 0.8 ttl |
//! | in       | good     | trust has run out             | lost            | every term dies                     |
//! | in       | lost     | heartbeat due                 |                 | call Beat, read-only                |
//! | in       | lost     | read-only heartbeat answered  | renewing        | a writing heartbeat at once         |
//! | in       | renewing | heartbeat answered in time    | good            | leases continue under new epochs    |
//! | in       | renewing | heartbeat failed              | lost            |                                     |
//! | in       | any      | "not a member"                | out             | Removed, a fresh identity           |
//! | in       | any      | leave                         | leaving → gone  | see [`super::leave`]                |
//!
//! Trust counts from when a heartbeat was sent, never from when its reply came. A node that gets no replies must not
//! hold its leases for ever, so it asks without renewing its row until it is answered. Trust is checked before a reply
//! is handled, so a late reply cannot revive a dead term.

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
pub(super) enum Contact {
    Good,
    Lost,
    Renewing,
}

#[derive(Clone, Debug)]
pub(super) struct Trust {
    pub phase: Phase,
    pub contact: Contact,
    pub until: Moment,
    /// When the next heartbeat or join is due.
    pub heartbeat_at: Moment,
    /// When the last heartbeat was sent.
    pub sent_at: Moment,
    /// When the last heartbeat was answered.
    pub answered_at: Option<Moment>,
}

impl Trust {
    pub fn new() -> Trust {
        Trust {
            phase: Phase::Out,
            contact: Contact::Good,
            until: Moment::default(),
            heartbeat_at: Moment::default(),
            sent_at: Moment::default(),
            answered_at: None,
        }
    }

    pub fn holds(&self, now: Moment) -> bool {
        self.phase == Phase::In && self.contact == Contact::Good && now < self.until
    }

    /// Marks contact as lost once trust has run out. True only on that call.
    pub fn expire(&mut self, now: Moment) -> bool {
        let out = self.phase == Phase::In && self.contact == Contact::Good && now >= self.until;
        if out {
            self.contact = Contact::Lost;
            self.heartbeat_at = now;
        }
        out
    }

    pub fn is_read_only(&self) -> bool {
        self.contact == Contact::Lost && !crate::planted::on("deaf node renews")
    }

    /// A writing heartbeat was answered: extends trust to `until`, unless that has passed already.
    pub fn renew(&mut self, until: Moment, now: Moment) {
        self.until = self.until.max(until);
        if now < self.until {
            self.contact = Contact::Good;
        }
    }

    pub fn heartbeat_by(&mut self, at: Moment) {
        self.heartbeat_at = self.heartbeat_at.min(at);
    }
}

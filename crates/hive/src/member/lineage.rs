//! Where the store comes from: its history is known, or nobody mints.
//!
//! | found with a beat                              | follows                                                        |
//! |------------------------------------------------|----------------------------------------------------------------|
//! | the server is the recorded one, as before      | nothing                                                        |
//! | another server than before                     | terms die                                                      |
//! | a server we had left less than 2 ttl ago       | the node stops: two writers                                    |
//! | the server is not the recorded one             | terms die; it is recorded, compared with what was              |
//! | another origin                                 | terms die: it is another hive of the same name                 |
//! | a lower version than was known when we asked   | terms die; the store is told, and waits for a person; nobody mints here before it was told |
//! | a hold                                         | nobody mints                                                   |
//! | a hold that is lifted, or recorded anew since  | rows are read anew, and it is watched from here on             |
//! | recorded for less than the longest ttl         | nobody mints, unless it has watched this lineage for 2 ttl itself |

use std::time::Duration;

use honeyflow_event::Name;
use honeyflow_runtime::Moment;
use uuid::Uuid;

use crate::contract::{Head, Mint};

#[derive(Clone, Debug, Default)]
pub(super) struct Lineage {
    /// Under which this node mints, and since when it has watched it without a gap.
    current: Option<(Name, Moment)>,
    left: Vec<(Name, Moment)>,
    origin: Option<Uuid>,
    /// The highest that was seen.
    pub version: u64,
    held: bool,
    /// It shows less than it did, and has not heard so yet.
    doubted: bool,
    /// Since when the store says that it is this lineage.
    stamped_ms: u64,
    /// Not before; whoever has watched for long enough need not wait.
    mint_at: Moment,
    longest_ttl: Duration,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Finding {
    Same,
    /// What was held is not to be trusted any more; the rows must be read anew.
    Changed,
    /// The same, and the store is to record where it comes from now.
    Unrecorded {
        was: Option<Name>,
        found: Name,
    },
    /// It shows less than it did.
    WentBack(Name),
    /// A server that was replaced answers again.
    TwoWriters(Name),
    /// A person has accepted what a restore brought: rows must be read anew.
    Accepted,
}

impl Lineage {
    /// `asked`: the version that was known when the question was sent.
    pub fn learn(&mut self, head: &Head, asked: u64, ttl: Duration, now: Moment) -> Finding {
        let server: Name = head.server.as_str().into();
        self.longest_ttl = Duration::from_millis(head.max_ttl_ms).max(ttl);
        self.left.retain(|(_, at)| now.since(*at) < self.longest_ttl * 2);
        let moved = self.current.as_ref().is_some_and(|(name, _)| *name != server);
        if moved {
            if self.left.iter().any(|(name, _)| *name == server) {
                return Finding::TwoWriters(server);
            }
            let before = self.current.take();
            self.left.extend(before.map(|(name, _)| (name, now)));
        }
        self.mint_at = now.after(Duration::from_millis(head.wait_ms()));
        if !head.is_recorded() {
            self.forget();
            return Finding::Unrecorded { was: head.lineage.as_deref().map(Name::from), found: server };
        }
        let another = self.origin.is_some() && self.origin != head.origin;
        self.origin = head.origin;
        if moved || another {
            self.forget();
            self.version = head.version;
            (self.stamped_ms, self.held) = (head.lineage_ms, head.hold.is_some());
            self.current = Some((server, now));
            return Finding::Changed;
        }
        let known = self.current.is_some();
        if !known {
            self.current = Some((server.clone(), now));
        }
        let stamped = head.lineage_ms > std::mem::replace(&mut self.stamped_ms, head.lineage_ms);
        // Recorded anew under the same name: it was held and the hold lifted between two beats of ours.
        let accepted = head.hold.is_none() && (self.held || known && stamped);
        if accepted || stamped {
            // A person has accepted a restore: what others hold by it is to end first, as under a new lineage.
            self.unwatched(now);
        }
        if head.version < asked {
            return Finding::WentBack(server);
        }
        self.version = self.version.max(head.version);
        self.held = head.hold.is_some();
        if accepted { Finding::Accepted } else { Finding::Same }
    }

    /// Our own beats had a gap: what stood in between is not known.
    pub fn unwatched(&mut self, now: Moment) {
        if let Some((_, since)) = &mut self.current {
            *since = now;
        }
    }

    /// It shows less than it did: until it has heard so, and holds everybody, nothing is minted here.
    pub fn doubt(&mut self) {
        self.doubted = true;
    }

    pub fn is_doubted(&self) -> bool {
        self.doubted
    }

    pub fn believe(&mut self) {
        self.doubted = false;
    }

    /// The store has been told that it went back: what we knew of it is no measure any more.
    pub fn went_back(&mut self) {
        self.version = 0;
        self.believe();
    }

    /// Nothing that is won now may be acted under.
    pub fn is_doubtful(&self) -> bool {
        self.doubted || self.held
    }

    fn forget(&mut self) {
        self.current = None;
        self.version = 0;
    }

    pub fn name(&self) -> Option<&Name> {
        self.current.as_ref().map(|(name, _)| name)
    }

    /// None: nobody mints now.
    pub fn mint(&self, now: Moment) -> Option<Mint> {
        let (name, since) = self.current.as_ref()?;
        let watched = now.since(*since) >= self.longest_ttl * 2;
        let allowed = !self.is_doubtful() && (now >= self.mint_at || watched);
        allowed.then(|| Mint { lineage: name.clone(), watched })
    }

    /// When it may be tried again, if time is all that is missing.
    pub fn mint_at(&self) -> Moment {
        match &self.current {
            Some((_, since)) if !self.is_doubtful() => self.mint_at.min(since.after(self.longest_ttl * 2)),
            _ => Moment::FAR,
        }
    }

    /// The store has said how long to wait.
    pub fn not_before(&mut self, at: Moment) {
        self.mint_at = self.mint_at.max(at);
    }
}

#[cfg(test)]
mod tests;

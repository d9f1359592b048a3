//! The history of the store. A node mints only while it knows that history.
//!
//! | heartbeat reply                                | consequence                                                    |
//! |------------------------------------------------|----------------------------------------------------------------|
//! | the server is the recorded one, as before      | nothing                                                        |
//! | another server than before                     | terms die                                                      |
//! | a server that was replaced less than 2 ttl ago | the node stops: there are two writers                          |
//! | the server is not the recorded one             | terms die; the node records it, if the record is unchanged     |
//! | another origin                                 | terms die: it is another hive of the same name                 |
//! | a lower version than the node knew when it asked | terms die; the node reports it to the store, which then waits for a person; the node does not mint before the store has acknowledged |
//! | a hold                                         | no node mints                                                  |
//! | a hold was lifted, or the lineage recorded again | the node reads all rows again, and watches the lineage from now on |
//! | recorded for less than the longest ttl         | no minting, unless this node has watched the lineage for 2 ttl |

use std::time::Duration;

use honeyflow_event::Name;
use honeyflow_runtime::Moment;
use uuid::Uuid;

use crate::contract::{Head, Mint};

#[derive(Clone, Debug, Default)]
pub(super) struct Lineage {
    /// The lineage under which this node mints, and since when it has watched it without a gap.
    current: Option<(Name, Moment)>,
    left: Vec<(Name, Moment)>,
    origin: Option<Uuid>,
    /// The highest version of the view that this node knows.
    pub version: u64,
    held: bool,
    /// The store shows an older state than before, and has not acknowledged the report yet.
    doubted: bool,
    /// When the lineage was recorded, by the last reply (`lineage_ms`).
    stamped_ms: u64,
    /// The earliest time to mint, unless this node has watched the lineage for long enough.
    mint_at: Moment,
    longest_ttl: Duration,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Finding {
    Same,
    /// The store was replaced: terms die, and the rows must be read again.
    Changed,
    /// The same, and the new lineage must be recorded.
    Unrecorded {
        was: Option<Name>,
        found: Name,
    },
    /// The store shows an older state than before.
    WentBack(Name),
    /// A server that was replaced answers again.
    TwoWriters(Name),
    /// A person has accepted a restored state: the rows must be read again.
    Accepted,
}

impl Lineage {
    /// Evaluates a heartbeat reply. `known_version`: the version that the node knew when it sent the heartbeat.
    pub fn learn(&mut self, head: &Head, known_version: u64, ttl: Duration, now: Moment) -> Finding {
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
        // Recorded again under the same name: a hold was set and lifted between two heartbeats of this node.
        let accepted = head.hold.is_none() && (self.held || known && stamped);
        if accepted || stamped {
            // A person has accepted a restore: terms of other nodes must end first, as under a new lineage.
            self.restart_watch(now);
        }
        if head.version < known_version {
            return Finding::WentBack(server);
        }
        self.version = self.version.max(head.version);
        self.held = head.hold.is_some();
        if accepted { Finding::Accepted } else { Finding::Same }
    }

    /// Starts watching again, because this node's heartbeats had a gap.
    pub fn restart_watch(&mut self, now: Moment) {
        if let Some((_, since)) = &mut self.current {
            *since = now;
        }
    }

    /// The store shows an older state: this node does not mint until the store has acknowledged that.
    pub fn doubt(&mut self) {
        self.doubted = true;
    }

    pub fn is_doubted(&self) -> bool {
        self.doubted
    }

    pub fn clear_doubt(&mut self) {
        self.doubted = false;
    }

    /// The store has acknowledged that it went back: the versions known before no longer count.
    pub fn on_acknowledged(&mut self) {
        self.version = 0;
        self.clear_doubt();
    }

    /// Whether a lease won now must not be used.
    pub fn forbids_use(&self) -> bool {
        self.doubted || self.held
    }

    fn forget(&mut self) {
        self.current = None;
        self.version = 0;
    }

    pub fn name(&self) -> Option<&Name> {
        self.current.as_ref().map(|(name, _)| name)
    }

    /// The proof to mint with; `None` while this node may not mint.
    pub fn mint(&self, now: Moment) -> Option<Mint> {
        let (name, since) = self.current.as_ref()?;
        let watched = now.since(*since) >= self.longest_ttl * 2;
        let allowed = !self.forbids_use() && (now >= self.mint_at || watched);
        allowed.then(|| Mint { lineage: name.clone(), watched })
    }

    /// When this node may mint if it only has to wait; [`Moment::FAR`] if something else is missing.
    pub fn mint_at(&self) -> Moment {
        match &self.current {
            Some((_, since)) if !self.forbids_use() => self.mint_at.min(since.after(self.longest_ttl * 2)),
            _ => Moment::FAR,
        }
    }

    /// Delays minting until `at`, as the store has demanded.
    pub fn delay_minting(&mut self, at: Moment) {
        self.mint_at = self.mint_at.max(at);
    }
}

#[cfg(test)]
mod tests;

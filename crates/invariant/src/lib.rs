//! The invariants of Honeyflow, each rule written once: plain records in, breaches out. The model checker, the
//! simulator, the chaos tests and production call these same functions. Pure: no clock, no I/O.
//!
//! | id  | module          | rule                                                                       |
//! |-----|-----------------|----------------------------------------------------------------------------|
//! | I1  | [`loss`]        | every committed event has exactly one outcome                              |
//! | I2  | [`convergence`] | a sink's document equals its row, under the highest accepted stamp         |
//! | I3  | [`exclusion`]   | one open run per key; one holder per epoch                                 |
//! | I4  | [`fence`]       | accepted epochs per lease never fall                                       |
//! | I5  | [`fence`]       | stamps applied per key strictly increase, with the document loaded for them |
//! | I6  | [`graph`]       | a step starts after its needs have ended, and ends once                    |
//! | I7  | [`rate`]        | no window has more permits than rate and burst allow                       |
//! | I8  | [`exclusion`]   | a duty has one holder per epoch, and its epochs rise                       |
//! | I9  | [`rest`]        | after the last fault is healed, all work is done in time                   |
//! | I10 | [`rest`]        | no queue is longer than its limit                                          |
//! | I13 | [`verdict`]     | a run's verdict follows from the ends of its steps                         |
//! | I14 | [`ack`]         | no row is deleted before each of its obligations has succeeded or is parked |
//! | I15 | [`pin`]         | a run and phase have one definition version                                |
//! | I16 | [`rest`], [`reason`] | no ready step waits for ever, or for a worker that has room           |
//! |     | [`share`]       | batches go out by level; each level with work keeps its share              |
//! | I17 | [`charge`]      | only items with an injected fault have counted attempts or are parked      |
//! | I18 | [`slots`]       | every slot is either free or held                                          |
//! | I19 | [`once`]        | unique effects happen once, under one name, and not early                  |
//! | I20 | [`reason`]      | every open run has a reason to wait, and it is the true one                |
//! | HI-1 … HI-11 | [`hive`] | epochs, terms, views, counts and removals of a hive                      |

pub mod ack;
pub mod charge;
pub mod convergence;
pub mod exclusion;
pub mod fence;
pub mod graph;
pub mod hive;
pub mod loss;
pub mod once;
pub mod pin;
pub mod rate;
pub mod reason;
pub mod rest;
pub mod share;
pub mod slots;
pub mod verdict;

use std::fmt;

/// A broken rule, with the facts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Breach {
    pub id: &'static str,
    pub what: String,
}

impl Breach {
    pub fn new(id: &'static str, what: impl Into<String>) -> Breach {
        Breach { id, what: what.into() }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.what)
    }
}

/// Returns the ids of the breaches, for tests that only check that a bad history is found.
#[cfg(test)]
fn ids(breaches: &[Breach]) -> Vec<&'static str> {
    breaches.iter().map(|breach| breach.id).collect()
}

//! I19: what must happen once happens once, and what was delayed not before its time; over all attempts a run is known
//! to its targets by one event, the newest.

use std::collections::BTreeSet;

use honeyflow_event::EventId;

use crate::Breach;

/// Stored effects that must be unique: emitted events by (run, step, number), slots of schedules.
pub fn happens_once<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Breach> {
    let mut seen = BTreeSet::new();
    let twice = names.into_iter().filter(|name| !seen.insert(*name));
    twice.map(|name| Breach::new("I19", format!("{name} happened more than once"))).collect()
}

/// An attempt as its target sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    pub run: u64,
    /// The event that travels with it, from which the idempotency key is made.
    pub event: EventId,
    /// The newest of the events that the run works on.
    pub newest: EventId,
}

pub fn named_by_the_newest<'a>(attempts: impl IntoIterator<Item = &'a Attempt>) -> Vec<Breach> {
    let wrong = attempts.into_iter().filter(|attempt| attempt.event != attempt.newest);
    wrong
        .map(|Attempt { run, event, newest }| {
            Breach::new("I19", format!("run {run} went out under event {event}, its newest is {newest}"))
        })
        .collect()
}

/// Something that was to wait has begun. Any clock, as long as it is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    pub what: EventId,
    pub at: i64,
    pub not_before: i64,
}

pub fn nothing_early<'a>(begun: impl IntoIterator<Item = &'a Begun>) -> Vec<Breach> {
    let early = begun.into_iter().filter(|begun| begun.at < begun.not_before);
    early
        .map(|Begun { what, at, not_before }| {
            Breach::new("I19", format!("event {what} was worked on {} ms too early", not_before - at))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    #[test]
    fn i19_nothing_happens_twice() {
        assert_eq!(happens_once(["a", "b"]), []);
        assert_eq!(ids(&happens_once(["a", "b", "a"])), ["I19"]);
        assert_eq!(ids(&happens_once(["a", "a", "a"])), ["I19", "I19"]);
    }

    #[test]
    fn i19_a_run_goes_under_its_newest_event() {
        let attempt = |event, newest| Attempt { run: 1, event, newest };
        assert_eq!(named_by_the_newest(&[attempt(3, 3), attempt(4, 4)]), []);
        assert_eq!(ids(&named_by_the_newest(&[attempt(3, 4)])), ["I19"]);
        assert_eq!(ids(&named_by_the_newest(&[attempt(5, 4), attempt(1, 1)])), ["I19"]);
    }

    #[test]
    fn i19_nothing_begins_before_its_time() {
        let begun = |at, not_before| Begun { what: 1, at, not_before };
        assert_eq!(nothing_early(&[begun(5, 5), begun(9, 5)]), []);
        assert_eq!(ids(&nothing_early(&[begun(4, 5)])), ["I19"]);
        assert_eq!(ids(&nothing_early(&[begun(0, 1), begun(7, 5), begun(1, 9)])), ["I19", "I19"]);
    }
}

//! I19: a unique effect happens once, a delayed event does not start before its time, and all attempts of a run carry
//! the id of one event, the newest.

use std::collections::BTreeSet;

use honeyflow_event::EventId;

use crate::Breach;

/// Checks that stored effects are unique: emitted events by (run, step, number), times of schedules.
pub fn happens_once<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Breach> {
    let mut seen = BTreeSet::new();
    let twice = names.into_iter().filter(|name| !seen.insert(*name));
    twice.map(|name| Breach::new("I19", format!("{name} happened more than once"))).collect()
}

/// An attempt as its target receives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    pub run: u64,
    /// The event that the attempt carries; the idempotency key is made from it.
    pub event: EventId,
    /// The newest of the events that the run works on.
    pub newest: EventId,
}

pub fn attempts_carry_the_newest_event<'a>(attempts: impl IntoIterator<Item = &'a Attempt>) -> Vec<Breach> {
    let wrong = attempts.into_iter().filter(|attempt| attempt.event != attempt.newest);
    wrong
        .map(|Attempt { run, event, newest }| {
            Breach::new("I19", format!("run {run} was sent with event {event}, its newest is {newest}"))
        })
        .collect()
}

/// The start of a delayed event. Both times are from one clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartedEvent {
    pub what: EventId,
    pub at: i64,
    pub not_before: i64,
}

pub fn nothing_early<'a>(begun: impl IntoIterator<Item = &'a StartedEvent>) -> Vec<Breach> {
    let early = begun.into_iter().filter(|begun| begun.at < begun.not_before);
    early
        .map(|StartedEvent { what, at, not_before }| {
            Breach::new("I19", format!("event {what} started {} ms too early", not_before - at))
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
    fn i19_an_attempt_carries_the_newest_event_of_its_run() {
        let attempt = |event, newest| Attempt { run: 1, event, newest };
        assert_eq!(attempts_carry_the_newest_event(&[attempt(3, 3), attempt(4, 4)]), []);
        assert_eq!(ids(&attempts_carry_the_newest_event(&[attempt(3, 4)])), ["I19"]);
        assert_eq!(ids(&attempts_carry_the_newest_event(&[attempt(5, 4), attempt(1, 1)])), ["I19"]);
    }

    #[test]
    fn i19_nothing_begins_before_its_time() {
        let begun = |at, not_before| StartedEvent { what: 1, at, not_before };
        assert_eq!(nothing_early(&[begun(5, 5), begun(9, 5)]), []);
        assert_eq!(ids(&nothing_early(&[begun(4, 5)])), ["I19"]);
        assert_eq!(ids(&nothing_early(&[begun(0, 1), begun(7, 5), begun(1, 9)])), ["I19", "I19"]);
    }
}

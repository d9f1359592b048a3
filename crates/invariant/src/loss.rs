//! I1: committed = done + parked + replaced + pending. At rest nothing is pending.

use honeyflow_event::EventId;

use crate::Breach;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventOutcome {
    /// The event's runs, or later ones of the same key, have succeeded.
    Settled,
    Parked,
    /// Other rows with the same obligations have replaced the row.
    Replaced,
    /// The row is still in the table.
    Pending,
}

/// A committed event and all its outcomes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommittedEvent {
    pub event: EventId,
    pub outcomes: Vec<EventOutcome>,
}

pub fn no_loss(events: &[CommittedEvent], at_rest: bool) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for CommittedEvent { event, outcomes } in events {
        match outcomes.as_slice() {
            [] => breaches.push(Breach::new("I1", format!("event {event} was committed and disappeared"))),
            [EventOutcome::Pending] if at_rest => {
                breaches.push(Breach::new("I1", format!("event {event} is still pending at rest")));
            }
            [_] => {}
            several => breaches.push(Breach::new("I1", format!("event {event} ended more than once: {several:?}"))),
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    fn committed(event: EventId, outcomes: &[EventOutcome]) -> CommittedEvent {
        CommittedEvent { event, outcomes: outcomes.to_vec() }
    }

    #[test]
    fn i1_every_event_has_one_outcome() {
        let good = [
            committed(1, &[EventOutcome::Settled]),
            committed(2, &[EventOutcome::Parked]),
            committed(3, &[EventOutcome::Replaced]),
        ];
        assert_eq!(no_loss(&good, true), []);
        assert_eq!(no_loss(&[committed(4, &[EventOutcome::Pending])], false), []);
        assert_eq!(ids(&no_loss(&[committed(4, &[EventOutcome::Pending])], true)), ["I1"]);
        assert_eq!(ids(&no_loss(&[committed(5, &[])], false)), ["I1"]);
        assert_eq!(ids(&no_loss(&[committed(6, &[EventOutcome::Settled, EventOutcome::Parked])], false)), ["I1"]);
    }
}

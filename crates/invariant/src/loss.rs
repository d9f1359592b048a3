//! I1: committed = done + parked + replaced + pending. At rest nothing is pending.

use honeyflow_event::EventId;

use crate::Breach;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Its runs have succeeded, its own or a later one of the key.
    Settled,
    Parked,
    /// By rows that owe the same work.
    Replaced,
    /// Still in the table.
    Pending,
}

/// A committed event and everything that became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    pub event: EventId,
    pub fates: Vec<Fate>,
}

pub fn no_loss(events: &[Committed], at_rest: bool) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for Committed { event, fates } in events {
        match fates.as_slice() {
            [] => breaches.push(Breach::new("I1", format!("event {event} was committed and is gone without a trace"))),
            [Fate::Pending] if at_rest => breaches.push(Breach::new("I1", format!("event {event} is left at rest"))),
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

    fn committed(event: EventId, fates: &[Fate]) -> Committed {
        Committed { event, fates: fates.to_vec() }
    }

    #[test]
    fn i1_every_event_has_one_fate() {
        let good = [committed(1, &[Fate::Settled]), committed(2, &[Fate::Parked]), committed(3, &[Fate::Replaced])];
        assert_eq!(no_loss(&good, true), []);
        assert_eq!(no_loss(&[committed(4, &[Fate::Pending])], false), []);
        assert_eq!(ids(&no_loss(&[committed(4, &[Fate::Pending])], true)), ["I1"]);
        assert_eq!(ids(&no_loss(&[committed(5, &[])], false)), ["I1"]);
        assert_eq!(ids(&no_loss(&[committed(6, &[Fate::Settled, Fate::Parked])], false)), ["I1"]);
    }
}

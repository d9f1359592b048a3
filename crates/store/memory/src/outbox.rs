//! The outbox rows, ordered by priority level and id, so that a poll finds the next few hundred of a million rows
//! without scanning.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use honeyflow_event::{Event, EventId, PRIORITY_LEVELS};
use honeyflow_store::{
    Poll, PollReply,
    poll::{SkipRule, Sweep, UnreadRow},
};

use crate::journal::Journal;

#[derive(Default)]
pub(crate) struct Outbox {
    ready: [BTreeMap<EventId, Event>; PRIORITY_LEVELS],
    delayed: BTreeMap<(i64, EventId), Event>,
    positions: HashMap<EventId, RowPosition>,
    last_id: EventId,
}

#[derive(Clone, Copy)]
enum RowPosition {
    Ready(usize),
    Delayed(i64),
}

impl Outbox {
    pub fn insert(&mut self, mut event: Event, ready_ms: Option<i64>) -> EventId {
        if event.id == 0 {
            event.id = self.last_id + 1;
        }
        let id = event.id;
        self.last_id = self.last_id.max(id);
        self.remove(id);
        match ready_ms {
            Some(ready_ms) => {
                self.positions.insert(id, RowPosition::Delayed(ready_ms));
                self.delayed.insert((ready_ms, id), event);
            }
            None => {
                let level = usize::from(event.priority).min(PRIORITY_LEVELS - 1);
                self.positions.insert(id, RowPosition::Ready(level));
                self.ready[level].insert(id, event);
            }
        }
        id
    }

    pub fn remove(&mut self, id: EventId) -> Option<Event> {
        match self.positions.remove(&id)? {
            RowPosition::Ready(level) => self.ready[level].remove(&id),
            RowPosition::Delayed(ready_ms) => self.delayed.remove(&(ready_ms, id)),
        }
    }

    pub fn get(&self, id: EventId) -> Option<&Event> {
        match self.positions.get(&id)? {
            RowPosition::Ready(level) => self.ready[*level].get(&id),
            RowPosition::Delayed(ready_ms) => self.delayed.get(&(*ready_ms, id)),
        }
    }

    pub fn len(&self) -> usize {
        self.positions.len()
    }

    pub fn level(&self, level: usize) -> &BTreeMap<EventId, Event> {
        &self.ready[level]
    }

    pub fn delayed(&self) -> &BTreeMap<(i64, EventId), Event> {
        &self.delayed
    }

    pub fn all(&self) -> impl Iterator<Item = &Event> {
        self.ready.iter().flat_map(BTreeMap::values).chain(self.delayed.values())
    }

    /// Answers a poll. A row whose `dedupe` mark is stored repeats an event that is done: it is removed, not returned.
    pub fn poll(&mut self, poll: &Poll, journal: &Journal, now_ms: i64) -> PollReply {
        let mut scan = PollScan { poll, journal, now_ms, polled: PollReply::default(), repeats: Vec::new() };
        scan.polled.store_ms = now_ms;
        scan.polled.schema_version = 1;
        if poll.shard == 0 {
            match &poll.sweep {
                Some(sweep) => scan.sweep(self, sweep),
                None => scan.levels(self),
            }
            scan.polled.events.sort_by_key(|event| (event.priority, event.id));
            scan.newest(self);
        }
        let next = self.delayed.range((now_ms + 1, EventId::MIN)..).next();
        scan.polled.next_due_ms = next.map(|((at_ms, _), _)| (at_ms - now_ms).cast_unsigned());
        let PollScan { mut polled, repeats, .. } = scan;
        polled.resumed = journal.resumed(&polled.events);
        for id in repeats {
            self.remove(id);
        }
        polled
    }
}

/// A poll in progress.
struct PollScan<'p> {
    poll: &'p Poll,
    journal: &'p Journal,
    now_ms: i64,
    polled: PollReply,
    repeats: Vec<EventId>,
}

impl PollScan<'_> {
    fn levels(&mut self, outbox: &Outbox) {
        for (level, wanted) in self.poll.levels.iter().enumerate() {
            self.polled.looked_to[level] = wanted.after;
            let room = wanted.room as usize;
            let due = outbox.delayed.range(..=(self.now_ms, EventId::MAX)).map(|(_, event)| event);
            let mut due: Vec<&Event> = due.filter(|event| usize::from(event.priority) == level).take(room).collect();
            // Due rows get up to half of the room, plus the room that the other rows do not use.
            let mut room_left = room - due.len().min(room.div_ceil(2));
            let mut taken = 0;
            for event in outbox.ready[level].range(wanted.after.saturating_add(1)..).map(|(_, event)| event) {
                if room_left == 0 {
                    break;
                }
                self.polled.looked_to[level] = event.id;
                if !self.is_passed_over(event) {
                    room_left -= 1;
                    taken += usize::from(self.take(event));
                }
            }
            due.truncate(room - taken);
            for event in due {
                if !self.is_passed_over(event) {
                    self.take(event);
                }
            }
        }
    }

    fn sweep(&mut self, outbox: &Outbox, sweep: &Sweep) {
        let unknown = |event: &&Event| sweep.known.binary_search(&event.id).is_err();
        let mut found: Vec<&Event> = Vec::new();
        for level in &outbox.ready {
            let rows = level.range(sweep.from..=sweep.to.max(sweep.from)).map(|(_, event)| event);
            found.extend(rows.filter(unknown).filter(|event| !self.is_passed_over(event)).take(sweep.room as usize));
        }
        let due = outbox.delayed.range(..=(self.now_ms, EventId::MAX)).map(|(_, event)| event);
        let due = due.filter(|event| (sweep.from..=sweep.to).contains(&event.id));
        found.extend(due.filter(unknown).filter(|event| !self.is_passed_over(event)));
        found.sort_by_key(|event| event.id);
        found.truncate(sweep.room as usize);
        for event in found {
            self.take(event);
        }
    }

    fn newest(&mut self, outbox: &Outbox) {
        let room = self.poll.newest as usize;
        let there: HashSet<EventId> = self.polled.events.iter().map(|event| event.id).collect();
        let mut found: Vec<&Event> = Vec::new();
        for (level, wanted) in outbox.ready.iter().zip(&self.poll.levels) {
            let fresh = level.range(wanted.after.saturating_add(1)..).rev().map(|(_, event)| event);
            let fresh = fresh.filter(|event| !there.contains(&event.id) && !self.is_passed_over(event));
            found.extend(fresh.take(room));
        }
        found.sort_by_key(|event| std::cmp::Reverse(event.id));
        found.truncate(room);
        for event in found.into_iter().rev() {
            self.polled.newest += usize::from(self.take(event));
        }
    }

    /// Adds the event to the reply and returns true. A repeated event goes to `repeats`, an oversized one to
    /// `oversized`; then it returns false.
    fn take(&mut self, event: &Event) -> bool {
        let bytes = event.payload.as_ref().map_or(0, |payload| payload.len() as u64);
        if self.journal.is_done(event, self.now_ms) {
            self.repeats.push(event.id);
        } else if bytes > self.poll.payload_bytes_max {
            let oversized = UnreadRow { id: event.id, bytes };
            if !self.polled.oversized.contains(&oversized) {
                self.polled.oversized.push(oversized);
            }
        } else {
            self.polled.events.push(event.clone());
            return true;
        }
        false
    }

    fn is_passed_over(&self, event: &Event) -> bool {
        let covers = |passed: &SkipRule| passed.entity == event.entity && passed.workflow == event.workflow;
        self.poll.passed_over.iter().any(covers)
    }
}

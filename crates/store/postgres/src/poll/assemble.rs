//! Assembles the replies of all polls of one message from the rows of its statements. It has no I/O: it only reads the
//! columns of rows.

use hashbrown::{HashMap, HashSet};
use honeyflow_event::{Event, EventId, PRIORITY_LEVELS};
use honeyflow_store::{Names, Poll, PollReply};

use super::{
    PollOutcome,
    statements::{self, Part},
};
use crate::{
    driver::{Error, PgRow},
    row::{self, OutboxRow, RowContent},
};

/// The maximum number of payload bytes in one message; the next poll reads the remaining rows.
pub(crate) const BYTES_MAX: usize = 32 << 20;

/// The rows of all polls of one message, until the replies are assembled.
pub(crate) struct PollAssembler<'p> {
    polls: &'p [&'p Poll],
    /// The polls that are answered from the range statement, by shard.
    caught_up: HashMap<u16, Vec<usize>>,
    high: EventId,
    each: Vec<PollRows>,
    store_ms: i64,
    /// The number of rows of the range, and the id of the last one.
    ranged: usize,
    ranged_to: EventId,
    range_limit: usize,
    bytes: usize,
    /// True if a row of the range was dropped because of `BYTES_MAX`.
    range_cut: bool,
}

/// The rows that were read for one poll.
#[derive(Default)]
struct PollRows {
    due: [Vec<OutboxRow>; PRIORITY_LEVELS],
    levels: [Vec<OutboxRow>; PRIORITY_LEVELS],
    /// The id up to which a level with skipped rows was read.
    marks: [EventId; PRIORITY_LEVELS],
    /// True if rows of the level were dropped because of `BYTES_MAX`.
    cut: [bool; PRIORITY_LEVELS],
    newest: Vec<OutboxRow>,
    next_due_ms: Option<u64>,
}

pub(crate) struct AssembledPolls {
    pub each: Vec<PollOutcome>,
    pub highest: EventId,
}

impl<'p> PollAssembler<'p> {
    /// Starts with no rows. `high` is the highest id that was known before the statements were executed.
    pub fn new(polls: &'p [&'p Poll], high: EventId) -> PollAssembler<'p> {
        let mut caught_up: HashMap<u16, Vec<usize>> = HashMap::new();
        for n in (0..polls.len()).filter(|n| statements::is_caught_up(polls, *n, high)) {
            caught_up.entry(polls[n].shard).or_default().push(n);
        }
        PollAssembler {
            polls,
            caught_up,
            high,
            each: polls.iter().map(|_| PollRows::default()).collect(),
            store_ms: 0,
            ranged: 0,
            ranged_to: 0,
            range_limit: usize::MAX,
            bytes: 0,
            range_cut: false,
        }
    }

    /// Adds one row of a statement.
    pub fn add(&mut self, part: &Part, row: &PgRow, names: &mut Names) -> Result<(), Error> {
        match part {
            Part::Silent => {}
            Part::Clock => self.store_ms = row::number(row, 0)?,
            Part::Range { limit } => {
                self.range_limit = *limit;
                self.add_ranged(row::read(row, 0, names)?);
            }
            Part::Marks => {
                let (n, level): (usize, usize) = (row::number(row, 0)?, row::number(row, 1)?);
                if let (Some(seen), Some(mark)) = (self.each.get_mut(n), row::optional(row, 2)?) {
                    seen.marks[level.min(PRIORITY_LEVELS - 1)] = mark;
                }
            }
            Part::NextDue => {
                let n: usize = row::number(row, 0)?;
                if let Some(seen) = self.each.get_mut(n) {
                    seen.next_due_ms = Some(row::number::<i64>(row, 1)?.max(0).cast_unsigned());
                }
            }
            Part::Levels | Part::Due | Part::Newest => {
                let n: usize = row::number(row, 0)?;
                let found = row::read(row, 1, names)?;
                let level = usize::from(found.priority);
                let fits = self.fits(&found);
                let Some(seen) = self.each.get_mut(n) else { return Ok(()) };
                match (part, fits) {
                    (Part::Levels, true) => seen.levels[level].push(found),
                    (Part::Levels, false) => seen.cut[level] = true,
                    (Part::Due, true) => seen.due[level].push(found),
                    (Part::Newest, true) => seen.newest.push(found),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn fits(&mut self, found: &OutboxRow) -> bool {
        if self.bytes >= BYTES_MAX {
            return false;
        }
        if let RowContent::Event(event) = &found.content {
            self.bytes += event.payload.as_ref().map_or(0, |payload| payload.len());
        }
        true
    }

    fn add_ranged(&mut self, found: OutboxRow) {
        self.range_cut |= !self.fits(&found);
        if self.range_cut {
            return;
        }
        self.ranged += 1;
        self.ranged_to = found.id;
        let level = usize::from(found.priority);
        let polls = self.caught_up.get(&found.shard).map_or(&[][..], Vec::as_slice);
        let mut wanting = polls.iter().copied().filter(|n| found.id > self.polls[*n].levels[level].after);
        let Some(first) = wanting.next() else { return };
        for n in wanting {
            self.each[n].levels[level].push(found.clone());
        }
        self.each[first].levels[level].push(found);
    }

    pub fn assemble(self) -> AssembledPolls {
        let PollAssembler { polls, high, each, store_ms, ranged, ranged_to, range_limit, range_cut, .. } = self;
        // A range has no gaps: all its levels were read up to its end.
        let range_end = if range_cut || ranged >= range_limit { ranged_to } else { ranged_to.max(high) };
        let mut highest = ranged_to;
        let each = each.into_iter().enumerate().map(|(n, seen)| {
            let poll = polls[n];
            let mut gathered = PollOutcome::default();
            gathered.polled.store_ms = store_ms;
            gathered.polled.next_due_ms = seen.next_due_ms;
            gathered.polled.looked_to = poll.levels.map(|level| level.after);
            let is_caught_up = statements::is_caught_up(polls, n, high);
            let PollRows { due, levels, marks, cut, newest, .. } = seen;
            for (level, (due, found)) in due.into_iter().zip(levels).enumerate() {
                let end = match () {
                    () if cut[level] => 0,
                    () if is_caught_up => range_end,
                    () if poll.passed_over.is_empty() => high,
                    () => marks[level],
                };
                highest = highest.max(found.last().map_or(0, |found| found.id));
                gathered.level(poll, level, due, found, end);
            }
            gathered.polled.events.sort_by_key(|event| (event.priority, event.id));
            gathered.newest(poll, newest);
            gathered
        });
        AssembledPolls { each: each.collect(), highest }
    }
}

impl PollOutcome {
    /// Adds the rows of one level. Due rows get up to half of the level's room, plus the room that the other rows do
    /// not use. `end` is the id up to which the level was read, if the level had room for all rows.
    fn level(&mut self, poll: &Poll, level: usize, due: Vec<OutboxRow>, found: Vec<OutboxRow>, end: EventId) {
        let room = poll.levels[level].room as usize;
        let mut due: Vec<Event> = due.into_iter().take(room).filter_map(|found| self.take(found)).collect();
        let room_left = room - due.len().min(room.div_ceil(2));
        let all = found.len() < room && found.len() <= room_left;
        let mut taken = Vec::with_capacity(found.len().min(room_left));
        let looked_to = &mut self.polled.looked_to[level];
        *looked_to = (*looked_to).max(found.iter().take(room_left).next_back().map_or(0, |found| found.id));
        if room > 0 && (all || found.is_empty()) {
            *looked_to = (*looked_to).max(end);
        }
        taken.extend(found.into_iter().take(room_left).filter_map(|found| self.take(found)));
        due.truncate(room - taken.len());
        self.polled.events.append(&mut due);
        self.polled.events.append(&mut taken);
    }

    fn newest(&mut self, poll: &Poll, mut found: Vec<OutboxRow>) {
        let there: HashSet<EventId> = self.polled.events.iter().map(|event| event.id).collect();
        found.retain(|found| !there.contains(&found.id));
        found.sort_by_key(|found| std::cmp::Reverse(found.id));
        let mut newest: Vec<Event> = found.into_iter().filter_map(|found| self.take(found)).collect();
        newest.truncate(poll.newest as usize);
        newest.reverse();
        self.polled.newest = newest.len();
        self.polled.events.append(&mut newest);
    }

    /// Returns the event of a row. A repeated or unreadable row is only listed by its id.
    pub fn take(&mut self, found: OutboxRow) -> Option<Event> {
        match found.content {
            RowContent::Event(event) => return Some(event),
            RowContent::Repeat => self.repeats.push(found.id),
            RowContent::Unreadable(oversized) => {
                let PollReply { oversized: named, .. } = &mut self.polled;
                // A poll that also reads the newest rows can read a row twice.
                if !named.contains(&oversized) {
                    named.push(oversized);
                }
            }
        }
        None
    }
}

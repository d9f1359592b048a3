//! What the statements gave, put together for each poll. Pure but for reading columns.

use hashbrown::{HashMap, HashSet};
use honeyflow_event::{Event, EventId, PRIORITY_LEVELS};
use honeyflow_store::{Names, Poll, Polled};

use super::{
    Gathered,
    ask::{self, Part},
};
use crate::{
    driver::{Error, PgRow},
    row::{self, Found, Read},
};

/// Payloads of one message; the rest is left for the next.
pub(crate) const BYTES_MAX: usize = 32 << 20;

/// All polls of one message.
pub(crate) struct Picture<'p> {
    polls: &'p [&'p Poll],
    /// Polls that are read by the range.
    abreast: HashMap<u16, Vec<usize>>,
    high: EventId,
    each: Vec<Seen>,
    store_ms: i64,
    /// Rows of the range, and the last one.
    ranged: usize,
    ranged_to: EventId,
    range_limit: usize,
    bytes: usize,
    /// A row was left out of the range for its bytes.
    range_cut: bool,
}

/// What was found for one poll.
#[derive(Default)]
struct Seen {
    due: [Vec<Found>; PRIORITY_LEVELS],
    levels: [Vec<Found>; PRIORITY_LEVELS],
    /// Up to where a level with rows that are passed over was looked through.
    marks: [EventId; PRIORITY_LEVELS],
    /// Rows of the level were left out.
    cut: [bool; PRIORITY_LEVELS],
    newest: Vec<Found>,
    next_due_ms: Option<u64>,
}

pub(crate) struct Assembled {
    pub each: Vec<Gathered>,
    pub highest: EventId,
}

impl<'p> Picture<'p> {
    /// `high` is what was known before the statements ran.
    pub fn of(polls: &'p [&'p Poll], high: EventId) -> Picture<'p> {
        let mut abreast: HashMap<u16, Vec<usize>> = HashMap::new();
        for n in (0..polls.len()).filter(|n| ask::is_abreast(polls, *n, high)) {
            abreast.entry(polls[n].shard).or_default().push(n);
        }
        Picture {
            polls,
            abreast,
            high,
            each: polls.iter().map(|_| Seen::default()).collect(),
            store_ms: 0,
            ranged: 0,
            ranged_to: 0,
            range_limit: usize::MAX,
            bytes: 0,
            range_cut: false,
        }
    }

    /// One row of a statement.
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

    fn fits(&mut self, found: &Found) -> bool {
        if self.bytes >= BYTES_MAX {
            return false;
        }
        if let Read::Event(event) = &found.read {
            self.bytes += event.payload.as_ref().map_or(0, |payload| payload.len());
        }
        true
    }

    fn add_ranged(&mut self, found: Found) {
        self.range_cut |= !self.fits(&found);
        if self.range_cut {
            return;
        }
        self.ranged += 1;
        self.ranged_to = found.id;
        let level = usize::from(found.priority);
        let polls = self.abreast.get(&found.shard).map_or(&[][..], Vec::as_slice);
        let mut wanting = polls.iter().copied().filter(|n| found.id > self.polls[*n].levels[level].after);
        let Some(first) = wanting.next() else { return };
        for n in wanting {
            self.each[n].levels[level].push(found.clone());
        }
        self.each[first].levels[level].push(found);
    }

    pub fn assemble(self) -> Assembled {
        let Picture { polls, high, each, store_ms, ranged, ranged_to, range_limit, range_cut, .. } = self;
        // Nothing lies between the rows of a range: its levels were all looked through to its end.
        let range_end = if range_cut || ranged >= range_limit { ranged_to } else { ranged_to.max(high) };
        let mut highest = ranged_to;
        let each = each.into_iter().enumerate().map(|(n, seen)| {
            let poll = polls[n];
            let mut gathered = Gathered::default();
            gathered.polled.store_ms = store_ms;
            gathered.polled.next_due_ms = seen.next_due_ms;
            gathered.polled.looked_to = poll.levels.map(|level| level.after);
            let is_abreast = ask::is_abreast(polls, n, high);
            let Seen { due, levels, marks, cut, newest, .. } = seen;
            for (level, (due, found)) in due.into_iter().zip(levels).enumerate() {
                let end = match () {
                    () if cut[level] => 0,
                    () if is_abreast => range_end,
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
        Assembled { each: each.collect(), highest }
    }
}

impl Gathered {
    /// Due rows have waited long enough: they get up to half of a level's room, and what the others leave of it.
    /// `end`: up to where the level was looked through, if it had room for all that was found.
    fn level(&mut self, poll: &Poll, level: usize, due: Vec<Found>, found: Vec<Found>, end: EventId) {
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

    fn newest(&mut self, poll: &Poll, mut found: Vec<Found>) {
        let there: HashSet<EventId> = self.polled.events.iter().map(|event| event.id).collect();
        found.retain(|found| !there.contains(&found.id));
        found.sort_by_key(|found| std::cmp::Reverse(found.id));
        let mut newest: Vec<Event> = found.into_iter().filter_map(|found| self.take(found)).collect();
        newest.truncate(poll.newest as usize);
        newest.reverse();
        self.polled.newest = newest.len();
        self.polled.events.append(&mut newest);
    }

    /// Given out, or only named.
    pub fn take(&mut self, found: Found) -> Option<Event> {
        match found.read {
            Read::Event(event) => return Some(event),
            Read::Repeat => self.repeats.push(found.id),
            Read::Unreadable(oversized) => {
                let Polled { oversized: named, .. } = &mut self.polled;
                // Seen twice by a poll that also looks at the newest.
                if !named.contains(&oversized) {
                    named.push(oversized);
                }
            }
        }
        None
    }
}

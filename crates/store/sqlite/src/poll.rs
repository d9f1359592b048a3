//! Reads the outbox: one snapshot per poll, without a lock.
//!
//! Rows of the default priority are in no index, so that the application's transaction writes one page less; a poll
//! finds them by the primary key. A poll that has read to the end of the table reports that, so that the next one does
//! not read the same rows of other levels again.
//!
//! A row to skip is skipped before any of it is copied, and a poll reads a bounded number of them; `looked_to` reports
//! how far it has read. A row whose `dedupe` mark is stored repeats a done event: it is never returned, and the writer
//! removes it.

use hashbrown::HashSet;
use honeyflow_event::{Event, EventId, PRIORITY_DEFAULT, PRIORITY_LEVELS};
use honeyflow_runtime::Failure;
use honeyflow_store::{
    Names, Poll, PollReply,
    poll::{SkipRule, Sweep},
};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use crate::{
    outcome, recover,
    row::{self, COLUMNS, Head, RowContent},
    write,
};

/// The maximum number of rows of one level that a poll reads; a sweep has no such limit.
const LOOK_MAX: u32 = 20_000;
/// The maximum number of payload bytes in one poll; the next poll reads the remaining rows.
const POLL_BYTES_MAX: usize = 32 << 20;

pub(crate) struct Poller {
    connection: Connection,
    names: Names,
    texts: Texts,
}

/// The complete texts of the statements, so that they are not formatted again for each poll.
struct Texts {
    level: String,
    default_level: String,
    due: String,
    newest: String,
    sweep: String,
}

/// The result of one poll.
#[derive(Default)]
pub(crate) struct PollOutcome {
    pub polled: PollReply,
    /// Rows that only repeat a done event.
    pub repeats: Vec<EventId>,
    bytes: usize,
}

/// What a poll does with a row.
enum RowVerdict {
    Skipped,
    Taken(Event),
    /// The row is only listed: as unreadable for the engine, or as a repeat for the writer.
    Listed,
}

impl Poller {
    pub fn new(connection: Connection) -> Poller {
        let texts = Texts {
            level: format!(
                "select {COLUMNS} from honeyflow_outbox
                 where shard = ?2 and priority = ?3 and priority <> {PRIORITY_DEFAULT} and id > ?4 and ready_at is null
                 order by id limit ?5"
            ),
            default_level: format!(
                "select {COLUMNS} from honeyflow_outbox
                 where id > ?4 and +shard = ?2 and +priority = ?3 and ready_at is null order by id limit ?5"
            ),
            due: format!(
                "select {COLUMNS} from honeyflow_outbox
                 where shard = ?2 and ready_at is not null and ready_at <= ?3 order by ready_at limit ?4"
            ),
            newest: format!(
                "select {COLUMNS} from honeyflow_outbox where +shard = ?2 and ready_at is null order by id desc limit ?3"
            ),
            sweep: format!(
                "select {COLUMNS} from honeyflow_outbox where id between ?3 and ?4 and +shard = ?2
                   and (ready_at is null or ready_at <= ?5) order by id"
            ),
        };
        Poller { connection, names: Names::default(), texts }
    }

    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    pub fn poll(&mut self, poll: &Poll) -> Result<PollOutcome, Failure> {
        let result = self.snapshot(poll);
        if !self.connection.is_autocommit() {
            let _ = self.connection.prepare_cached("rollback").and_then(|mut end| end.execute([]));
        }
        result.map_err(|error| outcome::failure(&error, "poll"))
    }

    fn snapshot(&mut self, poll: &Poll) -> rusqlite::Result<PollOutcome> {
        let Poller { connection, names, texts } = self;
        connection.prepare_cached("begin")?.execute([])?;
        let mut gathered = PollOutcome::default();
        gathered.polled.store_ms = write::now_ms(connection)?;
        gathered.polled.schema_version =
            connection.prepare_cached("pragma schema_version")?.query_row([], |row| row.get(0))?;
        let mut scan = PollScan { connection, names, poll, gathered };
        match &poll.sweep {
            Some(sweep) => scan.sweep(&texts.sweep, sweep)?,
            None => scan.levels(texts)?,
        }
        scan.gathered.polled.events.sort_by_key(|event| (event.priority, event.id));
        scan.newest(&texts.newest)?;
        scan.next_due()?;
        scan.gathered.polled.resumed = recover::resumed(connection, &scan.gathered.polled.events)?;
        Ok(scan.gathered)
    }
}

/// A poll in progress.
struct PollScan<'p> {
    connection: &'p Connection,
    names: &'p mut Names,
    poll: &'p Poll,
    gathered: PollOutcome,
}

impl PollScan<'_> {
    /// Reads all levels. Due rows get up to half of a level's room, plus the room that the other rows do not use.
    fn levels(&mut self, texts: &Texts) -> rusqlite::Result<()> {
        let poll = self.poll;
        self.gathered.polled.looked_to = poll.levels.map(|level| level.after);
        let room: [usize; PRIORITY_LEVELS] = poll.levels.map(|level| level.room as usize);
        let total: usize = room.iter().sum();
        if total == 0 {
            return Ok(());
        }
        let mut due: [Vec<Event>; PRIORITY_LEVELS] = Default::default();
        let store_ms = self.gathered.polled.store_ms;
        let due_max = i64::try_from(total).unwrap_or(i64::MAX).max(i64::from(LOOK_MAX));
        let parameters = params![payload_max(poll), poll.shard, store_ms, due_max];
        let mut count = [0; PRIORITY_LEVELS];
        let mut left = total;
        let has_room = |head: &Head<'_>| {
            let level = usize::from(head.priority);
            count[level] += 1;
            count[level] <= room[level]
        };
        self.step(&texts.due, parameters, has_room, |_, _, verdict| {
            if let RowVerdict::Taken(event) = verdict {
                due[usize::from(event.priority)].push(event);
                left -= 1;
            }
            left > 0
        })?;
        for ((priority, level), mut due) in (0_u8..).zip(0..PRIORITY_LEVELS).zip(due) {
            let room = room[level];
            let mut room_left = room - due.len().min(room.div_ceil(2));
            let mut taken = Vec::with_capacity(room_left.min(512));
            if room_left > 0 {
                let look_max = LOOK_MAX.max(poll.levels[level].room);
                let parameters = params![payload_max(poll), poll.shard, priority, poll.levels[level].after, look_max];
                let is_default = priority == PRIORITY_DEFAULT;
                let mut looked = 0;
                let to_the_end = self.step(
                    if is_default { &texts.default_level } else { &texts.level },
                    parameters,
                    |_| true,
                    |polled, id, verdict| {
                        looked += 1;
                        polled.looked_to[level] = id;
                        room_left -= usize::from(!matches!(verdict, RowVerdict::Skipped));
                        if let RowVerdict::Taken(event) = verdict {
                            taken.push(event);
                        }
                        room_left > 0
                    },
                )?;
                if is_default && to_the_end && looked < look_max {
                    self.looked_to_the_end(level)?;
                }
            }
            due.truncate(room - taken.len());
            self.gathered.polled.events.append(&mut due);
            self.gathered.polled.events.append(&mut taken);
        }
        Ok(())
    }

    fn looked_to_the_end(&mut self, level: usize) -> rusqlite::Result<()> {
        let last: Option<EventId> =
            self.connection.prepare_cached("select max(id) from honeyflow_outbox")?.query_row([], |row| row.get(0))?;
        let looked_to = &mut self.gathered.polled.looked_to[level];
        *looked_to = (*looked_to).max(last.unwrap_or(0));
        Ok(())
    }

    fn sweep(&mut self, text: &str, sweep: &Sweep) -> rusqlite::Result<()> {
        let mut room_left = sweep.room;
        if room_left == 0 {
            return Ok(());
        }
        let store_ms = self.gathered.polled.store_ms;
        let parameters = params![payload_max(self.poll), self.poll.shard, sweep.from, sweep.to, store_ms];
        // Both lists are ascending, so a known row is found by advancing, not by searching.
        let mut known = sweep.known.iter().copied().peekable();
        let is_unknown = |head: &Head<'_>| {
            while known.next_if(|id| *id < head.id).is_some() {}
            known.peek() != Some(&head.id)
        };
        let mut found = Vec::new();
        self.step(text, parameters, is_unknown, |_, _, verdict| {
            room_left -= u32::from(!matches!(verdict, RowVerdict::Skipped));
            if let RowVerdict::Taken(event) = verdict {
                found.push(event);
            }
            room_left > 0
        })?;
        self.gathered.polled.events = found;
        Ok(())
    }

    /// Reads the newest rows. Earlier polls have read the rows at or below a level's position, so only rows above it
    /// are taken.
    fn newest(&mut self, text: &str) -> rusqlite::Result<()> {
        let poll = self.poll;
        let mut room_left = poll.newest;
        if room_left == 0 {
            return Ok(());
        }
        let lowest = poll.levels.iter().map(|level| level.after).min().unwrap_or(0);
        let there: HashSet<EventId> = self.gathered.polled.events.iter().map(|event| event.id).collect();
        let is_fresh =
            |head: &Head<'_>| head.id > poll.levels[usize::from(head.priority)].after && !there.contains(&head.id);
        let look_max = room_left.saturating_mul(2).max(1_000);
        let parameters = params![payload_max(poll), poll.shard, look_max];
        let mut found = Vec::new();
        self.step(text, parameters, is_fresh, |_, id, verdict| {
            if let RowVerdict::Taken(event) = verdict {
                room_left -= 1;
                found.push(event);
            }
            room_left > 0 && id > lowest
        })?;
        found.reverse();
        self.gathered.polled.newest = found.len();
        self.gathered.polled.events.append(&mut found);
        Ok(())
    }

    fn next_due(&mut self) -> rusqlite::Result<()> {
        let store_ms = self.gathered.polled.store_ms;
        let next: Option<i64> = self
            .connection
            .prepare_cached(
                "select ready_at from honeyflow_outbox where shard = ?1 and ready_at is not null and ready_at > ?2
                 order by ready_at limit 1",
            )?
            .query_row(params![self.poll.shard, store_ms], |row| row.get(0))
            .optional()?;
        self.gathered.polled.next_due_ms = next.map(|at_ms| at_ms.saturating_sub(store_ms).cast_unsigned());
        Ok(())
    }

    /// Reads rows until `visit` returns false; returns whether it reached the end. A row that is not `wanted` is
    /// skipped.
    fn step<P: Params>(
        &mut self,
        text: &str,
        parameters: P,
        mut wanted: impl FnMut(&Head<'_>) -> bool,
        mut visit: impl FnMut(&mut PollReply, EventId, RowVerdict) -> bool,
    ) -> rusqlite::Result<bool> {
        let mut statement = self.connection.prepare_cached(text)?;
        let mut rows = statement.query(parameters)?;
        while let Some(row) = rows.next()? {
            let head = row::head(row)?;
            let passed_over = self.poll.passed_over.iter().any(|passed_over| covers(passed_over, &head));
            let verdict = if passed_over || !wanted(&head) { RowVerdict::Skipped } else { self.take(row, &head)? };
            let enough = !visit(&mut self.gathered.polled, head.id, verdict);
            if enough || self.gathered.bytes >= POLL_BYTES_MAX {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn take(&mut self, row: &Row<'_>, head: &Head<'_>) -> rusqlite::Result<RowVerdict> {
        let read = row::read(row, self.names, self.poll.payload_bytes_max)?;
        Ok(match read {
            RowContent::Event(event) if head.dedupe.is_some() && self.is_done(&event)? => {
                self.gathered.repeats.push(event.id);
                RowVerdict::Listed
            }
            RowContent::Event(event) => {
                self.gathered.bytes += event.payload.as_ref().map_or(0, |payload| payload.len());
                RowVerdict::Taken(event)
            }
            RowContent::Unreadable(oversized) => {
                // A poll that also reads the newest rows can read a row twice.
                if !self.gathered.polled.oversized.contains(&oversized) {
                    self.gathered.polled.oversized.push(oversized);
                }
                RowVerdict::Listed
            }
        })
    }

    fn is_done(&self, event: &Event) -> rusqlite::Result<bool> {
        self.connection
            .prepare_cached(
                "select 1 from honeyflow_dedupe
                 where tenant = ?1 and entity = ?2 and entity_key = ?3 and dedupe = ?4 and until_ms > ?5",
            )?
            .exists(params![event.tenant, event.entity, event.key, event.dedupe, self.gathered.polled.store_ms])
    }
}

fn covers(passed_over: &SkipRule, head: &Head<'_>) -> bool {
    &*passed_over.entity == head.entity && passed_over.workflow.as_deref() == head.workflow
}

fn payload_max(poll: &Poll) -> i64 {
    i64::try_from(poll.payload_bytes_max).unwrap_or(i64::MAX)
}

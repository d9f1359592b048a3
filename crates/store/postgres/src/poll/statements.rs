//! The statements of a poll. Pure: polls in, SQL text out, with the meaning of each statement's rows.
//!
//! Most polls are caught up: all their levels were read to about the newest row. One range of the primary key answers
//! all of them. Polls that are behind are read level by level along (shard, priority, id), each with its own limit.
//! Both start at a position, because below it lie the dead rows of done events.

use std::fmt::Write;

use honeyflow_event::EventId;
use honeyflow_store::{Poll, poll::SkipRule};

use crate::{literal, row};

/// The maximum number of rows of one level that a poll scans; a sweep has no such limit.
pub(crate) const LOOK_MAX: u32 = 20_000;
/// A position at most this far below the newest row counts as caught up.
const CAUGHT_UP_DISTANCE: EventId = 1_000;
/// The maximum number of rows that one range of the primary key returns.
const RANGE_MAX: u32 = 10_000;

pub(crate) struct Message {
    pub statements: String,
    /// The meaning of each statement's rows.
    pub parts: Vec<Part>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Begin, settings, commit: the rows are ignored.
    Silent,
    /// The store's clock.
    Clock,
    /// Rows of all polls that are caught up, ordered by id, at most `limit`.
    Range { limit: usize },
    /// (poll, row): rows of polls that are behind.
    Levels,
    /// (poll, priority, id): the id up to which a level was read.
    Marks,
    /// (poll, row): delayed rows that have become due.
    Due,
    /// (poll, milliseconds): the time until the next row is due.
    NextDue,
    /// (poll, row): the newest rows over all levels.
    Newest,
}

/// Begins a read-only transaction. The server's statistics of a table that fills and empties are always wrong: by its
/// own plan it would scan the whole table or index, although every statement has an index that starts at its position.
/// And JIT compilation of a statement would take longer than its execution.
pub(crate) const BEGIN: &str = "begin isolation level read committed read only;
  select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('enable_sort', 'off', true), set_config('jit', 'off', true), set_config('lock_timeout', '1s', true),
    set_config('row_security', 'off', true)";

pub(crate) fn message(polls: &[&Poll], high: EventId) -> Message {
    let mut message = Message { statements: BEGIN.to_owned(), parts: vec![Part::Silent, Part::Silent] };
    message.push(Part::Clock, "select (extract(epoch from statement_timestamp()) * 1000)::bigint");
    message.range(polls, high);
    for (passed_over, group) in groups(polls) {
        message.levels(polls, &group, passed_over, high);
        message.newest(polls, &group, passed_over);
        message.due(polls, &group, passed_over);
    }
    message.next_due(polls);
    message.push(Part::Silent, "commit");
    message
}

/// Returns whether the range statement answers the poll. It does not if one level is behind: the range would have to
/// include all rows that this level has not reached.
pub(crate) fn is_caught_up(polls: &[&Poll], n: usize, high: EventId) -> bool {
    let poll = polls[n];
    let wanted = || poll.levels.iter().filter(|level| level.room > 0);
    wanted().next().is_some()
        && wanted().all(|level| level.after.saturating_add(CAUGHT_UP_DISTANCE) >= high)
        && poll.passed_over.is_empty()
        && poll.payload_bytes_max == polls[0].payload_bytes_max
}

/// Groups the polls that skip the same rows; nearly always that is one group.
pub(crate) fn groups<'p>(polls: &[&'p Poll]) -> Vec<(&'p [SkipRule], Vec<usize>)> {
    let mut groups: Vec<(&[SkipRule], Vec<usize>)> = Vec::new();
    for (n, poll) in polls.iter().enumerate() {
        match groups.iter_mut().find(|(passed_over, _)| *passed_over == poll.passed_over) {
            Some((_, group)) => group.push(n),
            None => groups.push((&poll.passed_over, vec![n])),
        }
    }
    groups
}

/// Returns a condition on `o` that excludes the skipped rows; it begins with `and`.
pub(crate) fn not_passed(passed_over: &[SkipRule]) -> String {
    let mut condition = String::new();
    for SkipRule { entity, workflow } in passed_over {
        let entity = literal::text(entity);
        let _ = match workflow {
            Some(workflow) => {
                let workflow = literal::text(workflow);
                write!(condition, " and not (o.entity = {entity} and o.workflow is not distinct from {workflow})")
            }
            None => write!(condition, " and not (o.entity = {entity} and o.workflow is null)"),
        };
    }
    condition
}

pub(crate) fn payload_max(poll: &Poll) -> i64 {
    i64::try_from(poll.payload_bytes_max).unwrap_or(i64::MAX)
}

impl Message {
    fn push(&mut self, part: Part, statement: &str) {
        self.statements.push_str(";\n");
        self.statements.push_str(statement);
        self.parts.push(part);
    }

    fn range(&mut self, polls: &[&Poll], high: EventId) {
        let mut lows: Vec<EventId> = Vec::new();
        let mut room = 0_u32;
        for poll in (0..polls.len()).filter(|n| is_caught_up(polls, *n, high)).map(|n| polls[n]) {
            let shard = usize::from(poll.shard);
            if lows.len() <= shard {
                lows.resize(shard + 1, EventId::MAX);
            }
            for level in poll.levels.iter().filter(|level| level.room > 0) {
                lows[shard] = lows[shard].min(level.after);
                room = room.saturating_add(level.room);
            }
        }
        let Some(lowest) = lows.iter().copied().min() else { return };
        let limit = room.saturating_add(u32::try_from(CAUGHT_UP_DISTANCE).unwrap_or(u32::MAX)).min(RANGE_MAX);
        let columns = row::columns(&payload_max(polls[0]).to_string());
        let lows = literal::integers(lows);
        let statement = format!(
            "select {columns} from honeyflow_outbox o where o.id > {lowest} and o.ready_at is null
               and o.id > coalesce(({lows}::bigint[])[o.shard + 1], {}) order by o.id limit {limit}",
            EventId::MAX
        );
        self.push(Part::Range { limit: limit as usize }, &statement);
    }

    fn levels(&mut self, polls: &[&Poll], group: &[usize], passed_over: &[SkipRule], high: EventId) {
        let mut behind = Vec::new();
        for n in group.iter().copied().filter(|n| !is_caught_up(polls, *n, high)) {
            let levels = polls[n].levels.iter().enumerate();
            behind.extend(levels.filter(|(_, wanted)| wanted.room > 0).map(|(level, wanted)| (n, level, *wanted)));
        }
        if behind.is_empty() {
            return;
        }
        let wanted = format!(
            "unnest({}::int[], {}::smallint[], {}::smallint[], {}::bigint[], {}::bigint[], {}::bigint[])
               as w(n, shard, priority, after, room, max)",
            literal::integers(behind.iter().map(|(n, ..)| n)),
            literal::integers(behind.iter().map(|(n, ..)| polls[*n].shard)),
            literal::integers(behind.iter().map(|(_, level, _)| level)),
            literal::integers(behind.iter().map(|(.., wanted)| wanted.after)),
            literal::integers(behind.iter().map(|(.., wanted)| wanted.room)),
            literal::integers(behind.iter().map(|(n, ..)| payload_max(polls[*n]))),
        );
        let of_level = "o.shard = w.shard and o.priority = w.priority and o.id > w.after and o.ready_at is null";
        let columns = row::columns("w.max");
        if passed_over.is_empty() {
            let rows = format!("select {columns} from honeyflow_outbox o where {of_level} order by o.id limit w.room");
            self.push(Part::Levels, &format!("select w.n, r.* from {wanted}, lateral ({rows}) r"));
            return;
        }
        let look = format!("select * from honeyflow_outbox o where {of_level} order by o.id limit {LOOK_MAX}");
        let not_passed = not_passed(passed_over);
        let rows = format!("select {columns} from ({look}) o where true{not_passed} order by o.id limit w.room");
        self.push(Part::Levels, &format!("select w.n, r.* from {wanted}, lateral ({rows}) r"));
        let look = format!("select o.id from honeyflow_outbox o where {of_level} order by o.id limit {LOOK_MAX}");
        let mark = format!("select w.n, w.priority, (select max(l.id) from ({look}) l) from {wanted}");
        self.push(Part::Marks, &mark);
    }

    fn newest(&mut self, polls: &[&Poll], group: &[usize], passed_over: &[SkipRule]) {
        let wanted: Vec<usize> = group.iter().copied().filter(|n| polls[*n].newest > 0).collect();
        if wanted.is_empty() {
            return;
        }
        let levels = || wanted.iter().flat_map(|n| (0..polls[*n].levels.len()).map(move |level| (*n, level)));
        let statement = format!(
            "select w.n, r.* from unnest({}::int[], {}::smallint[], {}::smallint[], {}::bigint[], {}::bigint[], {}::bigint[])
               as w(n, shard, priority, after, room, max),
             lateral (select {} from (select * from honeyflow_outbox o
               where o.shard = w.shard and o.priority = w.priority and o.id > w.after and o.ready_at is null
               order by o.id desc limit greatest(2 * w.room, 1000)) o where true{} order by o.id desc limit w.room) r",
            literal::integers(levels().map(|(n, _)| n)),
            literal::integers(levels().map(|(n, _)| polls[n].shard)),
            literal::integers(levels().map(|(_, level)| level)),
            literal::integers(levels().map(|(n, level)| polls[n].levels[level].after)),
            literal::integers(levels().map(|(n, _)| polls[n].newest)),
            literal::integers(levels().map(|(n, _)| payload_max(polls[n]))),
            row::columns("w.max"),
            not_passed(passed_over),
        );
        self.push(Part::Newest, &statement);
    }

    /// Reads due rows. If no row is delayed, one index lookup finds that for all shards.
    fn due(&mut self, polls: &[&Poll], group: &[usize], passed_over: &[SkipRule]) {
        let total = |n: usize| polls[n].levels.iter().map(|level| u64::from(level.room)).sum::<u64>();
        let wanted: Vec<usize> = group.iter().copied().filter(|n| total(*n) > 0).collect();
        if wanted.is_empty() {
            return;
        }
        let statement = format!(
            "select w.n, r.* from unnest({}::int[], {}::smallint[], {}::bigint[], {}::bigint[]) as w(n, shard, room, max),
             lateral (select {} from (select * from honeyflow_outbox o
               where o.shard = w.shard and o.ready_at is not null and o.ready_at <= statement_timestamp()
               order by o.ready_at limit greatest(w.room, {LOOK_MAX})) o
               where true{} order by o.ready_at limit greatest(w.room, 1000)) r
             where (select exists (select 1 from honeyflow_outbox where ready_at is not null))",
            literal::integers(&wanted),
            literal::integers(wanted.iter().map(|n| polls[*n].shard)),
            literal::integers(wanted.iter().map(|n| total(*n))),
            literal::integers(wanted.iter().map(|n| payload_max(polls[*n]))),
            row::columns("w.max"),
            not_passed(passed_over),
        );
        self.push(Part::Due, &statement);
    }

    fn next_due(&mut self, polls: &[&Poll]) {
        let statement = format!(
            "select w.n, ceil(extract(epoch from r.ready_at - statement_timestamp()) * 1000)::bigint
             from unnest({}::int[], {}::smallint[]) as w(n, shard),
             lateral (select o.ready_at from honeyflow_outbox o where o.shard = w.shard and o.ready_at is not null
               and o.ready_at > statement_timestamp() order by o.ready_at limit 1) r
             where (select exists (select 1 from honeyflow_outbox where ready_at is not null))",
            literal::integers(0..polls.len()),
            literal::integers(polls.iter().map(|poll| poll.shard)),
        );
        self.push(Part::NextDue, &statement);
    }
}

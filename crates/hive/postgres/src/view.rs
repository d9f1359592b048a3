//! The view with its version and events, and the lineage it belongs to.

use honeyflow_event::Epoch;
use honeyflow_hive::{
    Fence, Reply,
    contract::{Counts, EventKind, Events, HeldLease, Refusal, Removal, View},
};

use crate::{
    driver::Error,
    hive::{Hive, SERVER, clock, clock_and_server},
    lease::stale,
    literal::{number, number_or_null, rows, text, text_or_null},
    node::read_removed,
    row::{EVENT, HEAD, LEASE, LEASE_FROM, Line, NODE},
    script::{Answers, Script},
};

impl Hive {
    fn head(&self) -> String {
        let (hive, t) = (self.name(), clock_and_server());
        format!("with {t} select {HEAD} from t left join hive_view v on v.hive = {hive}")
    }

    pub fn whole_view(&self) -> Script {
        let (hive, t) = (self.name(), clock());
        Script::read()
            .ask(self.head())
            .ask(format_args!("select {NODE} from hive_node n where n.hive = {hive} order by n.id"))
            .ask(format_args!(
                "with {t} select {LEASE} from t cross join {LEASE_FROM} where l.hive = {hive} order by l.name"
            ))
    }

    pub fn events(&self, after: u64, max: u32) -> Script {
        let (hive, t, after) = (self.name(), clock(), number(after));
        let due = format!(
            "select {EVENT} from hive_event e where e.hive = {hive} and e.version > {after} order by e.version limit {max}"
        );
        Script::read()
            .ask(self.head())
            .ask(&due)
            .ask(format_args!(
                "select {NODE} from hive_node n where n.hive = {hive} and n.id in (select d.node from ({due}) d) order by n.id"
            ))
            .ask(format_args!(
                "with {t} select {LEASE} from t cross join {LEASE_FROM}
                 where l.hive = {hive} and l.name in (select d.lease from ({due}) d) order by l.name"
            ))
    }

    pub fn history(&self, lease: Option<&str>, until_ms: Option<u64>, max: u32) -> Script {
        let (hive, until_ms) = (self.name(), number_or_null(until_ms));
        let of_lease = lease.map_or_else(String::new, |lease| format!("and e.lease = {}", text(lease)));
        Script::read().ask(format_args!(
            "select {EVENT} from hive_event e where e.hive = {hive} {of_lease} and e.at_ms <= coalesce({until_ms}, e.at_ms)
             order by e.version desc limit {max}"
        ))
    }

    /// The lease row stays locked until the count is written, so that a node that still believes it is queen cannot count at
    /// the same time.
    pub fn count(&self, fence: &Fence, every_ms: u64, bury: &[Removal]) -> Script {
        let (hive, t, tally, holds) = (self.name(), clock(), self.tally(), self.holds(fence));
        let (epoch, every_ms) = (number(fence.epoch().0), number(every_ms));
        let script = self.change().ask(self.fence(fence));
        self.add_removals(script, bury, &holds).ask(format_args!(
            "with {t}, counted as materialized ({tally}),
             published as (update hive_view v
               set alive = c.alive, ready = c.ready, engaged = c.engaged, epoch = {epoch}, counted_ms = t.now
               from counted c, t where v.hive = {hive} and {holds}
                 and ((v.alive, v.ready, v.engaged, v.epoch) <> (c.alive, c.ready, c.engaged, {epoch})
                   or v.counted_ms > t.now or v.counted_ms + {every_ms} <= t.now)
               returning v.epoch, v.counted_ms)
             select t.now, c.alive, c.ready, c.engaged, coalesce(p.epoch, v.epoch, 0),
               coalesce(p.counted_ms, v.counted_ms, 0), p.epoch is not null
             from t cross join counted c left join hive_view v on v.hive = {hive} left join published p on true"
        ))
    }

    pub fn record_missed(&self, fence: &Fence, cause: &str) -> Script {
        let (t, noted, holds, cause) = (clock(), self.write_events(), self.holds(fence), text(cause));
        let (lease, epoch, holder) = (text(fence.lease()), number(fence.epoch().0), fence.holder());
        let kind = EventKind::Missed;
        self.change().run(self.fence(fence)).ask(format_args!(
            "with {t}, changes(place, kind, node, lease, epoch, cause) as (
               select 1, '{kind}', '{holder}'::uuid, {lease}, {epoch}, {cause} where {holds}),
             {noted}
             select version from noted"
        ))
    }

    pub fn sweep(&self, fence: &Fence, (event_ms, events_max): (u64, u64), idle_ms: u64, rows_max: u32) -> Script {
        let (hive, t, holds) = (self.name(), clock(), self.holds(fence));
        let (event_ms, events_max) = (number(event_ms), number(events_max));
        let script = self.change().ask(self.fence(fence)).ask(format_args!(
            "with {t}, old as (select e.version from hive_event e, t where e.hive = {hive} and {holds}
                 and (e.at_ms <= t.now - {event_ms} or e.version <= (select version from hive_event
                   where hive = {hive} order by version desc offset {events_max} limit 1))
               order by e.version limit {rows_max}),
             swept as (delete from hive_event e using old where e.hive = {hive} and e.version = old.version returning 1)
             select count(*) from swept"
        ));
        script.ask(self.sweep_buckets(&holds, idle_ms, rows_max)).ask(self.sweep_shares(&holds, idle_ms, rows_max))
    }

    pub fn new_lineage(&self, was: Option<&str>, found: &str) -> Script {
        let (hive, t, was, found) = (self.name(), clock_and_server(), text_or_null(was), text(found));
        let kind = EventKind::Lineage;
        self.change()
            .run(format_args!(
                "insert into hive_view(hive, origin) select {hive}, gen_random_uuid()
                 where {was} is null and {found} = {SERVER} on conflict (hive) do nothing"
            ))
            .run(self.lock_view())
            .ask(format_args!(
                "with {t}, moved as (update hive_view set lineage = {found}, lineage_ms = t.now,
                   version = greatest(version + 1, t.now) from t
                   where hive = {hive} and lineage is not distinct from {was} and t.server = {found} returning version)
                 insert into hive_event(hive, version, at_ms, kind, cause)
                   select {hive}, moved.version, t.now, '{kind}', {found} from moved, t returning version"
            ))
    }

    pub fn report_behind(&self, lineage: &str, version: u64, leases: &[HeldLease]) -> Script {
        let (hive, lineage, version) = (self.name(), text(lineage), number(version));
        let lower = if leases.is_empty() {
            "false".to_owned()
        } else {
            let asked = rows(leases.iter().map(|held| format!("{}, {}", text(&held.lease), number(held.epoch.0))));
            format!(
                "exists (select 1 from (values {asked}) a(name, epoch) left join hive_lease l
                   on l.hive = {hive} and l.name = a.name where l.epoch is null or l.epoch < a.epoch)"
            )
        };
        self.change().run(self.lock_view()).ask(format_args!(
            "update hive_view set hold = 'restore'
             where hive = {hive} and lineage = {lineage} and (version < {version} or {lower}) returning 1"
        ))
    }

    pub fn accept_restore(&self, cause: &str) -> Script {
        let (hive, t, cause, kind) = (self.name(), clock(), text(cause), EventKind::Restored);
        self.change().run(self.lock_view()).ask(format_args!(
            "with {t}, accepted as (update hive_view set hold = null, lineage_ms = t.now,
               version = greatest(version + 1, t.now) from t where hive = {hive} and hold is not null returning version)
             insert into hive_event(hive, version, at_ms, kind, cause)
               select {hive}, accepted.version, t.now, '{kind}', {cause} from accepted, t returning version"
        ))
    }
}

pub(crate) fn read_view(answers: &Answers) -> Result<Reply, Error> {
    Ok(Reply::View(Box::new(View {
        head: answers.line(0)?.head()?,
        nodes: answers.lines(1).map(Line::node_row).collect::<Result<_, _>>()?,
        leases: answers.lines(2).map(Line::lease_row).collect::<Result<_, _>>()?,
    })))
}

/// Returns `None` if the events after `after` are incomplete: more than `max` are due, or a version was skipped. Versions
/// normally rise by one, so it compares their number with the difference of the versions.
pub(crate) fn read_events(answers: &Answers, after: u64, max: u32) -> Result<Option<Reply>, Error> {
    let head = answers.line(0)?.head()?;
    let events = answers.lines(1).map(Line::event).collect::<Result<Vec<_>, _>>()?;
    let is_whole = head.version.checked_sub(after) == Some(events.len() as u64) && events.len() <= max as usize;
    if !is_whole {
        return Ok(None);
    }
    Ok(Some(Reply::Events(Box::new(Events {
        head,
        events,
        nodes: answers.lines(2).map(Line::node_row).collect::<Result<_, _>>()?,
        leases: answers.lines(3).map(Line::lease_row).collect::<Result<_, _>>()?,
    }))))
}

pub(crate) fn read_history(answers: &Answers) -> Result<Reply, Error> {
    Ok(Reply::History(answers.lines(0).map(Line::event).collect::<Result<_, _>>()?))
}

pub(crate) fn read_count(answers: &Answers, fence: &Fence) -> Result<Reply, Error> {
    if answers.is_empty(0) {
        return Ok(stale(fence));
    }
    let line = answers.line(2)?;
    let counts = Counts {
        alive: line.number(1)?,
        ready: line.number(2)?,
        engaged: line.number(3)?,
        epoch: Epoch(line.number(4)?),
        counted_ms: line.number(5)?,
    };
    Ok(Reply::Counted {
        hive_ms: line.number(0)?,
        counts,
        published: line.flag(6)?,
        removed: read_removed(answers, 1)?,
    })
}

pub(crate) fn read_swept(answers: &Answers, fence: &Fence) -> Result<Reply, Error> {
    if answers.is_empty(0) {
        return Ok(stale(fence));
    }
    let (buckets, shares): (u64, u64) = (answers.line(2)?.number(0)?, answers.line(3)?.number(0)?);
    Ok(Reply::Swept { events: answers.line(1)?.number(0)?, buckets: buckets + shares })
}

/// Returns `Done` if the first statement returned a row.
pub(crate) fn done_or(answers: &Answers, otherwise: Reply) -> Reply {
    if answers.is_empty(0) { otherwise } else { Reply::Done }
}

/// Another node changed the row first.
pub(crate) const RACED: Reply = Reply::Refused(Refusal::Raced);

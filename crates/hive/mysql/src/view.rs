//! The view with its version and events, and the lineage it belongs to.

use honeyflow_event::Name;
use honeyflow_hive::{
    Fence, Reply,
    contract::{Counts, Event, EventKind, Events, Head, HeldLease, QUEEN, Refusal, Removal, View},
};

use crate::{
    limit,
    literal::{self, signed},
    message::{Message, StatementIndex},
    node,
    outcome::Answer,
    row::{self, EVENT, NODE},
    schema::HIVE_MS,
    session::{LEASE_LOCK_SECONDS, Response, Session, stale},
};

impl Session {
    /// The head of a database without hive tables: only time and server are set.
    pub async fn empty_head(&mut self) -> Answer<Head> {
        let heard = self.read_time_and_server().await?;
        Ok(Head { hive_ms: heard.now_ms, server: heard.server, ..Head::default() })
    }

    pub async fn read_view(&mut self) -> Answer<Reply> {
        let hive = &self.hive;
        let mut message = self.snapshot();
        let view = self.add_view(&mut message);
        let nodes = message.add(format!("select {NODE} from hive_node where hive = {hive} order by id"));
        let leases = message.add(row::leases(hive, ""));
        let heard = self.read(message).await?;
        let view = View {
            head: heard.head(view)?,
            nodes: each(&heard, nodes, row::node)?,
            leases: each(&heard, leases, row::lease)?,
        };
        Ok(Reply::View(Box::new(view)))
    }

    pub async fn events(&mut self, after: u64, max: u32) -> Answer<Reply> {
        let (hive, after_it, last) = (&self.hive, signed(after), signed(after.saturating_add(u64::from(max))));
        let those = format!("hive = {hive} and version > {after_it} and version <= {last}");
        let mut message = self.snapshot();
        let view = self.add_view(&mut message);
        let events = message.add(format!("select {EVENT} from hive_event where {those} order by version"));
        let nodes = message.add(format!(
            "select {NODE} from hive_node where hive = {hive} and id in
               (select node from hive_event where {those} and node is not null) order by id"
        ));
        let leases = message.add(row::leases(
            hive,
            &format!(" and l.name in (select lease from hive_event where {those} and lease is not null)"),
        ));
        let heard = self.read(message).await?;
        let head = heard.head(view)?;
        // Versions are unique and rise by one: if the number of events is right, none is missing.
        let due = head.version.checked_sub(after).filter(|due| *due <= u64::from(max));
        if due != Some(heard.rows(events).len() as u64) {
            return self.read_view().await;
        }
        let events = Events {
            head,
            events: each(&heard, events, row::event)?,
            nodes: each(&heard, nodes, row::node)?,
            leases: each(&heard, leases, row::lease)?,
        };
        Ok(Reply::Events(Box::new(events)))
    }

    pub async fn history(&mut self, lease: Option<&str>, until_ms: Option<u64>, max: u32) -> Answer<Reply> {
        let mut filter = format!("hive = {}", self.hive);
        if let Some(lease) = lease {
            filter.push_str(&format!(" and lease = {}", literal::text(lease)));
        }
        if let Some(until_ms) = until_ms {
            filter.push_str(&format!(" and at_ms <= {}", signed(until_ms)));
        }
        let mut message = self.snapshot();
        let events =
            message.add(format!("select {EVENT} from hive_event where {filter} order by version desc limit {max}"));
        let heard = self.read(message).await?;
        Ok(Reply::History(each::<Event>(&heard, events, row::event)?))
    }

    fn add_tally(&self, message: &mut Message) -> StatementIndex {
        message.add(format!(
            "select {HIVE_MS}, count(*), coalesce(sum(ready), 0), coalesce(sum(ready = 1 and engaged_ms > {HIVE_MS}), 0)
             from hive_node where hive = {} and expires_ms > {HIVE_MS}",
            self.hive
        ))
    }

    pub async fn tally(&mut self) -> Answer<Reply> {
        let mut message = self.snapshot();
        let view = self.add_view(&mut message);
        let tally = self.add_tally(&mut message);
        let heard = self.read(message).await?;
        let counts = counted(&heard, tally, heard.head(view)?.counts, &[])?;
        Ok(Reply::Counted { hive_ms: heard.now_ms, counts, published: false, removed: Vec::new() })
    }

    pub async fn count(&mut self, fence: &Fence, every_ms: u64, burials: &[Removal]) -> Answer<Reply> {
        if &**fence.lease() != QUEEN {
            return Ok(stale(fence));
        }
        let ids: Vec<_> = burials.iter().map(|burial| burial.node).collect();
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        let nodes = (!ids.is_empty()).then(|| self.lock_nodes(&mut message, &ids));
        let lease = self.lock_fence(&mut message, fence);
        let view = self.lock_view(&mut message);
        let shares = (!ids.is_empty()).then(|| self.add_shares(&mut message, &ids));
        let tally = self.add_tally(&mut message);
        let heard = self.ask(message).await?;
        if !heard.holds(fence, lease)? {
            return Ok(stale(fence));
        }
        let (mut log, mut message) = (self.log(&heard, view)?, Message::default());
        let dead = nodes.map_or(Ok(Vec::new()), |nodes| node::dead_nodes(&heard, nodes, burials))?;
        if let Some(shares) = shares {
            self.add_removals(&mut message, &mut log, &heard, shares, &dead)?;
        }
        let last = heard.head(view)?.counts;
        let mut counts = counted(&heard, tally, last, &dead)?;
        let published = !counts.same_numbers(&last)
            || last.epoch != fence.epoch()
            || last.counted_ms > heard.now_ms
            || last.counted_ms.saturating_add(every_ms) <= heard.now_ms;
        if published {
            counts = Counts { epoch: fence.epoch(), counted_ms: heard.now_ms, ..counts };
            let Counts { alive, ready, engaged, epoch, counted_ms } = counts;
            let epoch = epoch.0;
            log.write(
                &mut message,
                &format!(
                    ", alive = {alive}, ready = {ready}, engaged = {engaged}, epoch = {epoch}, counted_ms = {counted_ms}"
                ),
            );
        } else {
            log.write(&mut message, "");
        }
        self.commit(message).await?;
        let buried = dead.iter().map(|dead| dead.burial.node).collect();
        Ok(Reply::Counted { hive_ms: heard.now_ms, counts, published, removed: buried })
    }

    pub async fn record_missed(&mut self, fence: &Fence, cause: &str) -> Answer<Reply> {
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        let lease = self.lock_fence(&mut message, fence);
        let view = self.lock_view(&mut message);
        let heard = self.ask(message).await?;
        if !heard.holds(fence, lease)? {
            return Ok(stale(fence));
        }
        let (mut log, mut message) = (self.log(&heard, view)?, Message::default());
        log.event(EventKind::Missed, Some(fence.holder()), Some((fence.lease(), fence.epoch())), cause);
        log.write(&mut message, "");
        self.commit(message).await?;
        Ok(Reply::Done)
    }

    /// Finds old rows without locks, so that transactions that write new events are not delayed.
    pub async fn sweep(
        &mut self,
        fence: &Fence,
        (event_ms, events_max): (u64, u64),
        idle_ms: u64,
        rows_max: u32,
    ) -> Answer<Reply> {
        if &**fence.lease() != QUEEN {
            return Ok(stale(fence));
        }
        let (hive, event_ms, events_max) = (self.hive.clone(), signed(event_ms), signed(events_max));
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        let lease = self.lock_fence(&mut message, fence);
        let old = message.add(format!(
            "select version from hive_event where hive = {hive} and (at_ms + {event_ms} <= {HIVE_MS} or version <= coalesce(
               (select version from hive_event where hive = {hive} order by version desc limit 1 offset {events_max}), -1))
             order by version limit {rows_max}"
        ));
        let idle = message.add(format!(
            "select name, limit_key from hive_limit where hive = {hive} and {} limit {rows_max}",
            limit::is_idle(idle_ms)
        ));
        // Rows of nodes that hold no slots. Its last request must be `idle_ms` old, so that no earlier one can still
        // arrive.
        let is_nothing = format!("has_u = 0 and until_ms + {} <= {HIVE_MS}", signed(idle_ms));
        let nothing = message.add(format!(
            "select name, limit_key, node from hive_share where hive = {hive} and {is_nothing} limit {rows_max}"
        ));
        let heard = self.ask(message).await?;
        if !heard.holds(fence, lease)? {
            return Ok(stale(fence));
        }
        let mut message = Message::default();
        let versions = each(&heard, old, |row| row::unsigned(row, 0))?;
        let versions = versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let events = (!versions.is_empty())
            .then(|| message.add(format!("delete from hive_event where hive = {hive} and version in ({versions})")));
        let mut buckets = Vec::new();
        for row in heard.rows(idle) {
            let (name, key) = (literal::text(row::required(row, 0)?), literal::text(row::required(row, 1)?));
            buckets.push(message.add(format!(
                "delete from hive_limit where hive = {hive} and name = {name} and limit_key = {key} and {}",
                limit::is_idle(idle_ms)
            )));
        }
        for row in heard.rows(nothing) {
            let [name, key, node] = [0, 1, 2].map(|at| row::required(row, at).map(literal::text));
            let (name, key, node) = (name?, key?, node?);
            buckets.push(message.add(format!(
                "delete from hive_share
                 where hive = {hive} and name = {name} and limit_key = {key} and node = {node} and {is_nothing}"
            )));
        }
        let answers = self.commit(message).await?;
        let changed = |at: StatementIndex| answers.changed(at);
        Ok(Reply::Swept { events: events.map_or(0, changed), buckets: buckets.into_iter().map(changed).sum() })
    }

    pub async fn new_lineage(&mut self, was: Option<&str>, found: &str) -> Answer<Reply> {
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        let view = self.lock_view(&mut message);
        let heard = self.ask(message).await?;
        let head = heard.head(view)?;
        if head.lineage.as_deref() != was || found != heard.server {
            return Ok(Reply::Refused(Refusal::Raced));
        }
        let (hive, now_ms, lineage) = (&self.hive, heard.now_ms, literal::text(found));
        let mut message = Message::default();
        if head.origin.is_none() {
            // If another node makes the view at the same time, the primary key makes one of the two fail.
            let origin = uuid::Uuid::new_v4();
            message.add(format!("insert into hive_view(hive, origin, lineage) values ({hive}, '{origin}', {lineage})"));
        }
        let mut log = self.log_from(&heard, head.version);
        log.jump_version();
        log.event(EventKind::Lineage, None, None, found);
        log.write(&mut message, &format!(", lineage = {lineage}, lineage_ms = {now_ms}"));
        self.commit(message).await?;
        Ok(Reply::Done)
    }

    pub async fn report_behind(&mut self, lineage: &str, version: u64, seen: &[HeldLease]) -> Answer<Reply> {
        let hive = self.hive.clone();
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        let view = self.lock_view(&mut message);
        let names = literal::texts(seen.iter().map(|held| &*held.lease));
        let names = if names.is_empty() { "null".to_owned() } else { names };
        let leases =
            message.add(format!("select name, epoch from hive_lease where hive = {hive} and name in ({names})"));
        let heard = self.ask(message).await?;
        let head = heard.head(view)?;
        let epochs = each(&heard, leases, |row| Ok((Name::from(row::required(row, 0)?), row::epoch(row, 1)?)))?;
        let is_behind = |held: &HeldLease| {
            let stored = epochs.iter().find(|(name, _)| *name == held.lease);
            stored.is_none_or(|(_, epoch)| *epoch < held.epoch)
        };
        let is_behind = head.version < version || seen.iter().any(is_behind);
        // The history of another server is unknown anyway: the node records it as a new lineage and waits.
        if !is_behind || head.lineage.as_deref() != Some(lineage) || lineage != heard.server {
            return Ok(Reply::Refused(Refusal::Raced));
        }
        let mut message = Message::default();
        message.add(format!("update hive_view set hold = 'restore' where hive = {hive}"));
        self.commit(message).await?;
        Ok(Reply::Done)
    }

    pub async fn accept_restore(&mut self, cause: &str) -> Answer<Reply> {
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        let view = self.lock_view(&mut message);
        let heard = self.ask(message).await?;
        if heard.head(view)?.hold.is_none() {
            return Ok(Reply::Refused(Refusal::Raced));
        }
        let (mut log, mut message) = (self.log(&heard, view)?, Message::default());
        log.jump_version();
        log.event(EventKind::Restored, None, None, cause);
        log.write(&mut message, &format!(", hold = null, lineage_ms = {}", heard.now_ms));
        self.commit(message).await?;
        Ok(Reply::Done)
    }
}

fn each<T>(
    heard: &Response,
    at: StatementIndex,
    read: impl Fn(&crate::driver::MySqlRow) -> Result<T, crate::driver::Error>,
) -> Answer<Vec<T>> {
    Ok(heard.rows(at).iter().map(read).collect::<Result<_, _>>()?)
}

/// The counts without the nodes that are being removed. Epoch and time stay those of the published count.
fn counted(heard: &Response, tally: StatementIndex, last: Counts, buried: &[node::DeadNode<'_>]) -> Answer<Counts> {
    let Some(row) = heard.first(tally) else { return Ok(last) };
    let now_ms = row::unsigned(row, 0)?;
    let alive: Vec<_> = buried.iter().filter(|dead| dead.expires_ms > now_ms).collect();
    let ready = alive.iter().filter(|dead| dead.ready);
    let engaged = ready.clone().filter(|dead| dead.engaged_ms > now_ms).count() as u64;
    Ok(Counts {
        alive: row::unsigned(row, 1)?.saturating_sub(alive.len() as u64),
        ready: row::unsigned(row, 2)?.saturating_sub(ready.count() as u64),
        engaged: row::unsigned(row, 3)?.saturating_sub(engaged),
        ..last
    })
}

//! Membership: nodes join, renew their rows by heartbeats, leave, are removed when they have expired, and are counted.

use honeyflow_event::Epoch;
use honeyflow_hive::{
    NodeId, Reply,
    contract::{Counts, ENGAGED_MS, EventKind, META_BYTES_MAX, Refusal, Removal, State, Status},
};
use honeyflow_runtime::Failure;

use crate::{
    answer::ReadOutcome,
    codes,
    driver::Error,
    hive::{Hive, clock, clock_and_server},
    literal::{node as id_of, number, rows, text},
    script::{Answers, Script},
    server::{self, Server},
    status,
};

impl Hive {
    /// One statement writes both the row and its event: if the identity is taken, the join changes nothing.
    pub fn join(
        &self,
        node: NodeId,
        name: &str,
        (heartbeat_ms, ttl_ms): (u64, u64),
        meta: &str,
    ) -> Result<Script, Failure> {
        if meta.len() > META_BYTES_MAX {
            let said = format!("a node's meta data is {} bytes; {META_BYTES_MAX} are the limit", meta.len());
            return Err(Failure::reject(codes::META_TOO_LARGE, said));
        }
        self.set_ttl(ttl_ms);
        let (hive, t, id, name, meta) = (self.name(), clock_and_server(), id_of(node), text(name), text(meta));
        let (heartbeat_ms, ttl_ms) = (number(heartbeat_ms), number(ttl_ms));
        let (kind, fit) = (EventKind::Joined, server::is_fit());
        Ok(self
            .change()
            .ask(server::ask())
            .ask(format_args!(
                "with {t},
                 made as (insert into hive_node(hive, id, name, beat, beat_ms, ttl_ms, expires_ms, meta)
                   select {hive}, {id}, {name}, 0, {heartbeat_ms}, {ttl_ms}, t.now + {ttl_ms}, {meta}::jsonb from t where {fit}
                   on conflict (hive, id) do nothing returning id),
                 view as (insert into hive_view(hive, origin, lineage, lineage_ms, max_ttl_ms, version)
                   select {hive}, gen_random_uuid(), t.server,
                     case when exists (select 1 from hive_lease where hive = {hive}) then t.now else 0 end, {ttl_ms}, 1
                   from made, t
                   on conflict (hive) do update set version = hive_view.version + 1,
                     max_ttl_ms = greatest(hive_view.max_ttl_ms, excluded.max_ttl_ms)
                   returning version)
                 insert into hive_event(hive, version, at_ms, kind, node, cause)
                   select {hive}, view.version, t.now, '{kind}', {id}, {name} from view, t returning version"
            ))
            .ask(self.status(node)))
    }

    /// Locks the row before reading it, so that it is certain which events this heartbeat causes.
    pub fn beat(&self, node: NodeId, state: &State) -> Script {
        let (hive, t, id, noted) = (self.name(), clock(), id_of(node), self.write_events());
        let State { engaged_age_ms, ready, eligible, warm } = state;
        let warm: Vec<&str> = warm.iter().map(|lease| &**lease).collect();
        let warm = text(&serde_json::to_string(&warm).unwrap_or_else(|_| "[]".to_owned()));
        let engaged_ms = match engaged_age_ms {
            Some(age_ms) => format!("greatest(0, t.now + {ENGAGED_MS} - {})", number(*age_ms)),
            None => "0".to_owned(),
        };
        let (became_eligible, became_ready) = (event_kind(*eligible, false), event_kind(*ready, true));
        self.change()
            .run(format_args!("select 1 from hive_node where hive = {hive} and id = {id} for no key update"))
            .run(format_args!(
                "with {t},
                 was as (select ready, eligible from hive_node where hive = {hive} and id = {id}),
                 changes(place, kind, node, lease, epoch, cause) as (
                   select 1, {became_eligible}, {id}, null::text, null::bigint, '' from was where eligible <> {eligible}
                   union all
                   select 2, {became_ready}, {id}, null, null, '' from was where ready <> {ready}),
                 beat as (update hive_node set beat = beat + 1, expires_ms = t.now + ttl_ms, engaged_ms = {engaged_ms},
                     ready = {ready}, eligible = {eligible}, warm = {warm}::jsonb
                   from t where hive = {hive} and id = {id}),
                 {noted}
                 select 1"
            ))
            .ask(self.status(node))
    }

    pub fn read_only_beat(&self, node: NodeId) -> Script {
        Script::read().ask(self.status(node))
    }

    pub fn leave(&self, node: NodeId) -> Script {
        let (hive, t, id, noted) = (self.name(), clock(), id_of(node), self.write_events());
        let kind = EventKind::Left;
        let script = self.change().run(format_args!(
            "with {t},
             gone as (delete from hive_node where hive = {hive} and id = {id} returning id),
             changes(place, kind, node, lease, epoch, cause) as (
               select 1, '{kind}', id, null::text, null::bigint, '' from gone),
             {noted}
             select 1"
        ));
        self.give_back(script, &[node])
    }

    pub fn remove_expired(&self, burials: &[Removal]) -> Script {
        self.add_removals(self.change(), burials, "true")
    }

    /// Adds the removal of expired nodes, if condition `may` holds, and returns the removed ones. A node whose row is
    /// locked at this moment is active: it is skipped instead of waited for, so that no lock order has to be kept here.
    pub fn add_removals(&self, script: Script, burials: &[Removal], may: &str) -> Script {
        if burials.is_empty() {
            return script.ask("select 1 where false");
        }
        let (hive, t, noted, kind) = (self.name(), clock(), self.write_events(), EventKind::Buried);
        let asked = rows(burials.iter().enumerate().map(|(n, Removal { node, beat, silent, cause })| {
            format!("{n}, {}, {}, {silent}, {}", id_of(*node), number(*beat), text(cause))
        }));
        let script = script.ask(format_args!(
            "with {t}, asked(n, id, beat, silent, cause) as (values {asked}),
             dead as materialized (select h.id, a.n, a.cause from asked a
               join hive_node h on h.hive = {hive} and h.id = a.id cross join t
               where h.beat = a.beat and (h.expires_ms <= t.now or a.silent) and {may} for update of h skip locked),
             gone as (delete from hive_node h using dead d where h.hive = {hive} and h.id = d.id
               returning d.n, d.id, d.cause),
             changes(place, kind, node, lease, epoch, cause) as (
               select n, '{kind}', id, null::text, null::bigint, cause from gone),
             {noted}
             select id from gone order by n"
        ));
        let nodes: Vec<NodeId> = burials.iter().map(|burial| burial.node).collect();
        self.give_back(script, &nodes)
    }

    /// Adds statements that give back the slots of those `nodes` that have no row any more.
    fn give_back(&self, script: Script, nodes: &[NodeId]) -> Script {
        let hive = self.name();
        let nodes = nodes.iter().map(|node| id_of(*node)).collect::<Vec<_>>().join(", ");
        let gone = format!(
            "s.hive = {hive} and s.node in ({nodes})
               and not exists (select 1 from hive_node n where n.hive = {hive} and n.id = s.node)"
        );
        script
            .run(format_args!(
                "select 1 from hive_limit l join hive_share s
                   on s.hive = l.hive and s.name = l.name and s.limit_key = l.limit_key
                 where {gone} order by l.name, l.limit_key for no key update of l"
            ))
            .run(format_args!(
                "update hive_limit l set issued_u = greatest(0, l.issued_u - b.has_u) from (
                   select s.name, s.limit_key, sum(s.has_u)::bigint as has_u from hive_share s where {gone} group by 1, 2) b
                 where l.hive = {hive} and l.name = b.name and l.limit_key = b.limit_key"
            ))
            .run(format_args!("delete from hive_share s where {gone}"))
    }

    /// Repairs stored times after a clock step. Rows of one kind are locked in the order of their names, as everywhere.
    pub fn mend(&self) -> Script {
        let (hive, t) = (self.name(), clock());
        let node = format!("n.expires_ms > t.now + n.ttl_ms or n.engaged_ms > t.now + {ENGAGED_MS}");
        let view = "v.lineage_ms > t.now or v.counted_ms > t.now";
        self.change()
            .run(format_args!(
                "with {t} select 1 from hive_node n, t where n.hive = {hive} and ({node}) order by n.id
                 for no key update of n"
            ))
            .ask(format_args!(
                "with {t}, mended as (update hive_node n set expires_ms = least(n.expires_ms, t.now + n.ttl_ms),
                   engaged_ms = least(n.engaged_ms, t.now + {ENGAGED_MS}) from t where n.hive = {hive} and ({node})
                   returning 1) select count(*) from mended"
            ))
            .ask(format_args!(
                "with {t}, mended as (update hive_view v set lineage_ms = least(v.lineage_ms, t.now),
                   counted_ms = least(v.counted_ms, t.now) from t where v.hive = {hive} and ({view}) returning 1)
                 select count(*) from mended"
            ))
            .run(format_args!(
                "with {t} select 1 from hive_limit l, t where l.hive = {hive} and l.pool_ms > t.now
                 order by l.name, l.limit_key for no key update of l"
            ))
            .ask(format_args!(
                "with {t}, mended as (update hive_limit l set pool_ms = t.now from t
                   where l.hive = {hive} and l.pool_ms > t.now returning 1) select count(*) from mended"
            ))
    }

    /// Counts `(alive, ready, engaged)` at `t.now`.
    pub fn tally(&self) -> String {
        let hive = self.name();
        format!(
            "select count(*) as alive, count(*) filter (where n.ready) as ready,
               count(*) filter (where n.ready and n.engaged_ms > t.now) as engaged
             from t join hive_node n on n.hive = {hive} and n.expires_ms > t.now"
        )
    }

    pub fn count_nodes(&self) -> Script {
        let (hive, t, tally) = (self.name(), clock(), self.tally());
        Script::read().ask(format_args!(
            "with {t}, counted as ({tally})
             select t.now, c.alive, c.ready, c.engaged, coalesce(v.epoch, 0), coalesce(v.counted_ms, 0)
             from t cross join counted c left join hive_view v on v.hive = {hive}"
        ))
    }
}

/// The event kind of a heartbeat that reports `is` for a node whose row says the opposite.
fn event_kind(is: bool, of_ready: bool) -> String {
    let (was, now) = if of_ready { ((!is, false), (is, false)) } else { ((false, !is), (false, is)) };
    let kind = EventKind::of_beat(was, now).next().map_or("", EventKind::as_str);
    format!("'{kind}'")
}

pub(crate) fn read_join(answers: &Answers) -> Result<ReadOutcome, Error> {
    let server = Server::read(answers.line(0)?)?;
    if let Err(failure) = server.judge() {
        return Ok(ReadOutcome::Unfit(failure));
    }
    if server.is_outdated() {
        return Ok(ReadOutcome::Outdated);
    }
    Ok(ReadOutcome::Reply(if answers.is_empty(1) {
        Reply::Refused(Refusal::Known)
    } else {
        Reply::Joined(Box::new(Status { renewed: true, ..status::read_status(answers, 2)? }))
    }))
}

pub(crate) fn read_beat(answers: &Answers, read_only: bool) -> Result<Reply, Error> {
    let mut status = status::read_status(answers, 0)?;
    status.renewed = status.member && !read_only;
    Ok(Reply::Beat(Box::new(status)))
}

pub(crate) fn read_removed(answers: &Answers, asked: usize) -> Result<Vec<NodeId>, Error> {
    answers.lines(asked).map(|line| line.node(0)).collect()
}

pub(crate) fn read_mended(answers: &Answers) -> Result<Reply, Error> {
    Ok(Reply::Mended((0..3).map(|table| answers.line(table)?.number(0)).sum::<Result<u64, Error>>()?))
}

pub(crate) fn read_counts(answers: &Answers) -> Result<Reply, Error> {
    let line = answers.line(0)?;
    let counts = Counts {
        alive: line.number(1)?,
        ready: line.number(2)?,
        engaged: line.number(3)?,
        epoch: Epoch(line.number(4)?),
        counted_ms: line.number(5)?,
    };
    Ok(Reply::Counted { hive_ms: line.number(0)?, counts, published: false, removed: Vec::new() })
}

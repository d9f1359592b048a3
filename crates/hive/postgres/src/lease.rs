//! Leases: reads, and every transfer from one holder to another as one compare-and-set.
//!
//! A change first locks its leases, in the order of their names, and then compares in a separate statement: what that
//! statement reads can no longer change. If it had to wait for a lock itself, it would compare with an old snapshot.

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Fence, NodeId, Reply,
    contract::{Claim, EventKind, HeldLease, Mint, Refusal},
};
use honeyflow_runtime::Failure;

use crate::{
    codes,
    driver::Error,
    hive::{Hive, NOW, clock, clock_and_server},
    literal::{node as id_of, number, rows, text},
    outcome::Stop,
    row::{LEASE, LEASE_FROM, Line, unsigned},
    script::{Answers, Script},
};

/// Which node gets a lease, and from which node.
#[derive(Clone, Copy)]
pub(crate) enum Transfer {
    Take { node: NodeId },
    Over { node: NodeId, heir: NodeId },
}

impl Hive {
    pub fn look(&self, names: &[Name]) -> Script {
        let (hive, t) = (self.name(), clock());
        let script = Script::change(std::time::Duration::from_secs(2)).ask(format_args!("select {NOW}"));
        if names.is_empty() {
            return script.ask("select 1 where false");
        }
        let asked = rows(names.iter().enumerate().map(|(n, name)| format!("{n}, {}", text(name))));
        script
            .run(format_args!(
                "insert into hive_lease(hive, name, epoch, since_ms, cause)
                 select {hive}, a.name, 0, {NOW}, '' from (values {asked}) a(n, name)
                 where not exists (select 1 from hive_lease l where l.hive = {hive} and l.name = a.name)
                 order by a.name on conflict (hive, name) do nothing"
            ))
            .ask(format_args!(
                "with {t} select {LEASE} from (values {asked}) a(n, name) cross join t join ({LEASE_FROM})
                   on l.hive = {hive} and l.name = a.name order by a.n"
            ))
    }

    fn lock_leases<'n>(&self, names: impl Iterator<Item = &'n Name>) -> String {
        let names = names.map(|name| text(name)).collect::<Vec<_>>().join(", ");
        let hive = self.name();
        format!("select 1 from hive_lease where hive = {hive} and name in ({names}) order by name for no key update")
    }

    /// Mints epochs for a take or a hand-over. The two differ in what they compare and in which node must be eligible.
    pub fn mint(&self, hands: Transfer, claims: &[Claim], cause: &str, mint: &Mint) -> Option<Script> {
        if claims.is_empty() {
            return None;
        }
        let (hive, t, noted, cause) = (self.name(), clock_and_server(), self.write_events(), text(cause));
        let (holder, kind, anyway) = match hands {
            Transfer::Take { node } => (node, EventKind::Taken, false),
            Transfer::Over { node, heir } => (heir, EventKind::HandedOver, heir == node),
        };
        let compared = match hands {
            Transfer::Take { .. } => format!(
                "(l.holder is null or not exists (select 1 from hive_node n where n.hive = {hive} and n.id = l.holder))"
            ),
            Transfer::Over { node, .. } => format!("l.holder = {}", id_of(node)),
        };
        let (holder, lineage, watched, max) = (id_of(holder), text(&mint.lineage), mint.watched, Epoch::MAX.0);
        let asked = rows(claims.iter().enumerate().map(|(n, Claim { lease, epoch, floor })| {
            format!("{n}, {}, {}, {}", text(lease), number(epoch.0), number(floor.0))
        }));
        let script = self
            .patient_change()
            // Its heartbeats continue; its removal waits.
            .run(format_args!("select 1 from hive_node where hive = {hive} and id = {holder} for key share"))
            .run(self.lock_leases(claims.iter().map(|claim| &claim.lease)))
            .run(self.lock_view());
        Some(script.ask(format_args!(
            "with {t}, asked(n, name, seen, floor) as (values {asked}),
             judged as (select case
                 when t.server <> {lineage} or v.lineage is distinct from t.server then 'lineage'
                 when v.hold is not null then 'hold'
                 when v.lineage_ms > 0 and v.lineage_ms + v.max_ttl_ms > t.now and not {watched} then 'early'
                 when not exists (select 1 from hive_node where hive = {hive} and id = {holder}
                   and expires_ms > t.now and (eligible or {anyway})) then 'unfit'
               end as why, v.lineage_ms + v.max_ttl_ms - t.now as wait_ms
               from t left join hive_view v on v.hive = {hive}),
             due as (select a.n, l.name, l.epoch, greatest(l.epoch + 1, t.now, a.floor + 1) as minted
               from judged j cross join t cross join asked a join hive_lease l on l.hive = {hive} and l.name = a.name
               where j.why is null and l.epoch = a.seen and {compared}),
             won as (update hive_lease l set holder = {holder}, epoch = d.minted, heir = null, since_ms = t.now, cause = {cause}
               from due d, t where l.hive = {hive} and l.name = d.name and l.epoch = d.epoch
                 and not exists (select 1 from due where minted > {max})
               returning d.n, l.name, l.epoch),
             changes(place, kind, node, lease, epoch, cause) as (
               select n, '{kind}', {holder}, name, epoch, {cause} from won),
             {noted}
             select j.why, j.wait_ms, (select json_agg(json_build_array(w.name, w.epoch) order by w.n) from won w),
               (select min(d.name) from due d where d.minted > {max})
             from judged j"
        )))
    }

    pub fn release(&self, node: NodeId, held: &[HeldLease], cause: &str) -> Option<Script> {
        if held.is_empty() {
            return None;
        }
        let (hive, t, noted, node, cause) = (self.name(), clock(), self.write_events(), id_of(node), text(cause));
        let kind = EventKind::Released;
        let asked = rows(
            held.iter()
                .enumerate()
                .map(|(n, HeldLease { lease, epoch })| format!("{n}, {}, {}", text(lease), number(epoch.0))),
        );
        let script = self.patient_change().run(self.lock_leases(held.iter().map(|held| &held.lease)));
        Some(script.ask(format_args!(
            "with {t}, asked(n, name, epoch) as (values {asked}),
             freed as (update hive_lease l set holder = null, heir = null, since_ms = t.now, cause = {cause}
               from asked a, t where l.hive = {hive} and l.name = a.name and l.epoch = a.epoch and l.holder = {node}
               returning a.n, l.name, l.epoch),
             changes(place, kind, node, lease, epoch, cause) as (
               select n, '{kind}', {node}, name, epoch, {cause} from freed),
             {noted}
             select name from freed order by n"
        )))
    }

    pub fn set_successor(&self, fence: &Fence, heir: Option<NodeId>) -> Script {
        let (hive, t, lease, holds) = (self.name(), clock(), text(fence.lease()), self.holds(fence));
        let (heir, fit) = match heir.map(id_of) {
            Some(heir) => {
                let fit = format!(
                    "exists (select 1 from hive_node, t where hive = {hive} and id = {heir} and eligible and expires_ms > t.now)"
                );
                (heir, fit)
            }
            None => ("null".to_owned(), "true".to_owned()),
        };
        self.change().run(self.lock_leases([fence.lease()].into_iter())).ask(format_args!(
            "with {t}, judged as materialized (select {holds} as holds, {fit} as fit),
             named as (update hive_lease set heir = {heir} from judged j
               where hive = {hive} and name = {lease} and j.holds and j.fit)
             select holds, fit from judged"
        ))
    }
}

pub(crate) fn read_leases(answers: &Answers) -> Result<Reply, Error> {
    let leases = answers.lines(1).map(Line::lease_row).collect::<Result<_, _>>()?;
    Ok(Reply::Leases { hive_ms: answers.line(0)?.number(0)?, leases })
}

pub(crate) fn read_minted(answers: &Answers) -> Result<Reply, Stop> {
    let line = answers.line(0)?;
    if let Some(lease) = line.text_or_null(3)? {
        let said = format!("lease {lease}: its next epoch is beyond 2^40");
        return Err(Failure::fatal(codes::EPOCH_TOO_LARGE, said).into());
    }
    let won: Vec<(Name, i64)> = line.json(2)?.unwrap_or_default();
    let refusal = match line.text_or_null(0)? {
        Some("lineage") => Refusal::Lineage,
        Some("hold") => Refusal::Hold,
        Some("early") => Refusal::Early { wait_ms: line.number_or_null(1)?.unwrap_or(0) },
        Some(_) => Refusal::Unfit,
        None if won.is_empty() => Refusal::Raced,
        None => {
            let held = |(lease, epoch): (Name, i64)| HeldLease { lease, epoch: Epoch(unsigned(epoch)) };
            return Ok(Reply::Taken(won.into_iter().map(held).collect()));
        }
    };
    Ok(Reply::Refused(refusal))
}

pub(crate) fn read_released(answers: &Answers) -> Result<Reply, Error> {
    Ok(Reply::Released(answers.lines(0).map(|line| line.text(0).map(Name::from)).collect::<Result<_, _>>()?))
}

pub(crate) fn read_set_successor(answers: &Answers, fence: &Fence) -> Result<Reply, Error> {
    let line = answers.line(0)?;
    Ok(match (line.flag(0)?, line.flag(1)?) {
        (false, _) => stale(fence),
        (true, false) => Reply::Refused(Refusal::Unfit),
        (true, true) => Reply::Done,
    })
}

pub(crate) fn stale(fence: &Fence) -> Reply {
    Reply::Stale(vec![fence.lease().clone()])
}

//! Each request as one message, and its reply from what came back. Nothing here waits for anything.

use honeyflow_hive::{
    Reply, Request,
    contract::{Head, QUEEN, Refusal, Status, View, limit},
};
use honeyflow_runtime::Failure;

use crate::{
    hive::{Hive, NOW, SERVER},
    lease::{self, Hands, stale},
    limit as limits, node,
    outcome::Stop,
    script::{Answers, Script},
    view,
};

/// What is to be asked, or what can be said without asking.
pub(crate) enum Asking {
    Ask(Script),
    Known(Reply),
}

/// What was found.
pub(crate) enum Found {
    Reply(Reply),
    /// Something is missing in between: the whole view is to be read instead.
    Gap,
    /// The tables are of an older version: they are to be migrated first.
    Outdated,
    /// Nothing was done: no hive can live there.
    Unfit(Failure),
}

impl Hive {
    pub fn ask(&self, request: &Request) -> Result<Asking, Failure> {
        let script = match request {
            Request::Join { node, name, heartbeat_ms, ttl_ms, meta } => {
                self.join(*node, name, (*heartbeat_ms, *ttl_ms), meta)?
            }
            Request::Beat { node, read_only: true, .. } => self.read_only_beat(*node),
            Request::Beat { node, state, .. } => self.beat(*node, state),
            Request::Leave { node } => self.leave(*node),
            Request::Bury { nodes } => self.bury(nodes),
            Request::Mend => self.mend(),
            Request::Look { leases } => self.look(leases),
            Request::Take { node, claims, cause, mint } => {
                let taken = self.mint(Hands::Take { node: *node }, claims, cause, mint);
                return Ok(taken.map_or(Asking::Known(view::RACED), Asking::Ask));
            }
            Request::HandOver { node, heir, claims, cause, mint } => {
                let over = self.mint(Hands::Over { node: *node, heir: *heir }, claims, cause, mint);
                return Ok(over.map_or(Asking::Known(view::RACED), Asking::Ask));
            }
            Request::Release { node, held, cause } => {
                let released = self.release(*node, held, cause);
                return Ok(released.map_or_else(|| Asking::Known(Reply::Released(Vec::new())), Asking::Ask));
            }
            Request::SetHeir { fence, heir } => self.set_heir(fence, *heir),
            // Only the queen does these for all.
            Request::Count { fence, .. } | Request::Sweep { fence, .. } if &**fence.lease() != QUEEN => {
                return Ok(Asking::Known(stale(fence)));
            }
            Request::Count { fence, every_ms, bury } => self.count(fence, *every_ms, bury),
            Request::Sweep { fence, event_ms, events_max, idle_ms, rows_max } => {
                self.sweep(fence, (*event_ms, *events_max), *idle_ms, *rows_max)
            }
            Request::Tally => self.tallied(),
            Request::Missed { fence, cause } => self.missed(fence, cause),
            Request::View => self.whole(),
            Request::Events { after, max } => self.events(*after, *max),
            Request::History { lease, until_ms, max } => self.history(lease.as_deref(), *until_ms, *max),
            Request::NewLineage { was, found } => self.new_lineage(was.as_deref(), found),
            Request::Behind { lineage, version, leases } => self.behind(lineage, *version, leases),
            Request::AcceptRestore { cause } => self.accept_restore(cause),
            Request::Limit(limit::Request::Draw(draws)) => self.draw(draws),
            Request::Limit(limit::Request::Exact { takes, peek }) => self.exact(takes, *peek),
            Request::Limit(limit::Request::Refund(takes)) => self.refund(takes),
            Request::Limit(limit::Request::Slots { node, asks }) => self.slots(*node, asks),
            Request::Limit(limit::Request::Set { limit, was, rule, after_ms }) => {
                self.set(limit, *was, rule, *after_ms)
            }
            Request::Limit(limit::Request::Limits) => self.limits(),
            Request::Limit(limit::Request::Ledger { limit, max }) => self.ledger(limit, *max),
        };
        Ok(Asking::Ask(script))
    }

    /// Time and server, where there is nothing else.
    pub fn ask_nothing(&self) -> Script {
        Script::read().ask(format_args!("select {NOW}, {SERVER}"))
    }
}

pub(crate) fn read(request: &Request, answers: &Answers) -> Result<Found, Stop> {
    let reply = match request {
        Request::Join { .. } => return Ok(node::joined(answers)?),
        Request::Beat { read_only, .. } => node::beaten(answers, *read_only)?,
        Request::Leave { .. } => Reply::Done,
        Request::Bury { .. } => Reply::Buried(node::gone(answers, 0)?),
        Request::Mend => node::mended(answers)?,
        Request::Look { .. } => lease::looked(answers)?,
        Request::Take { .. } | Request::HandOver { .. } => lease::minted(answers)?,
        Request::Release { .. } => lease::released(answers)?,
        Request::SetHeir { fence, .. } => lease::heir_set(answers, fence)?,
        Request::Count { fence, .. } => view::published(answers, fence)?,
        Request::Tally => node::counted(answers)?,
        Request::Missed { fence, .. } => view::done_or(answers, stale(fence)),
        Request::Sweep { fence, .. } => view::swept(answers, fence)?,
        Request::View => view::viewed(answers)?,
        Request::Events { after, max } => match view::told(answers, *after, *max)? {
            Some(events) => events,
            None => return Ok(Found::Gap),
        },
        Request::History { .. } => view::remembered(answers)?,
        Request::NewLineage { .. } | Request::Behind { .. } | Request::AcceptRestore { .. } => {
            view::done_or(answers, view::RACED)
        }
        Request::Limit(limit::Request::Draw(draws)) => Reply::Limit(limits::drawn(answers, draws)?),
        Request::Limit(limit::Request::Exact { takes, peek }) => Reply::Limit(limits::admitted(answers, takes, *peek)?),
        Request::Limit(limit::Request::Refund(_)) => Reply::Limit(limit::Reply::Done),
        Request::Limit(limit::Request::Slots { asks, .. }) => Reply::Limit(limits::slots_held(answers, asks)?),
        Request::Limit(limit::Request::Set { .. }) => Reply::Limit(limits::set(answers)?),
        Request::Limit(limit::Request::Limits) => Reply::Limit(limits::limits(answers)?),
        Request::Limit(limit::Request::Ledger { .. }) => Reply::Limit(limits::ledger(answers)?),
    };
    Ok(Found::Reply(reply))
}

/// These make the tables if there are none.
pub(crate) fn makes(request: &Request) -> bool {
    matches!(
        request,
        Request::Join { .. }
            | Request::Look { .. }
            | Request::NewLineage { .. }
            | Request::Limit(limit::Request::Set { .. })
    )
}

/// What a store answers in which there is no hive at all.
pub(crate) fn nothing(request: &Request, answers: &Answers) -> Result<Reply, Stop> {
    let line = answers.line(0)?;
    let hive_ms = line.number(0)?;
    let head = Head { hive_ms, server: line.text(1)?.to_owned(), ..Head::default() };
    Ok(match request {
        Request::Beat { .. } => Reply::Beat(Box::new(Status { head, ..Status::default() })),
        Request::Leave { .. } => Reply::Done,
        Request::Bury { .. } => Reply::Buried(Vec::new()),
        Request::Mend => Reply::Mended(0),
        Request::Take { .. } | Request::HandOver { .. } => Reply::Refused(Refusal::Lineage),
        Request::Release { .. } => Reply::Released(Vec::new()),
        Request::SetHeir { fence, .. }
        | Request::Count { fence, .. }
        | Request::Missed { fence, .. }
        | Request::Sweep { fence, .. } => stale(fence),
        Request::Tally => {
            let counts = honeyflow_hive::contract::Counts::default();
            Reply::Counted { hive_ms, counts, published: false, buried: Vec::new() }
        }
        Request::View | Request::Events { .. } => Reply::View(Box::new(View { head, ..View::default() })),
        Request::History { .. } => Reply::History(Vec::new()),
        Request::Limit(request) => Reply::Limit(match request {
            limit::Request::Draw(draws) => {
                limit::Reply::Drawn { hive_ms, drawn: vec![Err(limit::Undefined); draws.len()] }
            }
            limit::Request::Exact { .. } => {
                limit::Reply::Denied(limit::Denied { at: 0, version: 0, why: limit::Denial::Undefined })
            }
            limit::Request::Refund(_) => limit::Reply::Done,
            limit::Request::Slots { .. } => limit::Reply::Unfit,
            limit::Request::Limits => limit::Reply::Limits { hive_ms, version: 0, limits: Vec::new() },
            limit::Request::Ledger { .. } => limit::Reply::Ledger(Vec::new()),
            limit::Request::Set { .. } => limit::Reply::Raced,
        }),
        Request::Join { .. }
        | Request::Look { .. }
        | Request::NewLineage { .. }
        | Request::Behind { .. }
        | Request::AcceptRestore { .. } => view::RACED,
    })
}

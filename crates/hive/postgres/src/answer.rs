//! Turns each request into one message, and the rows that come back into its reply. Nothing here does I/O.

use honeyflow_hive::{
    Reply, Request,
    contract::{Head, QUEEN, Refusal, Status, View, limit},
};
use honeyflow_runtime::Failure;

use crate::{
    hive::{Hive, NOW, SERVER},
    lease::{self, Transfer, stale},
    node,
    outcome::Stop,
    script::{Answers, Script},
    view,
};

/// How a request gets its reply.
pub(crate) enum Plan {
    /// Run this script on the server.
    Ask(Script),
    /// The reply is known without asking the server.
    Known(Reply),
}

/// What the rows of a script mean for the request.
pub(crate) enum ReadOutcome {
    Reply(Reply),
    /// Events are missing: read the whole view instead.
    Gap,
    /// The tables have an older version: migrate them first.
    Outdated,
    /// Nothing was done: the server or its tables cannot hold a hive.
    Unfit(Failure),
}

impl Hive {
    pub fn ask(&self, request: &Request) -> Result<Plan, Failure> {
        let script = match request {
            Request::Join { node, name, heartbeat_ms, ttl_ms, meta } => {
                self.join(*node, name, (*heartbeat_ms, *ttl_ms), meta)?
            }
            Request::Beat { node, read_only: true, .. } => self.read_only_beat(*node),
            Request::Beat { node, state, .. } => self.beat(*node, state),
            Request::Leave { node } => self.leave(*node),
            Request::Remove { nodes } => self.remove_expired(nodes),
            Request::Mend => self.mend(),
            Request::Look { leases } => self.look(leases),
            Request::Take { node, claims, cause, mint } => {
                let taken = self.mint(Transfer::Take { node: *node }, claims, cause, mint);
                return Ok(taken.map_or(Plan::Known(view::RACED), Plan::Ask));
            }
            Request::HandOver { node, successor: heir, claims, cause, mint } => {
                let over = self.mint(Transfer::Over { node: *node, heir: *heir }, claims, cause, mint);
                return Ok(over.map_or(Plan::Known(view::RACED), Plan::Ask));
            }
            Request::Release { node, held, cause } => {
                let released = self.release(*node, held, cause);
                return Ok(released.map_or_else(|| Plan::Known(Reply::Released(Vec::new())), Plan::Ask));
            }
            Request::SetSuccessor { fence, successor: heir } => self.set_successor(fence, *heir),
            // Only the queen counts and sweeps.
            Request::Count { fence, .. } | Request::Sweep { fence, .. } if &**fence.lease() != QUEEN => {
                return Ok(Plan::Known(stale(fence)));
            }
            Request::Count { fence, every_ms, remove: bury } => self.count(fence, *every_ms, bury),
            Request::Sweep { fence, event_ms, events_max, idle_ms, rows_max } => {
                self.sweep(fence, (*event_ms, *events_max), *idle_ms, *rows_max)
            }
            Request::Tally => self.count_nodes(),
            Request::Missed { fence, cause } => self.record_missed(fence, cause),
            Request::View => self.whole_view(),
            Request::Events { after, max } => self.events(*after, *max),
            Request::History { lease, until_ms, max } => self.history(lease.as_deref(), *until_ms, *max),
            Request::NewLineage { was, found } => self.new_lineage(was.as_deref(), found),
            Request::Behind { lineage, version, leases } => self.report_behind(lineage, *version, leases),
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
        Ok(Plan::Ask(script))
    }

    /// Asks for time and server, where no tables exist.
    pub fn ask_time_and_server(&self) -> Script {
        Script::read().ask(format_args!("select {NOW}, {SERVER}"))
    }
}

pub(crate) fn read(request: &Request, answers: &Answers) -> Result<ReadOutcome, Stop> {
    let reply = match request {
        Request::Join { .. } => return Ok(node::read_join(answers)?),
        Request::Beat { read_only, .. } => node::read_beat(answers, *read_only)?,
        Request::Leave { .. } => Reply::Done,
        Request::Remove { .. } => Reply::Removed(node::read_removed(answers, 0)?),
        Request::Mend => node::read_mended(answers)?,
        Request::Look { .. } => lease::read_leases(answers)?,
        Request::Take { .. } | Request::HandOver { .. } => lease::read_minted(answers)?,
        Request::Release { .. } => lease::read_released(answers)?,
        Request::SetSuccessor { fence, .. } => lease::read_set_successor(answers, fence)?,
        Request::Count { fence, .. } => view::read_count(answers, fence)?,
        Request::Tally => node::read_counts(answers)?,
        Request::Missed { fence, .. } => view::done_or(answers, stale(fence)),
        Request::Sweep { fence, .. } => view::read_swept(answers, fence)?,
        Request::View => view::read_view(answers)?,
        Request::Events { after, max } => match view::read_events(answers, *after, *max)? {
            Some(events) => events,
            None => return Ok(ReadOutcome::Gap),
        },
        Request::History { .. } => view::read_history(answers)?,
        Request::NewLineage { .. } | Request::Behind { .. } | Request::AcceptRestore { .. } => {
            view::done_or(answers, view::RACED)
        }
        Request::Limit(limit::Request::Draw(draws)) => Reply::Limit(crate::limit::read_draws(answers, draws)?),
        Request::Limit(limit::Request::Exact { takes, peek }) => {
            Reply::Limit(crate::limit::read_admission(answers, takes, *peek)?)
        }
        Request::Limit(limit::Request::Refund(_)) => Reply::Limit(limit::Reply::Done),
        Request::Limit(limit::Request::Slots { asks, .. }) => Reply::Limit(crate::limit::read_slots(answers, asks)?),
        Request::Limit(limit::Request::Set { .. }) => Reply::Limit(crate::limit::set(answers)?),
        Request::Limit(limit::Request::Limits) => Reply::Limit(crate::limit::limits(answers)?),
        Request::Limit(limit::Request::Ledger { .. }) => Reply::Limit(crate::limit::ledger(answers)?),
    };
    Ok(ReadOutcome::Reply(reply))
}

/// Whether the request creates the tables if they are missing.
pub(crate) fn creates_tables(request: &Request) -> bool {
    matches!(
        request,
        Request::Join { .. }
            | Request::Look { .. }
            | Request::NewLineage { .. }
            | Request::Limit(limit::Request::Set { .. })
    )
}

/// The reply of a database that has no hive tables.
pub(crate) fn reply_without_tables(request: &Request, answers: &Answers) -> Result<Reply, Stop> {
    let line = answers.line(0)?;
    let hive_ms = line.number(0)?;
    let head = Head { hive_ms, server: line.text(1)?.to_owned(), ..Head::default() };
    Ok(match request {
        Request::Beat { .. } => Reply::Beat(Box::new(Status { head, ..Status::default() })),
        Request::Leave { .. } => Reply::Done,
        Request::Remove { .. } => Reply::Removed(Vec::new()),
        Request::Mend => Reply::Mended(0),
        Request::Take { .. } | Request::HandOver { .. } => Reply::Refused(Refusal::Lineage),
        Request::Release { .. } => Reply::Released(Vec::new()),
        Request::SetSuccessor { fence, .. }
        | Request::Count { fence, .. }
        | Request::Missed { fence, .. }
        | Request::Sweep { fence, .. } => stale(fence),
        Request::Tally => {
            let counts = honeyflow_hive::contract::Counts::default();
            Reply::Counted { hive_ms, counts, published: false, removed: Vec::new() }
        }
        Request::View | Request::Events { .. } => Reply::View(Box::new(View { head, ..View::default() })),
        Request::History { .. } => Reply::History(Vec::new()),
        Request::Limit(request) => Reply::Limit(match request {
            limit::Request::Draw(draws) => {
                limit::Reply::Drawn { hive_ms, drawn: vec![Err(limit::UndefinedLimit); draws.len()] }
            }
            limit::Request::Exact { .. } => {
                limit::Reply::Denied(limit::DeniedTake { at: 0, version: 0, why: limit::Denial::Undefined })
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

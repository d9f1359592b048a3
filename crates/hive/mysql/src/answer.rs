//! A request from its coming to its answer: a connection, what has to be made first, what may be tried again.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use honeyflow_hive::{
    Reply, Request,
    contract::{Status, View, limit},
    horizon::Horizon,
};
use honeyflow_runtime::Failure;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    Options,
    collision::Tries,
    driver::{ConnectOptions, MySqlConnectOptions},
    lane::{Lane, Lanes},
    outcome::{self, Answer, Stop},
    request, schema, server,
    session::Session,
};

/// A server that is slow is given its time; but one that could not be heard a moment ago may answer a new knock at once, and
/// the old one much later.
const KNOCKS_EVERY: Duration = Duration::from_secs(1);
/// Connections that are being made for one request.
const ATTEMPTS_MAX: usize = 3;

pub(crate) struct Hive {
    address: MySqlConnectOptions,
    hive: String,
    timeout: Duration,
    one_writer: bool,
    lanes: Lanes,
    horizon: Mutex<Horizon>,
}

impl Hive {
    pub fn new(options: &Options) -> Result<Hive, Failure> {
        let (address, hive) = (options.address()?, options.hive.to_string());
        Ok(Hive {
            address,
            hive,
            timeout: options.timeout,
            one_writer: options.one_writer,
            lanes: Lanes::default(),
            horizon: Mutex::default(),
        })
    }

    /// If nobody waits for it any more, or for too long, the connection goes with it.
    pub async fn answer(self: &Arc<Hive>, request: Request) -> Result<Reply, Failure> {
        request::check(&request)?;
        let doing = request.doing();
        match tokio::time::timeout(self.timeout, self.ask(&request)).await {
            Ok(answer) => answer.map_err(|stop| stop.failure(doing)),
            Err(_) => Err(outcome::silent(self.timeout, doing)),
        }
    }

    async fn ask(self: &Arc<Hive>, request: &Request) -> Answer<Reply> {
        let lane = self.lanes.of(request);
        let mut turn = lane.turn().await?;
        let mut tries = Tries::default();
        let (mut made, mut renewed) = (false, false);
        loop {
            let used = lane.take();
            let is_used = used.is_some();
            let mut session = match used {
                Some(session) => session,
                None => {
                    let (session, own) = self.connected(lane, turn).await?;
                    turn = own;
                    session
                }
            };
            // Whoever joins brings the tables up to date; who only asks makes nothing.
            if session.outdated && matches!(request, Request::Join { .. }) {
                schema::migrate(&mut session).await?;
            }
            let stop = match self.attempt(&mut session, request).await {
                Ok(reply) => {
                    give_back(lane, session).await;
                    return Ok(reply);
                }
                Err(stop) => stop,
            };
            match &stop {
                // Nothing may be asked of it again, not even to be told the same.
                Stop::ReadOnly => return Err(stop),
                Stop::Sql(error) if outcome::is_read_only(error) => return Err(stop),
                Stop::Sql(error) if !outcome::is_answer(error) => {
                    // Closed while it was idle. What cannot have been done is asked on a new one, once.
                    if !is_used || renewed || session.may_have_committed() {
                        return Err(stop);
                    }
                    renewed = true;
                    continue;
                }
                _ => {}
            }
            let again = match &stop {
                Stop::NoView => {
                    session.end().await?;
                    session.make_view().await?;
                    tries.wait().await
                }
                Stop::Sql(error) if outcome::is_unmade(error) && !made => {
                    session.end().await?;
                    if let Some(reply) = unmade(&mut session, request).await? {
                        give_back(lane, session).await;
                        return Ok(reply);
                    }
                    schema::migrate(&mut session).await?;
                    made = true;
                    true
                }
                Stop::Sql(error) if session.may_have_committed() || !outcome::is_collision(error) => false,
                Stop::Sql(error) if outcome::is_lock_timeout(error) => tries.wait_for_lock(),
                Stop::Sql(_) => tries.wait().await,
                _ => false,
            };
            give_back(lane, session).await;
            if !again {
                return Err(stop);
            }
        }
    }

    /// Not given up with the request: the next one needs it too. Its turn is taken for as long.
    async fn connected(
        self: &Arc<Hive>,
        lane: &Arc<Lane>,
        turn: OwnedSemaphorePermit,
    ) -> Answer<(Session, OwnedSemaphorePermit)> {
        let (hive, lane) = (Arc::clone(self), Arc::clone(lane));
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            let made = match tokio::time::timeout(hive.timeout, hive.attempts()).await {
                Ok(made) => made.map(|session| (session, turn)),
                Err(_) => Err(outcome::silent(hive.timeout, "reach the hive's database").into()),
            };
            if let Err(Ok((session, _turn))) = tell.send(made) {
                lane.give_back(session);
            }
        });
        told.await.map_err(|_| Failure::retry("hive-stopped", "the hive is being closed"))?
    }

    async fn attempts(&self) -> Answer<Session> {
        let mut attempts = FuturesUnordered::new();
        loop {
            attempts.push(self.connect());
            tokio::select! {
                Some(made) = attempts.next() => return made,
                () = tokio::time::sleep(KNOCKS_EVERY), if attempts.len() < ATTEMPTS_MAX => {}
            }
        }
    }

    async fn connect(&self) -> Answer<Session> {
        let connection = self.address.connect().await?;
        let mut session = Session::new(connection, &self.hive);
        let server = server::look(&mut session).await?;
        server.judge(self.one_writer)?;
        session.set_flavour(server.flavour);
        schema::check(&mut session).await?;
        Ok(session)
    }

    fn horizon(&self) -> MutexGuard<'_, Horizon> {
        self.horizon.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn attempt(&self, session: &mut Session, request: &Request) -> Answer<Reply> {
        match request {
            Request::Join { node, name, heartbeat_ms, ttl_ms, meta } => {
                session.join(*node, name, (*heartbeat_ms, *ttl_ms), meta).await
            }
            Request::Beat { node, read_only, state } => {
                let others_ms = self.horizon().begins_ms(*node);
                let reply = session.beat(*node, *read_only, state, others_ms).await?;
                if let Reply::Beat(status) = &reply {
                    self.horizon().told(*node, status, Instant::now());
                }
                Ok(reply)
            }
            Request::Leave { node } => session.leave(*node).await,
            Request::Bury { nodes } => session.bury(nodes).await,
            Request::Mend => session.mend().await,
            Request::Look { leases } => session.look(leases).await,
            Request::Take { node, claims, cause, mint } => session.take(*node, claims, cause, mint).await,
            Request::HandOver { node, heir, claims, cause, mint } => {
                session.hand_over((*node, *heir), claims, cause, mint).await
            }
            Request::Release { node, held, cause } => session.release(*node, held, cause).await,
            Request::SetHeir { fence, heir } => session.set_heir(fence, *heir).await,
            Request::Count { fence, every_ms, bury } => session.count(fence, *every_ms, bury).await,
            Request::Tally => session.tally().await,
            Request::Missed { fence, cause } => session.missed(fence, cause).await,
            Request::Sweep { fence, event_ms, events_max, idle_ms, rows_max } => {
                session.sweep(fence, (*event_ms, *events_max), *idle_ms, *rows_max).await
            }
            Request::View => session.whole().await,
            Request::Events { after, max } => session.events(*after, *max).await,
            Request::History { lease, until_ms, max } => session.history(lease.as_deref(), *until_ms, *max).await,
            Request::NewLineage { was, found } => session.new_lineage(was.as_deref(), found).await,
            Request::Behind { lineage, version, leases } => session.behind(lineage, *version, leases).await,
            Request::AcceptRestore { cause } => session.accept_restore(cause).await,
            Request::Limit(request) => self.attempt_limit(session, request).await.map(Reply::Limit),
        }
    }

    async fn attempt_limit(&self, session: &mut Session, request: &limit::Request) -> Answer<limit::Reply> {
        use limit::Request;
        match request {
            Request::Draw(draws) => session.draw(draws).await,
            Request::Exact { takes, peek } => session.exact(takes, *peek).await,
            Request::Refund(takes) => session.refund(takes).await,
            Request::Slots { node, asks } => session.slots(*node, asks).await,
            Request::Set { limit, was, rule, after_ms } => session.set_limit(limit, *was, *rule, *after_ms).await,
            Request::Limits => session.limits().await,
            Request::Ledger { limit, max } => session.ledger(limit, *max).await,
        }
    }
}

/// With whatever was begun on it undone; one on which that fails is closed.
async fn give_back(lane: &Lane, mut session: Session) {
    if session.end().await.is_ok() {
        lane.give_back(session);
    }
}

/// What only reads makes nothing: its answer where there are no tables.
async fn unmade(session: &mut Session, request: &Request) -> Answer<Option<Reply>> {
    let head = session.nothing().await?;
    let hive_ms = head.hive_ms;
    Ok(Some(match request {
        Request::View | Request::Events { .. } => Reply::View(Box::new(View { head, ..View::default() })),
        Request::Beat { read_only: true, .. } => Reply::Beat(Box::new(Status { head, ..Status::default() })),
        Request::History { .. } => Reply::History(Vec::new()),
        Request::Tally => Reply::Counted { hive_ms, counts: head.counts, published: false, buried: Vec::new() },
        Request::Limit(limit::Request::Limits) => {
            Reply::Limit(limit::Reply::Limits { hive_ms, version: 0, limits: Vec::new() })
        }
        Request::Limit(limit::Request::Ledger { .. }) => Reply::Limit(limit::Reply::Ledger(Vec::new())),
        _ => return Ok(None),
    }))
}

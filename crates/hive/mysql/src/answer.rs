//! Answers a request: gets a connection, creates what is missing, and retries what is safe to retry.

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
    Options, codes,
    collision::Retries,
    driver::{ConnectOptions, MySqlConnectOptions},
    lane::{Lane, Lanes},
    outcome::{self, Answer, Stop},
    request, schema, server,
    session::Session,
};

/// How long to wait for a connection before starting a further attempt. A slow server gets its time; but a server that
/// was unreachable a moment ago may answer a new attempt at once and the old one much later.
const KNOCKS_EVERY: Duration = Duration::from_secs(1);
/// The largest number of concurrent connection attempts for one request.
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

    /// Answers one request within the timeout. If the caller gives up or the time is over, the connection is dropped.
    pub async fn answer(self: &Arc<Hive>, request: Request) -> Result<Reply, Failure> {
        request::check(&request)?;
        let doing = request.doing();
        match tokio::time::timeout(self.timeout, self.ask(&request)).await {
            Ok(answer) => answer.map_err(|stop| stop.failure(doing)),
            Err(_) => Err(outcome::no_answer(self.timeout, doing)),
        }
    }

    async fn ask(self: &Arc<Hive>, request: &Request) -> Answer<Reply> {
        let lane = self.lanes.lane_for(request);
        let mut turn = lane.turn().await?;
        let mut tries = Retries::default();
        let (mut made, mut renewed) = (false, false);
        loop {
            let used = lane.take();
            let is_used = used.is_some();
            let mut session = match used {
                Some(session) => session,
                None => {
                    let (session, own) = self.open_session(lane, turn).await?;
                    turn = own;
                    session
                }
            };
            // A join migrates the tables; other requests do not change the schema.
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
                // The connection leads to a read-only server: drop it, so that the next request opens a new one.
                Stop::ReadOnly => return Err(stop),
                Stop::Sql(error) if outcome::is_read_only(error) => return Err(stop),
                Stop::Sql(error) if !outcome::is_answer(error) => {
                    // The connection was closed while it was idle. A request that cannot have been committed is
                    // repeated once on a new connection.
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
                    session.roll_back().await?;
                    session.make_view().await?;
                    tries.wait().await
                }
                Stop::Sql(error) if outcome::is_schema_missing(error) && !made => {
                    session.roll_back().await?;
                    if let Some(reply) = reply_without_tables(&mut session, request).await? {
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

    /// Opens a connection in a separate task. The task continues if the caller gives up, because the next request needs
    /// the connection too, and holds the permit `turn` until then.
    async fn open_session(
        self: &Arc<Hive>,
        lane: &Arc<Lane>,
        turn: OwnedSemaphorePermit,
    ) -> Answer<(Session, OwnedSemaphorePermit)> {
        let (hive, lane) = (Arc::clone(self), Arc::clone(lane));
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            let made = match tokio::time::timeout(hive.timeout, hive.connect_hedged()).await {
                Ok(made) => made.map(|session| (session, turn)),
                Err(_) => Err(outcome::no_answer(hive.timeout, "reach the hive's database").into()),
            };
            if let Err(Ok((session, _turn))) = tell.send(made) {
                lane.give_back(session);
            }
        });
        told.await.map_err(|_| Failure::retry(codes::HIVE_STOPPED, "the hive is being closed"))?
    }

    async fn connect_hedged(&self) -> Answer<Session> {
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
        let server = server::read_server(&mut session).await?;
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
                let others_ms = self.horizon().scan_from_ms(*node);
                let reply = session.beat(*node, *read_only, state, others_ms).await?;
                if let Reply::Beat(status) = &reply {
                    self.horizon().on_heartbeat_reply(*node, status, Instant::now());
                }
                Ok(reply)
            }
            Request::Leave { node } => session.leave(*node).await,
            Request::Remove { nodes } => session.remove_expired(nodes).await,
            Request::Mend => session.mend().await,
            Request::Look { leases } => session.read_leases(leases).await,
            Request::Take { node, claims, cause, mint } => session.take(*node, claims, cause, mint).await,
            Request::HandOver { node, successor: heir, claims, cause, mint } => {
                session.hand_over((*node, *heir), claims, cause, mint).await
            }
            Request::Release { node, held, cause } => session.release(*node, held, cause).await,
            Request::SetSuccessor { fence, successor: heir } => session.set_successor(fence, *heir).await,
            Request::Count { fence, every_ms, remove: bury } => session.count(fence, *every_ms, bury).await,
            Request::Tally => session.tally().await,
            Request::Missed { fence, cause } => session.record_missed(fence, cause).await,
            Request::Sweep { fence, event_ms, events_max, idle_ms, rows_max } => {
                session.sweep(fence, (*event_ms, *events_max), *idle_ms, *rows_max).await
            }
            Request::View => session.read_view().await,
            Request::Events { after, max } => session.events(*after, *max).await,
            Request::History { lease, until_ms, max } => session.history(lease.as_deref(), *until_ms, *max).await,
            Request::NewLineage { was, found } => session.new_lineage(was.as_deref(), found).await,
            Request::Behind { lineage, version, leases } => session.report_behind(lineage, *version, leases).await,
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

/// Rolls back the open transaction and returns the connection to the lane. If that fails, the connection is closed.
async fn give_back(lane: &Lane, mut session: Session) {
    if session.roll_back().await.is_ok() {
        lane.give_back(session);
    }
}

/// The reply to a request that only reads, where no tables exist. `None` for requests that have to create them.
async fn reply_without_tables(session: &mut Session, request: &Request) -> Answer<Option<Reply>> {
    let head = session.empty_head().await?;
    let hive_ms = head.hive_ms;
    Ok(Some(match request {
        Request::View | Request::Events { .. } => Reply::View(Box::new(View { head, ..View::default() })),
        Request::Beat { read_only: true, .. } => Reply::Beat(Box::new(Status { head, ..Status::default() })),
        Request::History { .. } => Reply::History(Vec::new()),
        Request::Tally => Reply::Counted { hive_ms, counts: head.counts, published: false, removed: Vec::new() },
        Request::Limit(limit::Request::Limits) => {
            Reply::Limit(limit::Reply::Limits { hive_ms, version: 0, limits: Vec::new() })
        }
        Request::Limit(limit::Request::Ledger { .. }) => Reply::Limit(limit::Reply::Ledger(Vec::new())),
        _ => return Ok(None),
    }))
}

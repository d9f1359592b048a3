//! Runs one request through the pool: checkout, use, and, where that is safe, a retry on another server or a hedge
//! beside a slow try.

use std::{
    future::Future,
    panic::Location,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use honeyflow_runtime::Moment;
use tokio::time::{Instant, timeout_at};

use crate::{
    connect::{Connection, Connector, Fault, RetryPolicy, Verdict},
    core::{Core, Judgement, OvertakenRequest, TriedServers},
    error::{Error, Execution, Kind, Report},
    loan::{Get, Loan},
    outage::Outage,
    request_options::RequestOptions,
    server::Server,
    settings::SpeculateAfter,
    shared::{Entry, Shared},
};

/// How long a request waits at least before it asks again for a hedge that was not allowed.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// One request, from its first try to its last.
pub struct RequestRun<'a, C: Connector> {
    shared: &'a Arc<Shared<C>>,
    want: RequestOptions,
    site: &'static Location<'static>,
    due: Moment,
    by: Instant,
    tried: TriedServers,
    tries: Vec<(Server, C::Error)>,
    silent: Vec<Server>,
    tries_max: u32,
    once_more: bool,
    /// An earlier try may have been executed, however the last one ends.
    unsure: bool,
}

/// The result of one try.
enum TryOutcome<T, E> {
    Good(T),
    Failed { server: Server, error: E, verdict: Verdict, lost: bool, waited: Duration, used: Duration },
    TimedOut { server: Server, waited: Duration, used: Duration },
}

/// Whether a hedge may start beside a slow try.
enum HedgeStart<T, C: Connector> {
    Lent(Loan<C>),
    /// The slow try has ended by itself.
    Needless(TryOutcome<T, C::Error>),
    None,
}

impl<'a, C: Connector> RequestRun<'a, C> {
    pub fn new(
        shared: &'a Arc<Shared<C>>,
        want: RequestOptions,
        site: &'static Location<'static>,
    ) -> RequestRun<'a, C> {
        let (within, tries_max) = {
            let settings = shared.settings.load();
            (want.time_or(settings.deadline), settings.tries)
        };
        let due = shared.now().after(within);
        let by = Instant::now() + within;
        RequestRun {
            shared,
            want,
            site,
            due,
            by,
            tried: TriedServers::new(),
            tries: Vec::new(),
            silent: Vec::new(),
            tries_max,
            once_more: false,
            unsure: false,
        }
    }

    pub async fn run<T, F, Fut>(mut self, f: F) -> Result<T, Error<C>>
    where
        F: Fn(Loan<C>) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, C::Error>> + Send,
    {
        loop {
            let loan = match self.get().await {
                Ok(loan) => loan,
                Err(error) => return Err(self.out_of_servers(error)),
            };
            self.tried.push(loan.key());
            match self.one_try(loan, &f).await {
                TryOutcome::Good(value) => return Ok(value),
                TryOutcome::TimedOut { server, waited, used } => return Err(self.timed_out(server, waited, used)),
                TryOutcome::Failed { server, error, verdict, lost, waited, used } => {
                    if !self.takes_retry(verdict, lost) {
                        return Err(self.failed(server, error, verdict, waited, used));
                    }
                    self.remember(server, error, verdict);
                }
            }
        }
    }

    fn get(&self) -> Get<'a, C> {
        Get::new(self.shared, self.want.clone(), self.site).again(self.tried.clone(), self.due)
    }

    /// Makes one try, and hedges it if it is slow and that is allowed. The first good answer wins. If one of the two
    /// fails and the request may go to another server, the remaining one goes on and may be hedged again.
    async fn one_try<T, F, Fut>(&mut self, mut loan: Loan<C>, f: &F) -> TryOutcome<T, C::Error>
    where
        F: Fn(Loan<C>) -> Fut,
        Fut: Future<Output = Result<T, C::Error>>,
    {
        let (shared, until) = (self.shared, (self.due, self.by));
        let Some(after) = self.hedge_after(&loan) else { return use_loan(shared, loan, until, f).await };
        let half_time = Instant::now() + self.by.saturating_duration_since(Instant::now()) / 2;
        let mut runs = self.overtaken_request(&mut loan);
        let mut first = pin!(use_loan(shared, loan, until, f));
        // The first try is not boxed, since most tries are never hedged.
        let (mut other, mut may_race) = (None, true);
        loop {
            let mut one = other.as_mut().map_or(first.as_mut(), Pin::as_mut);
            if !may_race {
                return one.await;
            }
            let mut beside = match self.wait_for_hedge(one.as_mut(), after, half_time).await {
                HedgeStart::Needless(ended) => return ended,
                HedgeStart::None => return one.await,
                HedgeStart::Lent(loan) => loan,
            };
            self.tried.push(beside.key());
            let second_runs = self.overtaken_request(&mut beside);
            let mut second = Box::pin(use_loan(shared, beside, until, f));
            let (ended, second_ended) = tokio::select! {
                ended = &mut one => (ended, false),
                ended = &mut second => (ended, true),
            };
            match ended {
                TryOutcome::Good(value) => {
                    let now = shared.now();
                    shared.enter(|core, effects| {
                        core.counters_mut().speculations_won += u64::from(second_ended);
                        core.overtaken(if second_ended { runs } else { second_runs }, now, effects);
                    });
                    return TryOutcome::Good(value);
                }
                TryOutcome::Failed { server, error, verdict, .. } => {
                    may_race = self.may_go_elsewhere(verdict);
                    self.remember(server, error, verdict);
                }
                TryOutcome::TimedOut { server, .. } => {
                    self.unsure = true;
                    self.silent.push(server);
                }
            }
            if !second_ended {
                (other, runs) = (Some(second), second_runs);
            }
        }
    }

    /// Waits until the try has taken too long and a hedge is allowed. Returns the loan for the hedge.
    async fn wait_for_hedge<T>(
        &self,
        mut one: Pin<&mut impl Future<Output = TryOutcome<T, C::Error>>>,
        after: Duration,
        half_time: Instant,
    ) -> HedgeStart<T, C> {
        let may_try_again = self.has_tries_left();
        let mut pause = after;
        loop {
            if let Ok(ended) = timeout_at(self.by.min(Instant::now() + pause), &mut one).await {
                return HedgeStart::Needless(ended);
            }
            let (tried, now) = (self.tried.clone(), Instant::now());
            if now >= self.by {
                return HedgeStart::None;
            }
            let late = may_try_again && now >= half_time;
            if self.shared.enter(|core, _| core.may_speculate(&tried, late)).unwrap_or(false) {
                break;
            }
            // More requests may be stuck than the budget allows hedges now.
            pause = after.max(ASK_AGAIN_AFTER);
            if now < half_time {
                pause = pause.min(half_time - now);
            }
        }
        tokio::select! {
            biased;
            ended = &mut one => HedgeStart::Needless(ended),
            beside = self.get() => beside.map_or(HedgeStart::None, HedgeStart::Lent),
        }
    }

    /// Keeps the error of a try that was not the last.
    fn remember(&mut self, server: Server, error: C::Error, verdict: Verdict) {
        self.unsure |= verdict.executed != Execution::No;
        self.tries.push((server, error));
    }

    /// What the core needs if this try loses against its hedge. An exclusive connection is closed then, and its answer
    /// is never seen.
    fn overtaken_request(&self, loan: &mut Loan<C>) -> OvertakenRequest {
        let flights = (!loan.entry().exclusive).then(|| loan.flights());
        OvertakenRequest { server: loan.key(), begun: loan.begun(), due: self.due, flights }
    }

    fn hedge_after(&self, loan: &Loan<C>) -> Option<Duration> {
        if !self.want.idempotent || self.want.on.is_some() {
            return None;
        }
        match self.shared.settings.load().speculate_after {
            SpeculateAfter::Off => None,
            SpeculateAfter::Time(after) => Some(after),
            SpeculateAfter::P99 => self.shared.enter(|core, _| core.p99(loan.key())).flatten(),
        }
    }

    /// Whether to retry on another server. `lost`: the connection has ended with the request.
    fn takes_retry(&mut self, verdict: Verdict, lost: bool) -> bool {
        let harmless = verdict.executed == Execution::No || self.want.idempotent;
        if !harmless || !self.may_go_elsewhere(verdict) || self.want.on.is_some() || self.shared.now() >= self.due {
            return false;
        }
        let tried = self.tried.clone();
        let may = |core: &mut Core<_>| if lost { core.may_retry_lost(&tried) } else { core.may_retry(&tried) };
        self.shared.enter(|core, _| may(core)).unwrap_or(false)
    }

    fn may_go_elsewhere(&mut self, verdict: Verdict) -> bool {
        let allowed = match verdict.again {
            RetryPolicy::Never => false,
            RetryPolicy::Elsewhere => true,
            RetryPolicy::ElsewhereOnce => !std::mem::replace(&mut self.once_more, true),
        };
        allowed && self.has_tries_left()
    }

    fn has_tries_left(&self) -> bool {
        (self.tried.len() as u32) < self.tries_max
    }

    /// Adds the earlier tries to the error of a retry that got no connection.
    fn out_of_servers(self, error: Error<C>) -> Error<C> {
        let mut error = error;
        error.report_mut().tries = self.tries;
        error.report_mut().silent = self.silent;
        if self.unsure {
            error.report_mut().executed = Execution::Unknown;
        }
        error
    }

    fn report(&mut self, kind: Kind, server: Server, waited: Duration, used: Duration) -> Report<C::Error> {
        let (state, (idle, lent, waiters)) = self
            .shared
            .enter(|core, _| (core.state(), core.usage()))
            .unwrap_or((crate::core::State::Broken, (0, 0, 0)));
        Report {
            kind,
            fault: Fault::Server,
            server: Some(server),
            executed: Execution::Unknown,
            idempotent: self.want.idempotent,
            waited,
            used,
            tries: std::mem::take(&mut self.tries),
            silent: std::mem::take(&mut self.silent),
            state,
            waiters,
            idle,
            lent,
            retry_after: None,
            cause: None,
            outage: None,
            broken_by: None,
        }
    }

    fn timed_out(mut self, server: Server, waited: Duration, used: Duration) -> Error<C> {
        Error::new(self.report(Kind::UseTimeout, server, waited, used))
    }

    fn failed(
        mut self,
        server: Server,
        error: C::Error,
        verdict: Verdict,
        waited: Duration,
        used: Duration,
    ) -> Error<C> {
        let report = self.report(verdict.kind, server, waited, used);
        // This server did not execute the request, but an earlier one may have.
        let executed =
            if self.unsure && verdict.executed == Execution::No { report.executed } else { verdict.executed };
        Error::new(Report {
            fault: verdict.fault,
            executed,
            retry_after: verdict.retry_after,
            cause: Some(error),
            ..report
        })
    }
}

/// Runs the closure until it ends or its deadline, and reports the result for the server's health.
/// `due`, `by`: the same moment on the pool's clock and on tokio's timer.
async fn use_loan<C, T, F, Fut>(
    shared: &Arc<Shared<C>>,
    mut loan: Loan<C>,
    (due, by): (Moment, Instant),
    f: &F,
) -> TryOutcome<T, C::Error>
where
    C: Connector,
    F: Fn(Loan<C>) -> Fut,
    Fut: Future<Output = Result<T, C::Error>>,
{
    loan.leave_judgement_to_caller();
    let (server, key, begun, waited) = (loan.server().clone(), loan.key(), loan.begun(), loan.waited());
    let (entry, connection) = (loan.entry(), loan.connection());
    let result = {
        let mut using = pin!(f(loan));
        // Declared last, so it is dropped before the future that owns the loan.
        let mut guard = CutUnlessDone { entry: &entry, done: false };
        let result = timeout_at(by, &mut using).await;
        guard.done = result.is_ok();
        if result.is_err() {
            // Reported while the loan lasts; the expiry task may have reported it first.
            let (now, exclusive) = (shared.now(), entry.exclusive.then_some(begun));
            shared.enter(|core, effects| core.timed_out(connection, key, exclusive, now, effects));
        }
        result
    };
    let now = shared.now();
    let used = now.since(begun);
    if entry.exclusive && now >= due && matches!(result, Ok(Err(_))) {
        // The expiry task was first: it has counted the time-out and closed the connection during the request.
        return TryOutcome::TimedOut { server, waited, used };
    }
    let verdict = match &result {
        Ok(Err(error)) => Some(shared.connector.verdict(error)),
        _ => None,
    };
    let judgement = match (&result, verdict) {
        (Err(_), _) => return TryOutcome::TimedOut { server, waited, used },
        (Ok(_), None) => Judgement::Answered(used),
        (Ok(_), Some(verdict)) if verdict.health => Judgement::Fault,
        (Ok(_), Some(_)) => Judgement::Neutral,
    };
    // An error code of the server is an answer, too.
    let answered = verdict.is_none_or(|verdict| matches!(verdict.kind, Kind::Server(_)));
    shared.enter(|core, effects| {
        if answered {
            core.mark_answered(connection);
        }
        core.counters_mut().use_errors += u64::from(verdict.is_some());
        core.judge(key, judgement, now, effects);
    });
    match (result, verdict) {
        (Ok(Ok(value)), _) => TryOutcome::Good(value),
        (Ok(Err(error)), Some(verdict)) => {
            let lost = entry.connection.broken();
            TryOutcome::Failed { server, error, verdict, lost, waited, used }
        }
        _ => TryOutcome::TimedOut { server, waited, used },
    }
}

/// Marks an exclusive connection as cut off if its request did not end, since its protocol state is then unknown.
struct CutUnlessDone<'a, C: Connector> {
    entry: &'a Arc<Entry<C>>,
    done: bool,
}

impl<C: Connector> Drop for CutUnlessDone<'_, C> {
    fn drop(&mut self) {
        if !self.done && self.entry.exclusive {
            self.entry.cut();
        }
    }
}

/// Runs a request on a new connection outside of the pool, with one deadline for connecting and use. It always closes
/// the connection.
pub async fn once<C, T>(
    shared: &Arc<Shared<C>>,
    on: &Server,
    by: Instant,
    f: impl AsyncFnOnce(&C::Connection) -> Result<T, C::Error>,
) -> Result<T, Error<C>>
where
    C: Connector,
{
    let begun = shared.now();
    let state = shared.enter(|core, _| {
        core.counters_mut().one_offs += 1;
        (core.state(), core.broken_by())
    });
    let (state, broken_by) = state.unwrap_or((crate::core::State::Broken, None));
    let error = |kind, executed, verdict: Option<Verdict>, cause, outage| {
        Error::new(Report {
            kind,
            fault: verdict.map_or(Fault::Server, |verdict| verdict.fault),
            server: Some(on.clone()),
            executed,
            idempotent: false,
            waited: Duration::ZERO,
            used: shared.now().since(begun),
            tries: Vec::new(),
            silent: Vec::new(),
            state,
            waiters: 0,
            idle: 0,
            lent: 0,
            retry_after: verdict.and_then(|verdict| verdict.retry_after),
            cause,
            outage,
            broken_by: broken_by.clone(),
        })
    };
    if let Some(kind) = state.refuses().filter(|kind| *kind != Kind::Inactive) {
        return Err(error(kind, Execution::No, None, None, None));
    }
    let limits = shared.limits();
    let connect_by = by.min(Instant::now() + limits.tcp + limits.ready);
    let connection = match timeout_at(connect_by, shared.connector.connect(on, limits)).await {
        Err(_) => {
            let late = Outage::at(on, Kind::Connect, format!("was not ready within {:?}", shared.now().since(begun)));
            return Err(error(Kind::Connect, Execution::No, None, None, Some(late)));
        }
        Ok(Err(cause)) => {
            let verdict = shared.connector.verdict(&cause);
            let kind = if verdict.kind == Kind::Login { Kind::Login } else { Kind::Connect };
            return Err(error(kind, Execution::No, Some(verdict), Some(cause), None));
        }
        Ok(Ok(connection)) => connection,
    };
    let result = timeout_at(by, f(&connection)).await;
    let close_by = Instant::now() + Duration::from_secs(1);
    let _ = timeout_at(close_by, connection.close(close_by)).await;
    shared.count_wrong_answers(&connection);
    drop(connection);
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(cause)) => {
            let verdict = shared.connector.verdict(&cause);
            Err(error(verdict.kind, verdict.executed, Some(verdict), Some(cause), None))
        }
        Err(_) => Err(error(Kind::UseTimeout, Execution::Unknown, None, None, None)),
    }
}

//! A request through the pool: checkout, use, and, where that is safe, another try elsewhere or a second one beside it.

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
    connect::{Again, Connection, Connector, Fault, Verdict},
    core::{Core, Judgement, Overtaken, Tried},
    error::{Error, Executed, Kind, Report},
    loan::{Get, Loan},
    outage::Outage,
    server::Server,
    settings::SpeculateAfter,
    shared::{Entry, Shared},
    want::Want,
};

/// How soon at the earliest a second one that was not allowed is asked for once more.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// One request from its first try to its last.
pub struct Using<'a, C: Connector> {
    shared: &'a Arc<Shared<C>>,
    want: Want,
    site: &'static Location<'static>,
    due: Moment,
    by: Instant,
    tried: Tried,
    tries: Vec<(Server, C::Error)>,
    silent: Vec<Server>,
    tries_max: u32,
    once_more: bool,
    /// An earlier try may have been carried out, whatever became of the last.
    unsure: bool,
}

/// One try that came to an end.
enum Ended<T, E> {
    Good(T),
    Failed { server: Server, error: E, verdict: Verdict, lost: bool, waited: Duration, used: Duration },
    TimedOut { server: Server, waited: Duration, used: Duration },
}

/// Whether another one may run beside one that takes long.
enum Overtaker<T, C: Connector> {
    Lent(Loan<C>),
    /// It has ended by itself.
    Needless(Ended<T, C::Error>),
    None,
}

impl<'a, C: Connector> Using<'a, C> {
    pub fn new(shared: &'a Arc<Shared<C>>, want: Want, site: &'static Location<'static>) -> Using<'a, C> {
        let (within, tries_max) = {
            let settings = shared.settings.load();
            (want.time_or(settings.deadline), settings.tries)
        };
        let due = shared.now().after(within);
        let by = Instant::now() + within;
        Using {
            shared,
            want,
            site,
            due,
            by,
            tried: Tried::new(),
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
                Ended::Good(value) => return Ok(value),
                Ended::TimedOut { server, waited, used } => return Err(self.timed_out(server, waited, used)),
                Ended::Failed { server, error, verdict, lost, waited, used } => {
                    if !self.goes_on(verdict, lost) {
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

    /// The first try, and if it takes too long and that is allowed, a second one beside it. The first good answer counts; if
    /// one of them fails and the same may be tried elsewhere, the other goes on as if it had been alone.
    async fn one_try<T, F, Fut>(&mut self, mut loan: Loan<C>, f: &F) -> Ended<T, C::Error>
    where
        F: Fn(Loan<C>) -> Fut,
        Fut: Future<Output = Result<T, C::Error>>,
    {
        let (shared, until) = (self.shared, (self.due, self.by));
        let Some(after) = self.second_after(&loan) else { return use_loan(shared, loan, until, f).await };
        let half_time = Instant::now() + self.by.saturating_duration_since(Instant::now()) / 2;
        let mut runs = self.racing(&mut loan);
        let mut first = pin!(use_loan(shared, loan, until, f));
        // Of the first nothing is boxed: most are never raced.
        let (mut other, mut may_race) = (None, true);
        loop {
            let mut one = other.as_mut().map_or(first.as_mut(), Pin::as_mut);
            if !may_race {
                return one.await;
            }
            let mut beside = match self.overtaker(one.as_mut(), after, half_time).await {
                Overtaker::Needless(ended) => return ended,
                Overtaker::None => return one.await,
                Overtaker::Lent(loan) => loan,
            };
            self.tried.push(beside.key());
            let second_runs = self.racing(&mut beside);
            let mut second = Box::pin(use_loan(shared, beside, until, f));
            let (ended, second_ended) = tokio::select! {
                ended = &mut one => (ended, false),
                ended = &mut second => (ended, true),
            };
            match ended {
                Ended::Good(value) => {
                    let now = shared.now();
                    shared.enter(|core, effects| {
                        core.counters_mut().speculations_won += u64::from(second_ended);
                        core.overtaken(if second_ended { runs } else { second_runs }, now, effects);
                    });
                    return Ended::Good(value);
                }
                Ended::Failed { server, error, verdict, .. } => {
                    may_race = self.may_go_elsewhere(verdict);
                    self.remember(server, error, verdict);
                }
                Ended::TimedOut { server, .. } => {
                    self.unsure = true;
                    self.silent.push(server);
                }
            }
            if !second_ended {
                (other, runs) = (Some(second), second_runs);
            }
        }
    }

    /// A loan for another one beside this, once it has taken too long and there may be one.
    async fn overtaker<T>(
        &self,
        mut one: Pin<&mut impl Future<Output = Ended<T, C::Error>>>,
        after: Duration,
        half_time: Instant,
    ) -> Overtaker<T, C> {
        let may_try_again = self.has_tries_left();
        let mut pause = after;
        loop {
            if let Ok(ended) = timeout_at(self.by.min(Instant::now() + pause), &mut one).await {
                return Overtaker::Needless(ended);
            }
            let (tried, now) = (self.tried.clone(), Instant::now());
            if now >= self.by {
                return Overtaker::None;
            }
            let late = may_try_again && now >= half_time;
            if self.shared.enter(|core, _| core.may_speculate(&tried, late)).unwrap_or(false) {
                break;
            }
            // Many may be stuck at once, more than the budget has for them now.
            pause = after.max(ASK_AGAIN_AFTER);
            if now < half_time {
                pause = pause.min(half_time - now);
            }
        }
        tokio::select! {
            biased;
            ended = &mut one => Overtaker::Needless(ended),
            beside = self.get() => beside.map_or(Overtaker::None, Overtaker::Lent),
        }
    }

    /// A try that failed, and was not the last.
    fn remember(&mut self, server: Server, error: C::Error, verdict: Verdict) {
        self.unsure |= verdict.executed != Executed::No;
        self.tries.push((server, error));
    }

    /// As it is told of if it loses. An exclusive connection is closed then, and nothing more is heard of it.
    fn racing(&self, loan: &mut Loan<C>) -> Overtaken {
        let flights = (!loan.entry().exclusive).then(|| loan.flights());
        Overtaken { server: loan.key(), begun: loan.begun(), due: self.due, flights }
    }

    fn second_after(&self, loan: &Loan<C>) -> Option<Duration> {
        if !self.want.idempotent || self.want.on.is_some() {
            return None;
        }
        match self.shared.settings.load().speculate_after {
            SpeculateAfter::Off => None,
            SpeculateAfter::Time(after) => Some(after),
            SpeculateAfter::P99 => self.shared.enter(|core, _| core.p99(loan.key())).flatten(),
        }
    }

    /// Whether the same is tried elsewhere. `lost`: its connection has ended with it.
    fn goes_on(&mut self, verdict: Verdict, lost: bool) -> bool {
        let harmless = verdict.executed == Executed::No || self.want.idempotent;
        if !harmless || !self.may_go_elsewhere(verdict) || self.want.on.is_some() || self.shared.now() >= self.due {
            return false;
        }
        let tried = self.tried.clone();
        let may = |core: &mut Core<_>| if lost { core.may_retry_lost(&tried) } else { core.may_retry(&tried) };
        self.shared.enter(|core, _| may(core)).unwrap_or(false)
    }

    fn may_go_elsewhere(&mut self, verdict: Verdict) -> bool {
        let allowed = match verdict.again {
            Again::Never => false,
            Again::Elsewhere => true,
            Again::ElsewhereOnce => !std::mem::replace(&mut self.once_more, true),
        };
        allowed && self.has_tries_left()
    }

    fn has_tries_left(&self) -> bool {
        (self.tried.len() as u32) < self.tries_max
    }

    /// No connection for a further try: the earlier error says more, if there is one.
    fn out_of_servers(self, error: Error<C>) -> Error<C> {
        let mut error = error;
        error.report_mut().tries = self.tries;
        error.report_mut().silent = self.silent;
        if self.unsure {
            error.report_mut().executed = Executed::Unknown;
        }
        error
    }

    fn report(&mut self, kind: Kind, server: Server, waited: Duration, used: Duration) -> Report<C::Error> {
        let (state, (idle, lent, waiters)) = self
            .shared
            .enter(|core, _| (core.state(), core.crowd()))
            .unwrap_or((crate::core::State::Broken, (0, 0, 0)));
        Report {
            kind,
            fault: Fault::Server,
            server: Some(server),
            executed: Executed::Unknown,
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
        // What this server has not done, another may have.
        let executed = if self.unsure && verdict.executed == Executed::No { report.executed } else { verdict.executed };
        Error::new(Report {
            fault: verdict.fault,
            executed,
            retry_after: verdict.retry_after,
            cause: Some(error),
            ..report
        })
    }
}

/// Runs the closure until it ends or the deadline has come, and tells the pool what that says about the server.
/// `due`, `by`: the same moment on the pool's clock and on the timer's.
async fn use_loan<C, T, F, Fut>(
    shared: &Arc<Shared<C>>,
    mut loan: Loan<C>,
    (due, by): (Moment, Instant),
    f: &F,
) -> Ended<T, C::Error>
where
    C: Connector,
    F: Fn(Loan<C>) -> Fut,
    Fut: Future<Output = Result<T, C::Error>>,
{
    loan.judged_elsewhere();
    let (server, key, begun, waited) = (loan.server().clone(), loan.key(), loan.begun(), loan.waited());
    let (entry, connection) = (loan.entry(), loan.connection());
    let result = {
        let mut using = pin!(f(loan));
        // Declared last, so it speaks before the future, with the loan in it, is dropped.
        let mut guard = CutUnlessDone { entry: &entry, done: false };
        let result = timeout_at(by, &mut using).await;
        guard.done = result.is_ok();
        if result.is_err() {
            // While it is on loan: the clock may have come first.
            let (now, exclusive) = (shared.now(), entry.exclusive.then_some(begun));
            shared.enter(|core, effects| core.timed_out(connection, key, exclusive, now, effects));
        }
        result
    };
    let now = shared.now();
    let used = now.since(begun);
    if entry.exclusive && now >= due && matches!(result, Ok(Err(_))) {
        // The pool's clock was first: it has counted the time-out, and closed the connection under the request.
        return Ended::TimedOut { server, waited, used };
    }
    let verdict = match &result {
        Ok(Err(error)) => Some(shared.connector.verdict(error)),
        _ => None,
    };
    let judgement = match (&result, verdict) {
        (Err(_), _) => return Ended::TimedOut { server, waited, used },
        (Ok(_), None) => Judgement::Answered(used),
        (Ok(_), Some(verdict)) if verdict.health => Judgement::Fault,
        (Ok(_), Some(_)) => Judgement::Neutral,
    };
    // A refusal is an answer, too.
    let answered = verdict.is_none_or(|verdict| matches!(verdict.kind, Kind::Server(_)));
    shared.enter(|core, effects| {
        if answered {
            core.heard_on(connection);
        }
        core.counters_mut().use_errors += u64::from(verdict.is_some());
        core.judge(key, judgement, now, effects);
    });
    match (result, verdict) {
        (Ok(Ok(value)), _) => Ended::Good(value),
        (Ok(Err(error)), Some(verdict)) => {
            let lost = entry.connection.broken();
            Ended::Failed { server, error, verdict, lost, waited, used }
        }
        _ => Ended::TimedOut { server, waited, used },
    }
}

/// An exclusive connection whose use did not come to its end is in nobody knows what state.
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

/// A connection of its own, one deadline for connecting and use, closed in any case.
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
        return Err(error(kind, Executed::No, None, None, None));
    }
    let limits = shared.limits();
    let connect_by = by.min(Instant::now() + limits.tcp + limits.ready);
    let connection = match timeout_at(connect_by, shared.connector.connect(on, limits)).await {
        Err(_) => {
            let late = Outage::at(on, Kind::Connect, format!("was not ready within {:?}", shared.now().since(begun)));
            return Err(error(Kind::Connect, Executed::No, None, None, Some(late)));
        }
        Ok(Err(cause)) => {
            let verdict = shared.connector.verdict(&cause);
            let kind = if verdict.kind == Kind::Login { Kind::Login } else { Kind::Connect };
            return Err(error(kind, Executed::No, Some(verdict), Some(cause), None));
        }
        Ok(Ok(connection)) => connection,
    };
    let result = timeout_at(by, f(&connection)).await;
    let close_by = Instant::now() + Duration::from_secs(1);
    let _ = timeout_at(close_by, connection.close(close_by)).await;
    shared.let_go(&connection);
    drop(connection);
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(cause)) => {
            let verdict = shared.connector.verdict(&cause);
            Err(error(verdict.kind, verdict.executed, Some(verdict), Some(cause), None))
        }
        Err(_) => Err(error(Kind::UseTimeout, Executed::Unknown, None, None, None)),
    }
}

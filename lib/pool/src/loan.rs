//! Loans: the right to use a connection for a while. A loan comes back when it is dropped, however its use ends.

use std::{
    fmt,
    future::Future,
    ops::Deref,
    panic::Location,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use honeyflow_runtime::Moment;

use crate::{
    connect::{Connector, Fault},
    core::{Checkout, Ending, Flights, Judgement, Key, LentConnection, PickUp, Refusal, Request, State, TriedServers},
    error::{Error, Execution, Kind, Report},
    outage::Outage,
    request_options::RequestOptions,
    server::Server,
    shared::{Entry, Shared},
};

/// A connection on loan. It derefs to the connection and gives it back when dropped.
pub struct Loan<C: Connector> {
    entry: Arc<Entry<C>>,
    connection: Key,
    server: Key,
    begun: Moment,
    /// How long the caller waited, in microseconds.
    waited: u64,
    /// The key of this loan, for a shared connection, which has many loans.
    loan: Option<Key>,
    /// Shared with every [`InFlight`] of this loan; created with the first.
    flights: Option<Arc<Flights>>,
    ending: Ending,
}

impl<C: Connector> Loan<C> {
    fn new(lent: LentConnection<Arc<Entry<C>>>) -> Loan<C> {
        Loan {
            entry: lent.carried,
            connection: lent.connection,
            server: lent.server,
            begun: lent.begun,
            waited: lent.waited,
            loan: lent.loan,
            flights: None,
            ending: Ending::Answered,
        }
    }

    pub fn server(&self) -> &Server {
        &self.entry.server
    }

    /// How long the caller waited for the connection.
    pub fn waited(&self) -> Duration {
        Duration::from_micros(self.waited)
    }

    /// Reports that the request failed with this error. The connector's verdict decides whether it counts against the
    /// server. A loan that is given back without a report counts as a good answer.
    pub fn judge(&mut self, error: &C::Error) {
        if self.ending != Ending::Answered {
            return;
        }
        self.ending = Ending::Finished;
        let shared = &self.entry.shared;
        let judgement = if shared.connector.verdict(error).health { Judgement::Fault } else { Judgement::Neutral };
        let (server, now) = (self.server, shared.now());
        shared.enter(|core, effects| {
            core.counters_mut().use_errors += 1;
            core.judge(server, judgement, now, effects);
        });
    }

    /// Gives back a connection that is not usable any more: the pool closes and replaces it.
    pub fn discard(mut self) {
        self.ending = Ending::Discarded;
    }

    /// Registers a request in flight. The transport keeps the guard until the answer has come, and then calls
    /// [`InFlight::answered`]. If the loan is dropped first, the request becomes an orphan, and the pool does not lend
    /// the connection (or this stream of it) again until the answer has come.
    pub fn in_flight(&mut self) -> InFlight<C> {
        let flights = self.flights();
        flights.begin();
        InFlight { entry: self.entry.clone(), connection: self.connection, flights }
    }

    /// The counter of requests in flight, which this loan shares with the transport.
    pub(crate) fn flights(&mut self) -> Arc<Flights> {
        self.flights.get_or_insert_with(Arc::default).clone()
    }

    /// Takes an exclusive connection out of the pool for good; the pool replaces it. A shared connection cannot be
    /// taken out, since other requests use it.
    ///
    /// # Errors
    /// The loan itself, if the connection is shared.
    pub fn detach(mut self) -> Result<DetachedConnection<C>, Loan<C>> {
        if !self.entry.exclusive {
            return Err(self);
        }
        self.ending = Ending::Unused;
        let (entry, connection) = (self.entry.clone(), self.connection);
        entry.shared.enter(|core, effects| core.detach(connection, effects));
        Ok(DetachedConnection(entry))
    }

    pub(crate) fn key(&self) -> Key {
        self.server
    }

    pub(crate) fn connection(&self) -> Key {
        self.connection
    }

    pub(crate) fn begun(&self) -> Moment {
        self.begun
    }

    pub(crate) fn entry(&self) -> Arc<Entry<C>> {
        self.entry.clone()
    }

    /// Leaves it to the caller inside the pool to report what the request means for the server's health.
    pub(crate) fn leave_judgement_to_caller(&mut self) {
        self.ending = Ending::Finished;
    }

    fn ending_at(&self, now: Moment) -> Ending {
        let unanswered = self.flights.as_ref().is_some_and(|flights| flights.leave(now));
        let cut = self.entry.cut.load(Ordering::Acquire) && self.entry.cut.swap(false, Ordering::AcqRel);
        // On a shared connection only the transport knows what is still in flight.
        if unanswered || cut || std::thread::panicking() && self.entry.exclusive { Ending::CutOff } else { self.ending }
    }
}

impl<C: Connector> Deref for Loan<C> {
    type Target = C::Connection;

    fn deref(&self) -> &C::Connection {
        &self.entry.connection
    }
}

impl<C: Connector> Drop for Loan<C> {
    fn drop(&mut self) {
        let shared = &self.entry.shared;
        let now = shared.now();
        let used = now.micros_since(self.begun);
        // `ending_at` runs under the lock: an answer that finds the loan gone is then counted after this checkin, never
        // before.
        shared.enter(|core, effects| {
            core.checkin(self.connection, self.ending_at(now), used, now, effects);
            if let Some(loan) = self.loan {
                core.end_shared_loan(loan, now, effects);
            }
        });
    }
}

impl<C: Connector> fmt::Debug for Loan<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loan({})", self.entry.server)
    }
}

/// A request in flight on a connection. See [`Loan::in_flight`].
pub struct InFlight<C: Connector> {
    entry: Arc<Entry<C>>,
    connection: Key,
    flights: Arc<Flights>,
}

impl<C: Connector> InFlight<C> {
    /// Reports that the answer has come. Without this call the request counts as lost or never sent, and the pool
    /// learns nothing about the server from it.
    pub fn answered(&self) {
        self.flights.answered(|| self.entry.shared.now());
    }
}

impl<C: Connector> Drop for InFlight<C> {
    fn drop(&mut self) {
        let shared = &self.entry.shared;
        if let Some((gone_at, answered)) = self.flights.end() {
            let now = shared.now();
            shared.enter(|core, effects| core.end_orphan(self.connection, gone_at, answered, now, effects));
        }
    }
}

/// A connection that was taken out of its pool. Its owner closes it.
pub struct DetachedConnection<C: Connector>(Arc<Entry<C>>);

impl<C: Connector> Deref for DetachedConnection<C> {
    type Target = C::Connection;

    fn deref(&self) -> &C::Connection {
        &self.0.connection
    }
}

/// A future that waits for a connection. Dropping it leaves the queue and loses nothing else.
#[must_use = "a future does nothing until it is awaited"]
pub struct Get<'a, C: Connector> {
    shared: &'a Arc<Shared<C>>,
    want: RequestOptions,
    /// The servers that the request has tried; most requests have tried none.
    tried: Option<Box<TriedServers>>,
    /// The deadline, if this is a try of a request that began earlier.
    due: Option<Moment>,
    site: &'static Location<'static>,
    waiter: Option<Key>,
}

impl<'a, C: Connector> Get<'a, C> {
    pub(crate) fn new(
        shared: &'a Arc<Shared<C>>,
        want: RequestOptions,
        site: &'static Location<'static>,
    ) -> Get<'a, C> {
        Get { shared, want, tried: None, due: None, site, waiter: None }
    }

    /// Makes this a further try of a request that began earlier.
    pub(crate) fn again(mut self, tried: TriedServers, due: Moment) -> Get<'a, C> {
        (self.tried, self.due) = (Some(tried).filter(|tried| !tried.is_empty()).map(Box::new), Some(due));
        self
    }

    #[inline]
    fn begin(&self, now: Moment, cx: &Context<'_>, found: &mut Option<Checkout<Arc<Entry<C>>>>) {
        let (want, tried, due, site) = (&self.want, self.tried.as_deref(), self.due, self.site);
        self.shared.enter_to(found, |core, effects| {
            let target = match &want.on {
                None => None,
                Some(server) => match core.find_server(server) {
                    None => return Checkout::Refused(Refusal::of(Kind::UnknownServer)),
                    known => known,
                },
            };
            let near: Option<TriedServers> =
                want.near.as_ref().map(|ids| ids.iter().filter_map(|id| core.server_key(id)).collect());
            let request = Request {
                class: want.class,
                due: due.unwrap_or_else(|| want.due(now, core.rules().deadline)),
                target,
                near: near.as_deref().unwrap_or_default(),
                tried: tried.map_or(&[], |tried| tried.as_slice()),
                idempotent: want.idempotent,
                site: Some(site),
            };
            core.checkout(&request, now, cx.waker(), effects)
        });
    }
}

impl<C: Connector> Future for Get<'_, C> {
    type Output = Result<Loan<C>, Error<C>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let refusal = if let Some(waiter) = self.waiter {
            let mut found = None;
            self.shared
                .enter_to(&mut found, |core, effects| core.pick_up(waiter, || self.shared.now(), cx.waker(), effects));
            match found {
                Some(PickUp::Waiting) => return Poll::Pending,
                Some(PickUp::Lent(lent)) => {
                    self.waiter = None;
                    return Poll::Ready(Ok(Loan::new(lent)));
                }
                Some(PickUp::Refused(refusal)) => {
                    self.waiter = None;
                    refusal
                }
                None => Refusal::of(Kind::Broken),
            }
        } else {
            let mut found = None;
            self.begin(self.shared.now(), cx, &mut found);
            match found {
                Some(Checkout::Lent(lent)) => return Poll::Ready(Ok(Loan::new(lent))),
                Some(Checkout::Queued(waiter)) => {
                    self.waiter = Some(waiter);
                    return Poll::Pending;
                }
                Some(Checkout::Refused(refusal)) => refusal,
                None => Refusal::of(Kind::Broken),
            }
        };
        let tried = self.tried.as_deref().map_or(&[][..], |tried| tried.as_slice());
        Poll::Ready(Err(refused(self.shared, refusal, &self.want, tried)))
    }
}

impl<C: Connector> Drop for Get<'_, C> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            let now = self.shared.now();
            self.shared.enter(|core, effects| core.cancel(waiter, now, effects));
        }
    }
}

#[cold]
fn refused<C: Connector>(shared: &Arc<Shared<C>>, refusal: Refusal, want: &RequestOptions, tried: &[Key]) -> Error<C> {
    let seen = shared.enter(|core, _| {
        let target = want.on.as_ref().map(|server| core.find_server(server));
        let outage = match (core.state().refuses(), target) {
            (None, None) => core.outage(tried),
            (None, Some(Some(target))) => core.outage_of(target),
            _ => None,
        };
        (core.state(), core.usage(), outage, core.broken_by())
    });
    let (state, (idle, lent, waiters), outage, broken_by) = seen.unwrap_or((State::Broken, (0, 0, 0), None, None));
    let outage = outage.map(|outage| Outage {
        names: (**shared.name_error.load()).clone(),
        discovery: (**shared.discovery_error.load()).clone(),
        ..outage
    });
    Error::new(Report {
        kind: refusal.kind,
        fault: Fault::Server,
        server: want.on.as_deref().cloned(),
        executed: Execution::No,
        idempotent: want.idempotent,
        waited: refusal.waited,
        used: Duration::ZERO,
        tries: Vec::new(),
        silent: Vec::new(),
        state,
        waiters,
        idle,
        lent,
        retry_after: refusal.estimate,
        cause: None,
        outage,
        broken_by: broken_by.filter(|_| refusal.kind == Kind::Broken),
    })
}

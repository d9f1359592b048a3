//! A cluster in memory: servers that can be stopped, slowed and made silent, and that count what reaches them. There
//! are no sockets, so it depends only on tokio's clock, which may be paused.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use super::Rig;
use crate::{
    clock::TokioClock,
    connect::{Connection, Connector, Limits, Notice, Verdict},
    error::{Execution, Kind},
    loan::Loan,
    pool::Pool,
    server::Server,
    settings::{Settings, SettingsError},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    #[error("connection refused")]
    Unreachable,
    #[error("the connection is gone")]
    Gone,
    #[error("the server refused the request")]
    Refused,
    #[error("the server is overloaded")]
    Overloaded,
}

/// A server: how it behaves, and counters of what has reached it.
#[derive(Debug, Default)]
pub struct Host {
    behaviour: Mutex<Behaviour>,
    /// The number of its start: even while it is up, odd while it is down.
    life: watch::Sender<u64>,
    silent: watch::Sender<bool>,
    goodbyes: watch::Sender<u64>,
    accepted: AtomicUsize,
    open: AtomicUsize,
    asked: AtomicUsize,
    answered: AtomicUsize,
    probed: AtomicUsize,
    asked_who: AtomicUsize,
}

#[derive(Clone, Debug, Default)]
struct Behaviour {
    delay: Duration,
    connect: Duration,
    overloaded_every: usize,
    knows: Vec<Server>,
}

impl Host {
    fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn stop(&self) {
        self.life.send_modify(|life| *life += u64::from(life.is_multiple_of(2)));
    }

    pub fn restart(&self) {
        self.life.send_modify(|life| *life += 2 - *life % 2);
    }

    /// Sets how long an answer takes.
    pub fn delay(&self, delay: Duration) {
        self.behaviour().delay = delay;
    }

    /// Sets how long it takes to accept a connection.
    pub fn delay_connects(&self, delay: Duration) {
        self.behaviour().connect = delay;
    }

    /// Answers every `requests`-th request with an error; 0 answers none so.
    pub fn overloaded_every(&self, requests: usize) {
        self.behaviour().overloaded_every = requests;
    }

    /// While silent, the server accepts and reads, and answers nothing.
    pub fn silent(&self, silent: bool) {
        self.silent.send_replace(silent);
    }

    /// Says goodbye on all current connections: requests in flight are answered, and new ones are refused there.
    pub fn say_goodbye(&self) {
        self.goodbyes.send_modify(|goodbyes| *goodbyes += 1);
    }

    /// Sets its answer to discovery.
    pub fn knows(&self, cluster: &[Server]) {
        self.behaviour().knows = cluster.to_vec();
    }

    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// The number of connections that it has ever accepted.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// The number of requests that have reached it, answered or not.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }

    pub fn probed(&self) -> usize {
        self.probed.load(Ordering::SeqCst)
    }

    /// The number of discovery requests that have reached it.
    pub fn asked_who(&self) -> usize {
        self.asked_who.load(Ordering::SeqCst)
    }

    async fn speaks(&self) {
        let _ = self.silent.subscribe().wait_for(|silent| !silent).await;
    }
}

/// The servers, by address. It is also the connector, since it knows them all.
#[derive(Clone, Debug)]
pub struct Memory {
    hosts: Arc<BTreeMap<SocketAddr, Arc<Host>>>,
    streams: u32,
    /// The connects in progress of this pool, and the most there ever were.
    under_way: Arc<(AtomicUsize, AtomicUsize)>,
    limits: Arc<Mutex<Option<Limits>>>,
    names: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Memory {
    /// A cluster of `servers` servers, whose connections carry `streams` requests at once.
    pub fn new(servers: usize, streams: u32) -> Memory {
        let hosts = (0..servers).map(|at| (address(at), Arc::new(Host::default())));
        Memory {
            hosts: Arc::new(hosts.collect()),
            streams,
            under_way: Arc::default(),
            limits: Arc::default(),
            names: Arc::default(),
        }
    }

    /// The same servers, for another pool.
    #[must_use]
    pub fn again(&self) -> Memory {
        Memory { under_way: Arc::default(), limits: Arc::default(), ..self.clone() }
    }

    /// # Panics
    /// If there is no such server.
    pub fn host(&self, at: usize) -> &Arc<Host> {
        &self.hosts[&address(at)]
    }

    /// The most connects that this pool ever had in progress at once.
    pub fn connecting_max(&self) -> usize {
        self.under_way.1.load(Ordering::SeqCst)
    }

    /// The limits that the pool passed to the last connect.
    pub fn limits(&self) -> Option<Limits> {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes this name with its port resolve to that server. Before this call its look-up fails.
    pub fn lead(&self, name: &str, at: usize) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), at);
    }

    /// Makes the look-up of this name hang.
    pub fn lose(&self, name: &str) {
        self.lead(name, LOOK_UP_HANGS);
    }

    /// Starts a pool on these servers that uses tokio's clock.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub fn pool(&self, settings: Settings, seed: u64) -> Result<Pool<Memory>, SettingsError> {
        Pool::start_with(self.clone(), settings, TokioClock::default(), seed)
    }
}

const LOOK_UP_HANGS: usize = usize::MAX;

fn address(at: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1 + u16::try_from(at).expect("few servers")))
}

/// One connection.
#[derive(Debug)]
pub struct Link {
    wire: Arc<Wire>,
    streams: u32,
}

#[derive(Debug)]
struct Wire {
    host: Arc<Host>,
    /// The start of the server that it belongs to.
    life: u64,
    /// How often the server had said goodbye when the connection was opened.
    goodbyes: u64,
    closed: watch::Sender<bool>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.wire.leave();
    }
}

impl Wire {
    fn leave(&self) {
        if !self.closed.send_replace(true) {
            self.host.open.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn is_gone(&self) -> bool {
        *self.closed.borrow() || *self.host.life.borrow() != self.life
    }

    fn takes_more(&self) -> bool {
        *self.host.goodbyes.borrow() == self.goodbyes
    }

    async fn takes_no_more(&self) {
        let _ = self.host.goodbyes.subscribe().wait_for(|goodbyes| *goodbyes != self.goodbyes).await;
    }

    async fn gone(&self) {
        let (mut life, mut closed) = (self.host.life.subscribe(), self.closed.subscribe());
        tokio::select! {
            _ = life.wait_for(|life| *life != self.life) => {}
            _ = closed.wait_for(|closed| *closed) => {}
        }
    }

    async fn ask(&self, word: &str) -> Result<String, MemoryError> {
        let (delay, every) = {
            let behaviour = self.host.behaviour();
            (behaviour.delay, behaviour.overloaded_every)
        };
        let answer = async {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            self.host.speaks().await;
            match word {
                "hang" => std::future::pending().await,
                "refuse" => Err(MemoryError::Refused),
                "overloaded" => Err(MemoryError::Overloaded),
                other => Ok(other.to_owned()),
            }
        };
        if self.is_gone() || !self.takes_more() {
            return Err(MemoryError::Gone);
        }
        let number = self.host.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let answer = tokio::select! {
            answer = answer => if every > 0 && number.is_multiple_of(every) { Err(MemoryError::Overloaded) } else { answer },
            () = self.gone() => return Err(MemoryError::Gone),
        };
        self.host.answered.fetch_add(1, Ordering::SeqCst);
        answer
    }
}

impl Link {
    /// Makes one exchange outside of any pool.
    ///
    /// # Errors
    /// The word decides: `refuse` and `overloaded` give errors, `hang` is never answered, any other word is sent back.
    pub async fn ask(&self, word: &str) -> Result<String, MemoryError> {
        self.wire.ask(word).await
    }
}

/// Sends a word like a transport does: the request is in flight until its answer has come, even if the caller has gone.
///
/// # Errors
/// See [`Link::ask`].
pub async fn ask(mut loan: Loan<Memory>, word: &str) -> Result<String, MemoryError> {
    let flight = loan.in_flight();
    let (wire, word) = (loan.wire.clone(), word.to_owned());
    let (answer, answered) = oneshot::channel();
    tokio::spawn(async move {
        let said = wire.ask(&word).await;
        if said != Err(MemoryError::Gone) {
            flight.answered();
        }
        drop(flight);
        let _ = answer.send(said);
    });
    answered.await.unwrap_or(Err(MemoryError::Gone))
}

impl Connection for Link {
    fn streams(&self) -> u32 {
        self.streams
    }

    fn broken(&self) -> bool {
        self.wire.is_gone()
    }

    fn takes_more(&self) -> bool {
        self.wire.takes_more()
    }

    async fn closed(&self) {
        self.wire.gone().await;
    }

    async fn takes_no_more(&self) {
        self.wire.takes_no_more().await;
    }

    async fn probe(&self, by: Instant) -> bool {
        self.wire.host.probed.fetch_add(1, Ordering::SeqCst);
        let alive = async {
            tokio::select! {
                () = self.wire.gone() => false,
                () = self.wire.takes_no_more() => false,
                () = self.wire.host.speaks() => true,
            }
        };
        tokio::time::timeout_at(by, alive).await.unwrap_or(false)
    }

    async fn close(&self, _: Instant) {
        self.wire.leave();
    }
}

/// Counts a connect in progress, and ends the count however it ends.
struct ConnectCount<'a>(&'a AtomicUsize);

impl Drop for ConnectCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Connector for Memory {
    type Connection = Link;
    type Error = MemoryError;

    async fn connect(&self, to: &Server, limits: Limits) -> Result<Link, MemoryError> {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = Some(limits);
        let host = self.hosts.get(&to.address).ok_or(MemoryError::Unreachable)?;
        let (now, most) = (&self.under_way.0, &self.under_way.1);
        let count = now.fetch_add(1, Ordering::SeqCst) + 1;
        let _count = ConnectCount(now);
        most.fetch_max(count, Ordering::SeqCst);
        let delay = host.behaviour().connect;
        tokio::time::timeout(limits.tcp, tokio::time::sleep(delay)).await.map_err(|_| MemoryError::Unreachable)?;
        let (life, goodbyes) = (*host.life.borrow(), *host.goodbyes.borrow());
        if life % 2 == 1 {
            return Err(MemoryError::Unreachable);
        }
        host.accepted.fetch_add(1, Ordering::SeqCst);
        host.open.fetch_add(1, Ordering::SeqCst);
        let wire = Wire { host: host.clone(), life, goodbyes, closed: watch::channel(false).0 };
        let link = Link { wire: Arc::new(wire), streams: self.streams };
        host.speaks().await;
        Ok(link)
    }

    async fn watch(&self, on: &Link) -> Result<mpsc::Receiver<Notice>, MemoryError> {
        let (sender, receiver) = mpsc::channel(1);
        let wire = on.wire.clone();
        // The channel stays open for as long as the connection.
        tokio::spawn(async move {
            wire.gone().await;
            drop(sender);
        });
        Ok(receiver)
    }

    async fn discover(&self, on: &Link) -> Result<Vec<Server>, MemoryError> {
        on.wire.host.asked_who.fetch_add(1, Ordering::SeqCst);
        on.ask("who").await?;
        Ok(on.wire.host.behaviour().knows.clone())
    }

    async fn look_up(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let led = self.names.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        if led == Some(LOOK_UP_HANGS) {
            std::future::pending::<()>().await;
        }
        led.map(|at| vec![address(at)]).ok_or_else(|| io::Error::other("no such name"))
    }

    fn verdict(&self, error: &MemoryError) -> Verdict {
        match error {
            MemoryError::Unreachable => Verdict::unreachable(),
            MemoryError::Gone => Verdict::lost(),
            MemoryError::Refused => Verdict::refused(42),
            MemoryError::Overloaded => {
                Verdict { kind: Kind::Server(0x1001), executed: Execution::No, ..Verdict::lost() }
            }
        }
    }
}

/// A rig whose connections carry one request at a time.
#[derive(Debug)]
pub struct Exclusive(Memory);

/// A rig whose connections carry 64 requests at once.
#[derive(Debug)]
pub struct Shared(Memory);

macro_rules! rig {
    ($rig:ident, $streams:expr) => {
        impl Rig for $rig {
            type Connector = Memory;

            async fn start(servers: usize) -> $rig {
                $rig(Memory::new(servers, $streams))
            }

            fn pool(&self, settings: Settings) -> Result<Pool<Memory>, SettingsError> {
                self.0.pool(settings, 7)
            }

            fn server(&self, at: usize) -> Server {
                Server::at(address(at))
            }

            async fn ask(loan: Loan<Memory>) -> Result<(), MemoryError> {
                ask(loan, "x").await.map(drop)
            }

            async fn hang(loan: Loan<Memory>) -> Result<(), MemoryError> {
                ask(loan, "hang").await.map(drop)
            }

            async fn refuse(loan: Loan<Memory>) -> Result<(), MemoryError> {
                ask(loan, "refuse").await.map(drop)
            }

            async fn ask_once(on: &Link) -> Result<(), MemoryError> {
                on.ask("x").await.map(drop)
            }

            async fn stop(&self, at: usize) {
                self.0.host(at).stop();
            }

            async fn restart(&self, at: usize) {
                self.0.host(at).restart();
            }

            fn tell(&self, cluster: &[usize]) {
                let named = |at: &usize| Server::at(address(*at)).named(format!("server-{at}"));
                let cluster: Vec<Server> = cluster.iter().map(named).collect();
                self.0.hosts.values().for_each(|host| host.knows(&cluster));
            }

            fn silence(&self, at: usize, silent: bool) {
                self.0.host(at).silent(silent);
            }

            fn open(&self, at: usize) -> usize {
                self.0.host(at).open()
            }

            fn accepted(&self, at: usize) -> usize {
                self.0.host(at).accepted()
            }
        }
    };
}

rig!(Exclusive, 1);
rig!(Shared, 64);

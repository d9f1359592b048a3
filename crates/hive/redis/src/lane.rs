//! One connection, made when it is needed and dropped when it is in doubt.
//!
//! | what happened to a request                  | its outcome            | the connection |
//! |---------------------------------------------|------------------------|----------------|
//! | answered                                    | as answered            | stays          |
//! | refused by the server                       | nothing was done       | stays          |
//! | `READONLY`, still loading                   | nothing was done       | dropped        |
//! | `MOVED`: the hive's slot is elsewhere       | asked again there      | dropped        |
//! | no answer in time, broken, nobody waits     | unknown                | dropped        |

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use honeyflow_runtime::Failure;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind, Value,
    aio::MultiplexedConnection,
};
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};

use crate::{check, outcome, script::Script};

/// Requests under way. A node sends one beat at a time; more than this is a storm.
const REQUESTS_MAX: usize = 256;
/// Within a cluster: the slot may move while we follow it.
const REDIRECTS_MAX: usize = 3;
/// A server that is slow is given its time; but one that could not be heard a moment ago may answer a new knock at once, and
/// the old one much later.
const KNOCKS_EVERY: Duration = Duration::from_secs(1);
/// Connections that are being made for one request.
const ATTEMPTS_MAX: usize = 3;
/// Of a connection that nobody has been given yet.
const UNNUMBERED: u64 = 0;

pub(crate) struct Lane {
    place: ConnectionInfo,
    timeout: Duration,
    check_every: Duration,
    turns: Semaphore,
    slot: Arc<Mutex<Slot>>,
    /// Connections up to this number are in doubt.
    dropped: AtomicU64,
    /// Said once, until it is better.
    silent: AtomicBool,
}

#[derive(Default)]
struct Slot {
    made: u64,
    connection: Option<Connected>,
    /// Where a cluster keeps the hive.
    moved: Option<ConnectionAddr>,
}

#[derive(Clone)]
struct Connected {
    number: u64,
    connection: MultiplexedConnection,
    address: Arc<str>,
    checked_at: Instant,
}

/// The connection that has just answered.
pub(crate) struct Answering<'l> {
    lane: &'l Lane,
    connected: Connected,
}

/// Unless it is settled, the connection is dropped with it.
struct Doubt<'l> {
    lane: &'l Lane,
    number: u64,
    settled: bool,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.lane.dropped.fetch_max(self.number, Ordering::Relaxed);
        }
    }
}

impl Lane {
    pub fn new(place: ConnectionInfo, timeout: Duration, check_every: Duration) -> Arc<Lane> {
        Arc::new(Lane {
            place,
            timeout,
            check_every,
            turns: Semaphore::new(REQUESTS_MAX),
            slot: Arc::default(),
            dropped: AtomicU64::new(0),
            silent: AtomicBool::new(false),
        })
    }

    /// Runs the script once.
    pub async fn run(
        self: &Arc<Lane>,
        script: &Script,
        keys: &[&[String]],
        arguments: &[String],
    ) -> Result<Value, Failure> {
        self.ask(script, keys, arguments).await.map(|(value, _)| value)
    }

    pub async fn ask(
        self: &Arc<Lane>,
        script: &Script,
        keys: &[&[String]],
        arguments: &[String],
    ) -> Result<(Value, Answering<'_>), Failure> {
        let busy = |_| Failure::retry("hive-busy", "too many requests wait for the hive's connection");
        let _turn = self.turns.try_acquire().map_err(busy)?;
        let command = |how: &str, code: &str| {
            let mut command = redis::cmd(how);
            command.arg(code).arg(keys.iter().map(|keys| keys.len()).sum::<usize>());
            keys.iter().for_each(|keys| {
                command.arg(*keys);
            });
            command.arg(arguments);
            command
        };
        let mut redirects = 0;
        loop {
            let connected = self.connected(script.doing).await?;
            let mut answering = Answering { lane: self, connected };
            let mut result = answering.send(&command("EVALSHA", &script.hash)).await;
            if is_server(&result, ServerErrorKind::NoScript) {
                result = answering.send(&command("EVAL", &script.text)).await;
            }
            let error = match result {
                Ok(value) => return Ok((value, answering)),
                Err(error) => error,
            };
            match error.redirect_node().filter(|_| error.kind() == ErrorKind::Server(ServerErrorKind::Moved)) {
                // Refused before it ran: it may be asked again where it belongs.
                Some((address, _)) if redirects < REDIRECTS_MAX => {
                    redirects += 1;
                    self.follow(address, answering.connected.number).await;
                }
                _ => return Err(answering.failure(&error, script.doing)),
            }
        }
    }

    async fn follow(&self, address: &str, number: u64) {
        let moved = moved(self.place.addr(), address);
        let mut slot = self.slot.lock().await;
        self.dropped.fetch_max(number, Ordering::Relaxed);
        slot.moved = moved;
    }

    /// The connection, made and checked if need be. One at a time does that; the others wait for it.
    async fn connected(self: &Arc<Lane>, doing: &'static str) -> Result<Connected, Failure> {
        let slot = Arc::clone(&self.slot).lock_owned().await;
        let dropped = self.dropped.load(Ordering::Relaxed);
        let is_good =
            |connected: &&Connected| connected.number > dropped && connected.checked_at.elapsed() < self.check_every;
        if let Some(connected) = slot.connection.as_ref().filter(is_good) {
            return Ok(connected.clone());
        }
        // Not given up with the request: the next one needs it too.
        let lane = Arc::clone(self);
        let made = tokio::spawn(async move { lane.make(slot, doing).await }).await;
        made.map_err(|_| Failure::retry("hive-stopped", "the hive was closed while it was asked"))?
    }

    async fn make(&self, mut slot: OwnedMutexGuard<Slot>, doing: &'static str) -> Result<Connected, Failure> {
        let dropped = self.dropped.load(Ordering::Relaxed);
        if let Some(connected) = slot.connection.take_if(|connected| connected.number > dropped) {
            let connected = self.check(connected, doing).await?;
            slot.connection = Some(connected.clone());
            return Ok(connected);
        }
        slot.connection = None;
        let connected = match self.attempts(&mut slot, doing).await {
            Ok(connected) => connected,
            Err(failure) => {
                // Whoever has pointed there may be wrong by now.
                slot.moved = None;
                if !self.silent.swap(true, Ordering::Relaxed) {
                    tracing::warn!(code = %failure.code, "the hive's store does not serve: {failure}");
                }
                return Err(failure);
            }
        };
        if self.silent.swap(false, Ordering::Relaxed) {
            tracing::info!("the hive's store serves again");
        }
        slot.connection = Some(connected.clone());
        Ok(connected)
    }

    async fn attempts(&self, slot: &mut Slot, doing: &str) -> Result<Connected, Failure> {
        let place = match &slot.moved {
            Some(address) => self.place.clone().set_addr(address.clone()),
            None => self.place.clone(),
        };
        let mut attempts = FuturesUnordered::new();
        let made = loop {
            attempts.push(self.connect(place.clone(), doing));
            tokio::select! {
                Some(made) = attempts.next() => break made?,
                () = tokio::time::sleep(KNOCKS_EVERY), if attempts.len() < ATTEMPTS_MAX => {}
            }
        };
        drop(attempts);
        slot.made += 1;
        Ok(Connected { number: slot.made, ..made })
    }

    /// Without a number yet: one that is given up while it is checked says nothing about the one that came first.
    async fn connect(&self, place: ConnectionInfo, doing: &str) -> Result<Connected, Failure> {
        let address: Arc<str> = place.addr().to_string().into();
        let failed = |error: RedisError| outcome::unconnected(&error, doing, &address);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        let client = Client::open(place).map_err(failed)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
        let connected = Connected { number: UNNUMBERED, connection, address, checked_at: Instant::now() };
        self.check(connected, doing).await
    }

    /// Whether this server can hold a hive, at first and now and then: a setting may change under way.
    async fn check(&self, connected: Connected, doing: &str) -> Result<Connected, Failure> {
        let mut answering = Answering { lane: self, connected };
        let mut info = String::new();
        for section in ["server", "memory"] {
            let said = answering.send(redis::cmd("INFO").arg(section)).await;
            let said = said.and_then(|value| Ok(redis::from_redis_value::<String>(value)?));
            info += &said.map_err(|error| answering.failure(&error, doing))?;
        }
        check::judge(&info, &answering.connected.address)?;
        Ok(Connected { checked_at: Instant::now(), ..answering.connected })
    }
}

impl Answering<'_> {
    /// Dropped before it is answered, the connection is dropped too.
    async fn send(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        let mut doubt = Doubt { lane: self.lane, number: self.connected.number, settled: false };
        let result = command.query_async::<Value>(&mut self.connected.connection).await;
        doubt.settled = match &result {
            Ok(_) => true,
            Err(error) => outcome::judge(error, "", "").answered,
        };
        result
    }

    fn failure(&self, error: &RedisError, doing: &str) -> Failure {
        outcome::judge(error, doing, &self.connected.address).failure
    }

    /// How many replicas know what was just written here, at most `enough`.
    pub async fn wait_for_replicas(&mut self, enough: u64, within: Duration) -> Result<u64, Failure> {
        let wait_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let known = self.send(redis::cmd("WAIT").arg(enough).arg(wait_ms)).await;
        known
            .and_then(|value| Ok(redis::from_redis_value::<u64>(value)?))
            .map_err(|error| self.failure(&error, "wait for a replica"))
    }
}

fn is_server(result: &Result<Value, RedisError>, kind: ServerErrorKind) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Server(kind))
}

/// The same kind of address elsewhere. Without a host it is another port of the same one.
fn moved(from: &ConnectionAddr, to: &str) -> Option<ConnectionAddr> {
    let (to_host, port) = to.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let named = |host: &String| if to_host.is_empty() { host.clone() } else { to_host.to_owned() };
    match from {
        ConnectionAddr::Tcp(host, _) => Some(ConnectionAddr::Tcp(named(host), port)),
        ConnectionAddr::TcpTls { host, insecure, tls_params, .. } => Some(ConnectionAddr::TcpTls {
            host: named(host),
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        }),
        _ => None,
    }
}

//! One connection, opened when it is needed and dropped when its state is in doubt.
//!
//! | what happened to a request                            | its outcome            | the connection |
//! |-------------------------------------------------------|------------------------|----------------|
//! | answered                                              | as answered            | stays          |
//! | refused by the server                                 | nothing was done       | stays          |
//! | `READONLY`, still loading                             | nothing was done       | dropped        |
//! | `MOVED`: another server has the hive's slot           | sent again there       | dropped        |
//! | no answer in time, connection broken, caller gave up  | unknown                | dropped        |

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

use crate::{check, codes, outcome, script::Script};

/// The largest number of requests in progress. A node sends one heartbeat at a time; more requests than this are a
/// storm.
const REQUESTS_MAX: usize = 256;
/// How many redirects to follow in a cluster: the slot may move again meanwhile.
const REDIRECTS_MAX: usize = 3;
/// How long to wait for a connection before starting a further attempt. A slow server gets its time; but a server that
/// was unreachable a moment ago may answer a new attempt at once and the old one much later.
const KNOCKS_EVERY: Duration = Duration::from_secs(1);
/// The largest number of concurrent connection attempts for one request.
const ATTEMPTS_MAX: usize = 3;
/// The number of a connection that is still being opened.
const UNNUMBERED: u64 = 0;

pub(crate) struct Lane {
    place: ConnectionInfo,
    timeout: Duration,
    check_every: Duration,
    turns: Semaphore,
    slot: Arc<Mutex<Slot>>,
    /// Connections up to this number are in doubt and must not be used again.
    dropped: AtomicU64,
    /// Whether the failure was logged already. It is logged once, until the server answers again.
    silent: AtomicBool,
}

#[derive(Default)]
struct Slot {
    made: u64,
    connection: Option<Connection>,
    /// The server of the cluster that has the hive's slot, if it is not the configured one.
    moved: Option<ConnectionAddr>,
}

#[derive(Clone)]
struct Connection {
    number: u64,
    connection: MultiplexedConnection,
    address: Arc<str>,
    checked_at: Instant,
}

/// A connection in use by one request.
pub(crate) struct ActiveConnection<'l> {
    lane: &'l Lane,
    connected: Connection,
}

/// Marks a connection as in doubt when it is dropped, unless it is settled.
struct ConnectionDoubt<'l> {
    lane: &'l Lane,
    number: u64,
    settled: bool,
}

impl Drop for ConnectionDoubt<'_> {
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
    ) -> Result<(Value, ActiveConnection<'_>), Failure> {
        let busy = |_| Failure::retry(codes::HIVE_BUSY, "too many requests wait for the hive's connection");
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
            let connected = self.ready_connection(script.doing).await?;
            let mut answering = ActiveConnection { lane: self, connected };
            let mut result = answering.send(&command("EVALSHA", &script.hash)).await;
            if is_server(&result, ServerErrorKind::NoScript) {
                result = answering.send(&command("EVAL", &script.text)).await;
            }
            let error = match result {
                Ok(value) => return Ok((value, answering)),
                Err(error) => error,
            };
            match error.redirect_node().filter(|_| error.kind() == ErrorKind::Server(ServerErrorKind::Moved)) {
                // The server refused the script before it ran, so it can be sent to the right server.
                Some((address, _)) if redirects < REDIRECTS_MAX => {
                    redirects += 1;
                    self.follow_redirect(address, answering.connected.number).await;
                }
                _ => return Err(answering.failure(&error, script.doing)),
            }
        }
    }

    async fn follow_redirect(&self, address: &str, number: u64) {
        let moved = moved_address(self.place.addr(), address);
        let mut slot = self.slot.lock().await;
        self.dropped.fetch_max(number, Ordering::Relaxed);
        slot.moved = moved;
    }

    /// Returns the connection; opens and checks it if necessary. One request at a time does that, the others wait for
    /// it.
    async fn ready_connection(self: &Arc<Lane>, doing: &'static str) -> Result<Connection, Failure> {
        let slot = Arc::clone(&self.slot).lock_owned().await;
        let dropped = self.dropped.load(Ordering::Relaxed);
        let is_good =
            |connected: &&Connection| connected.number > dropped && connected.checked_at.elapsed() < self.check_every;
        if let Some(connected) = slot.connection.as_ref().filter(is_good) {
            return Ok(connected.clone());
        }
        // A separate task continues if the caller gives up: the next request needs the connection too.
        let lane = Arc::clone(self);
        let made = tokio::spawn(async move { lane.open_or_check(slot, doing).await }).await;
        made.map_err(|_| Failure::retry(codes::HIVE_STOPPED, "the hive was closed during a request"))?
    }

    async fn open_or_check(&self, mut slot: OwnedMutexGuard<Slot>, doing: &'static str) -> Result<Connection, Failure> {
        let dropped = self.dropped.load(Ordering::Relaxed);
        if let Some(connected) = slot.connection.take_if(|connected| connected.number > dropped) {
            let connected = self.check(connected, doing).await?;
            slot.connection = Some(connected.clone());
            return Ok(connected);
        }
        slot.connection = None;
        let connected = match self.connect_hedged(&mut slot, doing).await {
            Ok(connected) => connected,
            Err(failure) => {
                // The redirect may be out of date by now.
                slot.moved = None;
                if !self.silent.swap(true, Ordering::Relaxed) {
                    tracing::warn!(code = %failure.code, "cannot use the hive's store: {failure}");
                }
                return Err(failure);
            }
        };
        if self.silent.swap(false, Ordering::Relaxed) {
            tracing::info!("the hive's store is usable again");
        }
        slot.connection = Some(connected.clone());
        Ok(connected)
    }

    async fn connect_hedged(&self, slot: &mut Slot, doing: &str) -> Result<Connection, Failure> {
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
        Ok(Connection { number: slot.made, ..made })
    }

    /// Opens and checks a connection. It has no number yet, so that giving it up during the check does not put another
    /// connection in doubt.
    async fn connect(&self, place: ConnectionInfo, doing: &str) -> Result<Connection, Failure> {
        let address: Arc<str> = place.addr().to_string().into();
        let failed = |error: RedisError| outcome::connect_failure(&error, doing, &address);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        let client = Client::open(place).map_err(failed)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
        let connected = Connection { number: UNNUMBERED, connection, address, checked_at: Instant::now() };
        self.check(connected, doing).await
    }

    /// Checks that the server is suitable for a hive, at first and then periodically, as a setting may change later.
    async fn check(&self, connected: Connection, doing: &str) -> Result<Connection, Failure> {
        let mut answering = ActiveConnection { lane: self, connected };
        let mut info = String::new();
        for section in ["server", "memory"] {
            let said = answering.send(redis::cmd("INFO").arg(section)).await;
            let said = said.and_then(|value| Ok(redis::from_redis_value::<String>(value)?));
            info += &said.map_err(|error| answering.failure(&error, doing))?;
        }
        check::judge(&info, &answering.connected.address)?;
        Ok(Connection { checked_at: Instant::now(), ..answering.connected })
    }
}

impl ActiveConnection<'_> {
    /// Sends a command. If this future is dropped before the answer, the connection is dropped too.
    async fn send(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        let mut doubt = ConnectionDoubt { lane: self.lane, number: self.connected.number, settled: false };
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

    /// Waits until `enough` replicas have received the last write of this connection. Returns how many have.
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

/// The address of another server, with the same kind of connection. If `to` has no host, the host stays the same.
fn moved_address(from: &ConnectionAddr, to: &str) -> Option<ConnectionAddr> {
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

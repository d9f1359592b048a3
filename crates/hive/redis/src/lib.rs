//! The hive in Redis or Valkey: every request is one script on the server's own clock, and all keys of a hive share one
//! hash tag ([`key`]).
//!
//! Redis may lose everything at any time. So its history counts as unknown whenever another process answers or the view
//! is missing: then no node mints until all earlier terms have ended. A request with an unknown outcome fails with
//! `Retry` and is never sent twice. The connections have their own thread, so that a busy runtime does not delay a
//! heartbeat.

mod answer;
mod check;
pub mod codes;
mod decode;
mod key;
mod lane;
mod limit;
mod outcome;
mod row;
mod script;
mod thread;

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use honeyflow_event::Name;
use honeyflow_hive::{Capabilities, HiveStore, Reply, Request, contract::HIVE};
use honeyflow_runtime::Failure;
use redis::ConnectionInfo;

use answer::Store;
use thread::Thread;

#[derive(Clone)]
pub struct Options {
    /// `redis://`, `rediss://` (TLS) or `redis+unix://`; for a cluster, the address of any of its nodes.
    pub url: String,
    /// Several hives may share a server.
    pub hive: Name,
    /// After this time a request counts as unanswered, even if its caller would wait longer.
    pub timeout: Duration,
    /// How often to check that the server does not evict keys.
    pub check_every: Duration,
    /// If the server has replicas, a transfer of a lease counts only when one of them has received it. A server with
    /// `min-replicas-to-write 1` refuses all other writes too while it has no replica.
    pub require_replica: bool,
}

impl Options {
    pub fn new(url: impl Into<String>) -> Options {
        Options {
            url: url.into(),
            hive: HIVE.into(),
            timeout: Duration::from_secs(5),
            check_every: Duration::from_secs(60),
            require_replica: true,
        }
    }
}

impl fmt::Debug for Options {
    /// Omits the url, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { hive, timeout, check_every, require_replica, .. } = self;
        write!(
            f,
            "Options({hive}, timeout {timeout:?}, check every {check_every:?}, require replica {require_replica})"
        )
    }
}

/// The hive on one Redis server or cluster. Its thread and connections end when it is dropped.
pub struct RedisHive {
    store: Arc<Store>,
    thread: Thread,
}

/// Opens the hive of the default name. A server that is down is no error: requests fail until it is up.
///
/// ```no_run
/// # async fn example() -> Result<(), honeyflow_runtime::Failure> {
/// use honeyflow_hive::{Hive, Options};
/// let store = honeyflow_hive_redis::open("redis://127.0.0.1:6379").await?;
/// let hive = Hive::join(store, Options::default()).await?;
/// # drop(hive); Ok(()) }
/// ```
///
/// # Errors
/// If the url is invalid.
#[expect(clippy::unused_async, reason = "every backend is opened in the same way, and others ask their server")]
pub async fn open(url: &str) -> Result<Arc<dyn HiveStore>, Failure> {
    Ok(Arc::new(RedisHive::open(&Options::new(url))?))
}

impl RedisHive {
    /// # Errors
    /// If the url or the hive's name is invalid, or no thread can be started.
    pub fn open(options: &Options) -> Result<RedisHive, Failure> {
        let name = &options.hive;
        if name.is_empty() || name.len() > 191 || name.contains(['{', '}']) {
            let said = format!("{name:?} is not a valid name of a hive: it must have 1 to 191 bytes and no braces");
            return Err(Failure::fatal(codes::HIVE_OPTIONS, said));
        }
        let place = parse_url(&options.url)?;
        Ok(RedisHive { store: Arc::new(Store::new(&place, options)), thread: Thread::start()? })
    }
}

fn parse_url(url: &str) -> Result<ConnectionInfo, Failure> {
    // The message does not repeat the url, which may contain a password.
    let wrong = |error: redis::RedisError| {
        let said = format!(
            "the hive's address is not a Redis url: {error}; write redis://[user:password@]host[:port][/database], \
             rediss:// for TLS, or redis+unix:///path"
        );
        Failure::fatal(codes::BAD_URL, said)
    };
    let place = redis::Client::open(url).map_err(wrong)?.get_connection_info().clone();
    if matches!(place.addr(), redis::ConnectionAddr::TcpTls { .. }) {
        // There is one provider per process. An error means that another part of the program has installed one already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    Ok(place)
}

impl HiveStore for RedisHive {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        let store = Arc::clone(&self.store);
        self.thread.run(async move { store.answer(request).await })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { many_hosts: true, durable: false, doorbell: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_url_is_reported_without_its_password() {
        for url in ["http://me:secret@host", "redis//me:secret@host", "me:secret@host", ""] {
            let failure = RedisHive::open(&Options::new(url)).err().expect(url);
            assert_eq!((failure.class, &*failure.code), (honeyflow_runtime::Class::Fatal, "bad-url"), "{url}");
            assert!(failure.message.contains("redis://") && !failure.message.contains("secret"), "{failure}");
        }
        assert!(!format!("{:?}", Options::new("redis://me:secret@host")).contains("secret"));
    }

    #[test]
    fn hv_6_a_name_that_would_tear_the_hash_tag_is_refused() {
        for name in ["", "a}b", "{", &"x".repeat(192)] {
            let options = Options { hive: name.into(), ..Options::new("redis://127.0.0.1") };
            assert_eq!(RedisHive::open(&options).err().expect(name).code, "hive-options");
        }
    }
}

//! The hive in Redis or Valkey: every request is one script on the server's own clock, and all keys of a hive share one
//! hash tag ([`key`]).
//!
//! Redis may lose everything at any time, so its history counts as unknown whenever another process answers or the view is
//! gone: nobody mints before what was held has ended. An unknown outcome leaves as `Retry`; nothing is sent twice.
//! Connections live on a thread of their own, so that no busy runtime of the program delays a beat.

mod answer;
mod check;
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
    /// `redis://`, `rediss://` (TLS) or `redis+unix://`; of a cluster, any of its nodes.
    pub url: String,
    /// Several hives may share a server.
    pub hive: Name,
    /// After that a request counts as unanswered, should its caller be more patient.
    pub timeout: Duration,
    /// How often the server is asked whether it would throw keys out.
    pub check_every: Duration,
    /// Where there are replicas, a lease has changed hands only once one of them knows. A server that is set to
    /// `min-replicas-to-write 1` refuses everything else too while it has none.
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
    /// Without the url: a password may stand in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { hive, timeout, check_every, require_replica, .. } = self;
        write!(
            f,
            "Options({hive}, timeout {timeout:?}, check every {check_every:?}, require replica {require_replica})"
        )
    }
}

/// Its thread and connections end once it is dropped.
pub struct RedisHive {
    store: Arc<Store>,
    thread: Thread,
}

/// Opens the hive of the usual name. A server that is not there is no error: requests say so.
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
/// If the url is none.
#[expect(clippy::unused_async, reason = "every backend is opened in the same way, and others ask their server")]
pub async fn open(url: &str) -> Result<Arc<dyn HiveStore>, Failure> {
    Ok(Arc::new(RedisHive::open(&Options::new(url))?))
}

impl RedisHive {
    /// # Errors
    /// If the url or the hive's name cannot be used, or no thread can be had.
    pub fn open(options: &Options) -> Result<RedisHive, Failure> {
        let name = &options.hive;
        if name.is_empty() || name.len() > 191 || name.contains(['{', '}']) {
            let said = format!("{name:?} is no name of a hive: it needs 1 to 191 bytes and no braces");
            return Err(Failure::fatal("hive-options", said));
        }
        let place = place(&options.url)?;
        Ok(RedisHive { store: Arc::new(Store::new(&place, options)), thread: Thread::start()? })
    }
}

fn place(url: &str) -> Result<ConnectionInfo, Failure> {
    // The text itself is not repeated: a password may stand in it.
    let wrong = |error: redis::RedisError| {
        let said = format!(
            "the hive's address is no Redis url: {error}; write redis://[user:password@]host[:port][/database], \
             rediss:// for TLS, or redis+unix:///path"
        );
        Failure::fatal("bad-url", said)
    };
    let place = redis::Client::open(url).map_err(wrong)?.get_connection_info().clone();
    if matches!(place.addr(), redis::ConnectionAddr::TcpTls { .. }) {
        // Whoever was first has chosen; there is one for the whole process.
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
    fn a_url_that_is_none_is_said_without_its_password() {
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

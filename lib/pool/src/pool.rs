//! The pool: start it, borrow connections, run requests.

use std::{
    fmt,
    future::Future,
    hash::{BuildHasher, RandomState},
    panic::Location,
    sync::{Arc, Mutex, atomic::AtomicBool},
};

use arc_swap::ArcSwap;
use honeyflow_runtime::Clock;
use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};

use crate::{
    clock::{CounterClock, PoolClock},
    connect::Connector,
    control::Control,
    core::{Core, Counters, Rules, State, Status},
    core_lock::CoreLock,
    error::Error,
    loan::{Get, Loan},
    request_options::RequestOptions,
    run_request::{RequestRun, once},
    server::Server,
    settings::{Provider, SettingsError, Start, apply_planted_bug},
    shared::{Shared, Signals},
    tasks,
};

/// A pool of connections to a cluster of servers. It is cheap to clone; when the last clone is dropped, the pool drains
/// and ends.
pub struct Pool<C: Connector> {
    handle: Arc<Handle<C>>,
}

/// Shared by the clones of a pool but not by its tasks. When the last clone drops it, the pool ends.
struct Handle<C: Connector> {
    shared: Arc<Shared<C>>,
}

/// How many changes a slow listener may lag behind before it misses some.
const CHANGES_KEPT: usize = 256;

impl<C: Connector> Pool<C> {
    /// Starts a pool on the current runtime. The pool opens its connections in the background.
    ///
    /// # Errors
    /// All that is wrong with the settings.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(connector: C, settings: impl Provider) -> Result<Pool<C>, SettingsError> {
        let clock = PoolClock::Counter(CounterClock::default());
        Pool::begin(connector, settings, clock, RandomState::new().hash_one(0_u8))
    }

    /// Starts a pool with a given clock and a seed for its random numbers, for tests.
    ///
    /// # Errors
    /// All that is wrong with the settings.
    pub fn start_with(
        connector: C,
        provider: impl Provider,
        clock: impl Clock + 'static,
        seed: u64,
    ) -> Result<Pool<C>, SettingsError> {
        Pool::begin(connector, provider, PoolClock::Other(Box::new(clock)), seed)
    }

    fn begin(connector: C, provider: impl Provider, clock: PoolClock, seed: u64) -> Result<Pool<C>, SettingsError> {
        let settings = provider.settings()?;
        settings.check()?;
        connector.configure(&settings.connector)?;
        let settings = apply_planted_bug(settings);
        let state = match (settings.enabled, settings.start) {
            (false, _) => State::Disabled,
            (true, Start::Inactive) => State::Inactive,
            (true, Start::Active) => State::Active,
        };
        let core = Core::new(Rules::from(&settings), state, seed);
        let shared = Arc::new(Shared {
            connector,
            core_lock: CoreLock::new(core),
            clock,
            switched_on: AtomicBool::new(settings.enabled),
            settings: ArcSwap::from_pointee(settings),
            settings_error: ArcSwap::from_pointee(None),
            discovery_error: ArcSwap::from_pointee(None),
            name_error: ArcSwap::from_pointee(None),
            listening: AtomicBool::new(false),
            runtime: tokio::runtime::Handle::current(),
            signals: Signals::default(),
            counts_taken: Mutex::default(),
            changes: broadcast::channel(CHANGES_KEPT).0,
            ended: watch::channel(false).0,
        });
        tasks::start(&shared, Arc::new(provider), seed);
        Ok(Pool { handle: Arc::new(Handle { shared }) })
    }

    /// Waits for a connection on loan. The pool does not retry what the caller does with it: the caller decides what an
    /// error means.
    #[track_caller]
    pub fn get(&self, want: RequestOptions) -> Get<'_, C> {
        Get::new(&self.handle.shared, want, Location::caller())
    }

    /// Runs `f` on a connection, within one deadline. The pool may run it again on another server if nothing was
    /// executed or the request is idempotent. If the settings allow it, an idempotent request may run twice at the same
    /// time.
    ///
    /// # Errors
    /// The error of the last try, which also lists the earlier ones.
    #[track_caller]
    pub fn with<'a, T, F, Fut>(
        &'a self,
        want: RequestOptions,
        f: F,
    ) -> impl Future<Output = Result<T, Error<C>>> + Send + use<'a, T, F, Fut, C>
    where
        T: Send + 'a,
        F: Fn(Loan<C>) -> Fut + Send + Sync + 'a,
        Fut: Future<Output = Result<T, C::Error>> + Send + 'a,
    {
        let site = Location::caller();
        async move { RequestRun::new(&self.handle.shared, want, site).run(f).await }
    }

    /// Runs `f` on a new connection to any server, without the pool's connections and queue, and closes it afterwards.
    ///
    /// # Errors
    /// The same typed error, also if connecting failed.
    pub async fn once<T>(
        &self,
        on: &Server,
        by: Instant,
        f: impl AsyncFnOnce(&C::Connection) -> Result<T, C::Error>,
    ) -> Result<T, Error<C>> {
        once(&self.handle.shared, on, by, f).await
    }

    /// The operator's interface of this pool.
    pub fn control(&self) -> Arc<dyn Control> {
        Arc::new(self.handle.shared.clone())
    }

    pub fn status(&self) -> Status {
        self.handle.shared.status()
    }

    pub fn counters(&self) -> Counters {
        self.handle.shared.counters()
    }

    pub fn connector(&self) -> &C {
        &self.handle.shared.connector
    }
}

impl<C: Connector> Clone for Pool<C> {
    fn clone(&self) -> Pool<C> {
        Pool { handle: self.handle.clone() }
    }
}

impl<C: Connector> fmt::Debug for Pool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status().fmt(f)
    }
}

impl<C: Connector> Drop for Handle<C> {
    fn drop(&mut self) {
        tasks::end(&self.shared);
    }
}

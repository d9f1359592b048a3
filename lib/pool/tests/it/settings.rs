use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use honeyflow_pool::{
    Change, Drain, Functions, Kind, Pool, Provider, RequestOptions, Settings, SettingsError, State,
    settings::{Table, Value, WhenEmpty},
};
use tokio::{sync::Notify, time::Instant};

use crate::{PATIENCE, eventually, full, lines::Lines, node::Node, plain, within};

/// A provider whose settings a test can change, and which reports the change.
struct LiveSettings {
    now: Mutex<Result<Settings, SettingsError>>,
    changed: Notify,
    asked: AtomicUsize,
}

impl LiveSettings {
    fn new(settings: Settings) -> Arc<LiveSettings> {
        Arc::new(LiveSettings { now: Mutex::new(Ok(settings)), changed: Notify::new(), asked: AtomicUsize::new(0) })
    }

    fn set(&self, settings: Result<Settings, SettingsError>) {
        *self.now.lock().unwrap() = settings;
        self.asked.store(0, Ordering::SeqCst);
        self.changed.notify_one();
    }

    /// The pool has asked twice, so the first answer has taken effect.
    fn is_taken(&self) -> bool {
        self.asked.load(Ordering::SeqCst) >= 2
    }
}

impl Provider for LiveSettings {
    fn settings(&self) -> Result<Settings, SettingsError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.now.lock().unwrap().clone()
    }

    fn changed(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.changed.notified())
    }
}

#[tokio::test]
async fn pl_61_good_settings_are_live_and_bad_ones_change_nothing() {
    let node = Node::start().await;
    let live = LiveSettings::new(plain(&[&node]));
    let pool = Pool::start(Lines::exclusive(), live.clone()).unwrap();
    assert!(pool.control().ready(2, Instant::now() + PATIENCE).await);
    let sized = |count| Settings { connections_per_server: Some(count), ..plain(&[&node]) };
    live.set(Ok(sized(5)));
    eventually("grown", || node.open() == 5).await;
    live.set(Ok(Settings { tries: 0, deadline: Duration::ZERO, ..sized(9) }));
    eventually("shown", || pool.status().settings_error.is_some()).await;
    let error = pool.status().settings_error.unwrap();
    assert_eq!(error.wrong.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["deadline", "tries"]);
    live.set(Err(SettingsError::of("servers", "cannot be read")));
    eventually("shown", || pool.status().settings_error.is_some_and(|error| error.wrong[0].0 == "servers")).await;
    assert_eq!(node.open(), 5);
    live.set(Ok(sized(1)));
    eventually("shrunk", || node.open() == 1).await;
    assert_eq!(pool.status().settings_error, None);
    live.set(Ok(Settings { when_empty: WhenEmpty::Fail, ..sized(1) }));
    let _loan = pool.get(RequestOptions::default()).await.unwrap();
    eventually("live for requests", || {
        let mut get = Box::pin(pool.get(RequestOptions::default()));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        matches!(Future::poll(get.as_mut(), &mut context),
            std::task::Poll::Ready(Err(error)) if error.kind == Kind::NoConnection)
    })
    .await;
}

#[tokio::test]
async fn pl_60_a_provider_of_functions_is_asked_again() {
    let node = Node::start().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let (settings, count) = (plain(&[&node]), asked.clone());
    let provider = Functions(move || {
        let grown = count.fetch_add(1, Ordering::SeqCst) > 0;
        Ok(Settings { connections_per_server: Some(if grown { 3 } else { 1 }), ..settings.clone() })
    });
    let pool = Pool::start(Lines::exclusive(), provider).unwrap();
    assert!(pool.control().ready(3, Instant::now() + PATIENCE).await, "asked {asked:?} times");
    eventually("counted at the server", || node.open() == 3).await;
}

/// PL-61 PL-6: the setting `enabled` disables and enables a running pool; an operator's command in between stays.
#[tokio::test]
async fn pl_61_a_pool_is_switched_off_and_on_by_its_settings() {
    let node = Node::start().await;
    let live = LiveSettings::new(plain(&[&node]));
    let pool = Pool::start(Lines::exclusive(), live.clone()).unwrap();
    assert!(pool.control().ready(2, Instant::now() + PATIENCE).await);
    let switched = |enabled| Settings { enabled, ..plain(&[&node]) };
    live.set(Ok(switched(false)));
    eventually("off, without a socket", || pool.status().state == State::Disabled && node.open() == 0).await;
    assert_eq!(pool.get(RequestOptions::default()).await.unwrap_err().kind, Kind::Disabled);
    live.set(Ok(switched(true)));
    assert!(pool.control().ready(2, Instant::now() + PATIENCE).await, "{:?}", pool.status());
    pool.control().disable(Drain::within(Duration::ZERO)).await;
    live.set(Ok(Settings { tries: 2, ..switched(true) }));
    eventually("the change was seen", || live.is_taken()).await;
    assert_eq!(pool.status().state, State::Disabled, "the setting did not change");
}

/// A provider that disables and enables the pool in quick succession.
struct HastyProvider {
    next: Mutex<Vec<Settings>>,
    last: Settings,
    changed: Notify,
}

impl Provider for HastyProvider {
    fn settings(&self) -> Result<Settings, SettingsError> {
        let next = self.next.lock().unwrap().pop();
        if next.is_some() {
            self.changed.notify_one();
        }
        Ok(next.unwrap_or_else(|| self.last.clone()))
    }

    fn changed(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.changed.notified())
    }
}

/// PL-61 PL-6
#[tokio::test]
async fn pl_61_a_pool_that_was_off_for_a_moment_is_on_again() {
    let node = Node::start().await;
    let switched = |enabled| Settings { enabled, ..plain(&[&node]) };
    let next = Mutex::new(vec![switched(false), switched(true)]);
    let hasty = Arc::new(HastyProvider { next, last: switched(true), changed: Notify::new() });
    let pool = Pool::start(Lines::exclusive(), hasty.clone()).unwrap();
    let mut changes = pool.control().changes();
    let off = async { while !matches!(changes.next().await, Some(Change::State { now: State::Disabled, .. })) {} };
    within("off", off).await;
    hasty.changed.notify_one();
    assert!(pool.control().ready(2, Instant::now() + PATIENCE).await, "{:?}", pool.status());
}

/// PL-60 PL-61: the connector's tables are as live as the pool's own keys, and the connector may refuse them.
#[tokio::test]
async fn pl_60_a_connector_gets_its_own_part() {
    let node = Node::start().await;
    let own = |name: &str| Table::from([(name.to_owned(), Value::Table(Table::new()))]);
    let with =
        |name: &str, size| Settings { connector: own(name), connections_per_server: Some(size), ..plain(&[&node]) };
    let live = LiveSettings::new(with("first", 2));
    let connector = Lines::exclusive();
    let told = connector.told.clone();
    let pool = Pool::start(connector, live.clone()).unwrap();
    assert_eq!(*told.lock().unwrap(), own("first"), "before anything is opened");
    live.set(Ok(with("second", 3)));
    eventually("configured again", || *told.lock().unwrap() == own("second")).await;
    eventually("with the rest", || node.open() == 3).await;
    live.set(Ok(with("wrong", 4)));
    eventually("shown", || pool.status().settings_error.is_some_and(|error| error.wrong[0].0 == "wrong")).await;
    assert_eq!((node.open(), &*told.lock().unwrap()), (3, &own("second")), "nothing of it was taken");
    assert!(Pool::start(Lines::exclusive(), with("wrong", 1)).is_err());
}

#[tokio::test]
async fn pl_61_a_pool_with_bad_settings_does_not_start() {
    let error = Pool::start(Lines::exclusive(), Settings { port: 0, ..Settings::default() }).unwrap_err();
    assert_eq!(error.to_string(), "the pool's settings cannot be used: port is 0, allowed is 1 to 65535");
}

#[tokio::test]
async fn pl_62_many_pools_live_in_one_process() {
    let node = Node::start().await;
    let mut pools = Vec::new();
    for _ in 0..10 {
        pools.push(full(plain(&[&node]), Lines::exclusive(), 2).await);
    }
    eventually("each has its own", || node.open() == 20).await;
    pools.truncate(5);
    eventually("the others keep theirs", || node.open() == 10).await;
}

//! Servers that are configured by name, on a paused clock.

use std::time::Duration;

use honeyflow_pool::{
    Pool, RequestOptions, Server, ServerState, Settings,
    testing::memory::{self, Memory},
};
use tokio::time::{Instant, sleep};

const NAME: &str = "db.example.com:9042";
const SECOND: Duration = Duration::from_secs(1);

fn named(cluster: &Memory, discovery: bool) -> Pool<Memory> {
    let settings = Settings { servers: vec![NAME.to_owned()], discovery, ..Settings::default() };
    cluster.pool(settings, 7).expect("good settings")
}

/// PL-10 PL-102: a request waits meanwhile, and is served when the name can be looked up, without an operator's help.
#[tokio::test(start_paused = true)]
async fn pl_10_a_pool_starts_to_serve_when_its_name_can_be_looked_up() {
    for discovery in [false, true] {
        let cluster = Memory::new(1, 64);
        let server = Server::at("127.0.0.1:1".parse().unwrap()).named("a");
        cluster.host(0).knows(&[server]);
        let pool = named(&cluster, discovery);
        sleep(60 * SECOND).await;
        assert!(pool.status().servers.is_empty());
        let error =
            pool.with(RequestOptions::within(SECOND), |loan| memory::ask(loan, "x")).await.unwrap_err().to_string();
        assert!(error.contains(&format!("{NAME} cannot be looked up: no such name")), "{error}");
        let asking = pool.clone();
        let want = RequestOptions::within(10 * SECOND);
        let patient = tokio::spawn(async move { asking.with(want, |loan| memory::ask(loan, "x")).await.is_ok() });
        sleep(SECOND).await;
        let (known, waiting): (usize, usize) = (pool.status().servers.len(), pool.status().waiting.iter().sum());
        assert_eq!((known, waiting), (0, 1));
        cluster.lead(NAME, 0);
        let began = Instant::now();
        assert!(patient.await.unwrap(), "discovery: {discovery}");
        assert!(began.elapsed() <= 3 * SECOND, "discovery: {discovery}, after {:?}", began.elapsed());
        assert!(pool.control().ready(2, Instant::now() + SECOND).await);
        let status = pool.status();
        assert_eq!(status.servers.iter().map(|server| server.state).collect::<Vec<_>>(), [ServerState::Up]);
        assert_eq!((status.discovery_error, status.waiting.iter().sum::<usize>()), (None, 0));
    }
}

/// PL-10: the pool follows a name whose address changes, also without discovery.
#[tokio::test(start_paused = true)]
async fn pl_10_a_name_that_leads_elsewhere_is_followed() {
    let cluster = Memory::new(2, 64);
    cluster.lead(NAME, 0);
    let pool = named(&cluster, false);
    assert!(pool.control().ready(2, Instant::now() + SECOND).await);
    cluster.lead(NAME, 1);
    sleep(60 * SECOND).await;
    assert_eq!((cluster.host(0).open(), cluster.host(1).open()), (0, 2));
    assert_eq!(pool.status().servers.len(), 1);
}

/// PL-10 PL-12: names whose look-up hangs cost one time-out together, and the others are used meanwhile.
#[tokio::test(start_paused = true)]
async fn pl_10_names_are_looked_up_together() {
    let cluster = Memory::new(2, 64);
    let mut servers: Vec<String> = (0..8).map(|at| format!("lost-{at}.example.com:9042")).collect();
    servers.iter().for_each(|name| cluster.lose(name));
    cluster.lead(NAME, 0);
    servers.push(NAME.to_owned());
    servers.push("127.0.0.1:2".to_owned());
    let settings = Settings { servers, discovery: false, ..Settings::default() };
    let pool = cluster.pool(settings, 7).expect("good settings");
    assert!(pool.control().ready(4, Instant::now() + SECOND).await, "{:?}", pool.status());
    assert_eq!(pool.status().discovery_error, None, "the others are still looked up");
    sleep(5 * SECOND).await;
    let shown = pool.status().discovery_error.expect("the others cannot be looked up");
    assert_eq!(shown.matches("cannot be looked up: no answer for 5 s").count(), 8, "{shown}");
}

//! The suite of several members and their limits, on one server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::{BoxFuture, ready};
use honeyflow_hive::{Hive, HiveStore, Options, limit::Definition};
use honeyflow_services::throwaway_redis;

use crate::server;

async fn fresh() -> Option<impl Fn() -> BoxFuture<'static, Arc<dyn HiveStore>>> {
    let (url, name) = (honeyflow_services::redis()?.url, server::fresh_name("fleet"));
    Some(move || -> BoxFuture<'static, Arc<dyn HiveStore>> {
        let hive: Arc<dyn HiveStore> = Arc::new(server::open(&url, &name));
        Box::pin(ready(hive))
    })
}

honeyflow_conformance::fleet_suite!(maybe fresh);

/// F46, HV-60: the store loses everything while two members draw. At most one burst more is admitted, and the limit
/// then works as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f46_a_flush_admits_one_burst_more_at_most() {
    let Some(redis) = throwaway_redis() else { return };
    let quota = Definition::parse("api", "500/s").unwrap();
    let join = async |name: &str| {
        let options = Options { watch_runtime: false, ..Options::named(name) }.fast().limit(quota.clone());
        let hive = Hive::join(Arc::new(server::open(redis.url(), "x")), options).await.unwrap();
        let api = hive.limit("api").unwrap();
        (hive, api)
    };
    let (one, two) = (join("a").await, join("b").await);
    let admitted = Arc::new(AtomicU64::new(0));
    let takers = [&one, &two].map(|(hive, api)| {
        let (hive, api, admitted) = (hive.clone(), api.clone(), admitted.clone());
        tokio::spawn(async move {
            loop {
                hive.engage();
                match api.try_take(1).await {
                    Ok(_) => drop(admitted.fetch_add(1, Ordering::Relaxed)),
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        })
    });
    let until_more = async |more: u64| {
        let before = admitted.load(Ordering::Relaxed);
        let came = tokio::time::timeout(Duration::from_secs(60), async {
            while admitted.load(Ordering::Relaxed) < before + more {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(came.await.is_ok(), "no more than {} since {before}", admitted.load(Ordering::Relaxed));
    };
    until_more(500).await;
    let (begun, before) = (Instant::now(), admitted.load(Ordering::Relaxed));
    for _ in 0..3 {
        server::send_command(redis.url(), &["FLUSHALL"]).await;
        until_more(500).await;
    }
    let given = admitted.load(Ordering::Relaxed) - before;
    let burst = one.1.terms().burst;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a test")]
    let allowed = (begun.elapsed().as_secs_f64() * 500.0) as u64 + 1 + burst * 4;
    assert!(given <= allowed, "{given} of {allowed}: a burst, and one more for each flush");
    takers.iter().for_each(tokio::task::JoinHandle::abort);
}

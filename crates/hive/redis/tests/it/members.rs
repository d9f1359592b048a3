//! Whole members: three on one server, with failures of a member and of the server.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::{BoxFuture, FutureExt};
use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Capabilities, Hive, HiveStore, Options, Reply, Request, Term,
    service::{Change, Role},
};
use honeyflow_hive_redis::RedisHive;
use honeyflow_runtime::Failure;
use honeyflow_services::throwaway_redis;

use crate::{proxy::Proxy, server};

const SHARDS: u32 = 6;

/// A timeout that is long enough on a busy machine for everything that works at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that can die: from then on it neither sends nor receives.
struct Process {
    hive: RedisHive,
    dead: AtomicBool,
}

impl HiveStore for Process {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        if self.dead.load(Ordering::Relaxed) { std::future::pending().boxed() } else { self.hive.call(request) }
    }

    fn capabilities(&self) -> Capabilities {
        self.hive.capabilities()
    }
}

/// The terms that a member holds, and every epoch that it was ever given.
#[derive(Default)]
struct HeldTerms {
    terms: BTreeMap<Name, Term>,
    given: Vec<(Name, Epoch)>,
}

struct Member {
    process: Arc<Process>,
    hive: Hive,
    held: Arc<Mutex<HeldTerms>>,
}

impl Member {
    async fn join(url: &str, hive: &str, name: &str) -> Member {
        let process = Arc::new(Process { hive: server::open(url, hive), dead: AtomicBool::new(false) });
        // On a busy machine a thread may wait for seconds. The times are long, so that no node looks dead for that.
        let (heartbeat, time_to_live) = (Duration::from_secs(1), Duration::from_secs(8));
        let options = Options { heartbeat, time_to_live, watch_runtime: false, ..Options::named(name).source("shop") };
        let hive = Hive::join(process.clone(), options).await.unwrap();
        let mut shards = hive.shards("shop", SHARDS, false).await.unwrap();
        let held: Arc<Mutex<HeldTerms>> = Arc::default();
        let (keeps, leaves) = (held.clone(), hive.clone());
        tokio::spawn(async move {
            while let Some(change) = shards.next().await {
                match change {
                    Change::Gained(term) => {
                        let mut held = keeps.lock().unwrap();
                        held.given.push((term.lease().clone(), term.epoch()));
                        held.terms.insert(term.lease().clone(), term);
                    }
                    Change::Leave { held, .. } => {
                        keeps.lock().unwrap().terms.remove(&held.lease);
                        leaves.left(held).await;
                    }
                    Change::Lost { lease, .. } => {
                        keeps.lock().unwrap().terms.remove(&lease);
                    }
                }
            }
        });
        Member { process, hive, held }
    }

    fn shards(&self) -> Vec<Name> {
        let held = self.held.lock().unwrap();
        held.terms.values().filter(|term| term.check()).map(|term| term.lease().clone()).collect()
    }

    fn is_queen(&self) -> bool {
        matches!(self.hive.role(), Role::Queen(_))
    }

    fn given(&self) -> Vec<(Name, Epoch)> {
        self.held.lock().unwrap().given.clone()
    }

    fn kill(&self) {
        self.process.dead.store(true, Ordering::Relaxed);
    }
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "it takes too long until {what}");
}

async fn until_spread(members: &[&Member], each: usize) {
    let held = || members.iter().map(|member| member.shards()).collect::<Vec<_>>();
    let waited = tokio::time::timeout(PATIENCE, async {
        while !are_spread(members, each) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    if waited.await.is_err() {
        let roles: Vec<Role> = members.iter().map(|member| member.hive.role()).collect();
        let views: Vec<_> = members.iter().map(|member| member.hive.view()).collect();
        panic!("not spread: {:?}, {roles:?}, {views:#?}", held());
    }
}

/// Whether every shard has one holder, and each member has `each` shards.
fn are_spread(members: &[&Member], each: usize) -> bool {
    let mut all: Vec<Name> = members.iter().flat_map(|member| member.shards()).collect();
    all.sort();
    all.dedup();
    all.len() == SHARDS as usize && members.iter().all(|member| member.shards().len() == each)
}

fn highest(members: &[&Member]) -> BTreeMap<Name, Epoch> {
    let mut highest = BTreeMap::new();
    for (lease, epoch) in members.iter().flat_map(|member| member.given()) {
        let last = highest.entry(lease).or_insert(epoch);
        *last = (*last).max(epoch);
    }
    highest
}

/// Asserts that no epoch of a lease is given twice.
fn each_epoch_is_given_once(members: &[&Member]) {
    let mut all: Vec<(Name, Epoch)> = members.iter().flat_map(|member| member.given()).collect();
    let given = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), given, "an epoch was given twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_56_three_members_share_and_two_take_over_from_the_third() {
    let Some(redis) = honeyflow_services::redis() else { return };
    let name = server::fresh_name("members");
    let [a, b, c] = ["a", "b", "c"].map(|member| Member::join(&redis.url, &name, member));
    let (a, b, c) = tokio::join!(a, b, c);
    let all = [&a, &b, &c];
    until("there is one queen", || all.iter().filter(|member| member.is_queen()).count() == 1).await;
    until_spread(&all, 2).await;
    let before = highest(&all);
    let (dead, rest): (Vec<&Member>, Vec<&Member>) = all.into_iter().partition(|member| member.is_queen());
    let (lost, its) = (dead[0], dead[0].shards());
    lost.kill();
    until("there is another queen", || rest.iter().filter(|member| member.is_queen()).count() == 1).await;
    until_spread(&rest, 3).await;
    assert!(lost.shards().is_empty(), "its terms have ended by themselves");
    let after = highest(&rest);
    for shard in its {
        assert!(after[&shard] > before[&shard], "{shard}");
    }
    each_epoch_is_given_once(&all);
}

/// HV-23, HI-2: the server comes back empty. Terms end, no node mints before the longest time to live is over, and
/// epochs only grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_23_after_an_empty_restart_no_node_mints_early() {
    let Some(mut redis) = throwaway_redis() else { return };
    let (a, b) = tokio::join!(Member::join(redis.url(), "x", "a"), Member::join(redis.url(), "x", "b"));
    let both = [&a, &b];
    until_spread(&both, 3).await;
    let before = highest(&both);
    redis.restart_empty().unwrap();
    until("all terms have ended", || both.iter().all(|member| member.shards().is_empty())).await;
    until_spread(&both, 3).await;
    let after = highest(&both);
    assert!(before.iter().all(|(shard, epoch)| after[shard] > *epoch), "{before:?} {after:?}");
    each_epoch_is_given_once(&both);
    minted_after_the_wait(redis.url(), "x").await;
}

/// The same with a failover to a replica that has not received the last take-overs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_84_a_promoted_replica_without_the_last_take_overs() {
    let Some(mut primary) = throwaway_redis() else { return };
    let arguments = ["--replicaof", "127.0.0.1", &primary.port().to_string(), "--repl-diskless-sync-delay", "0"];
    let Some(replica) = honeyflow_services::throwaway(honeyflow_services::Server::Redis, &arguments) else { return };
    let proxy = Proxy::to(primary.port()).await;
    let (a, b) = tokio::join!(Member::join(&proxy.url, "x", "a"), Member::join(&proxy.url, "x", "b"));
    let both = [&a, &b];
    until_spread(&both, 3).await;
    // From here on the replica receives nothing. All leases are minted again on the primary, where that will be lost.
    server::send_command(replica.url(), &["REPLICAOF", "NO", "ONE"]).await;
    let known = highest(&both);
    for member in both {
        for shard in member.shards() {
            member.hive.mint(shard, Epoch(0)).await;
        }
    }
    until("all are minted again", || highest(&both).iter().all(|(shard, epoch)| *epoch > known[shard])).await;
    until_spread(&both, 3).await;
    let before = highest(&both);
    primary.kill();
    proxy.lead_to(replica.port());
    until("new ones are given", || highest(&both).iter().all(|(shard, epoch)| *epoch > before[shard])).await;
    until_spread(&both, 3).await;
    each_epoch_is_given_once(&both);
    minted_after_the_wait(replica.url(), "x").await;
}

/// Asserts that every event that gives a lease comes after the new lineage was recorded and its wait was over.
async fn minted_after_the_wait(url: &str, hive: &str) {
    let store = server::open(url, hive);
    let Reply::View(view) = store.call(Request::View).await.unwrap() else { panic!("no view") };
    let history = Request::History { lease: None, until_ms: None, max: 10_000 };
    let Reply::History(events) = store.call(history).await.unwrap() else { panic!("no history") };
    let given: Vec<_> =
        events.iter().filter(|event| event.at_ms >= view.head.lineage_ms && event.epoch.is_some()).collect();
    assert!(!given.is_empty());
    for event in given {
        let earliest_ms = view.head.lineage_ms + view.head.max_ttl_ms;
        assert!(event.at_ms >= earliest_ms, "{event:?} before {earliest_ms}");
    }
}

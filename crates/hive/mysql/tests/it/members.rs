//! Whole members on one server: a queen, shards, and what happens when a member dies without a leave.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::{BoxFuture, FutureExt};
use honeyflow_hive::{
    Capabilities, Hive, HiveStore, Options, Reply, Request,
    contract::{Event, EventKind, HIVE},
    service::{Change, Role},
};
use honeyflow_hive_mysql::MysqlHive;
use honeyflow_runtime::Failure;

use crate::TestDatabase;

const SHARDS: u32 = 6;
/// A timeout that is long enough on a busy machine for everything that works at all.
const PATIENCE: Duration = Duration::from_secs(90);

/// A process that can be killed: its connections are gone, and it informs no other node.
struct Process(Mutex<Option<MysqlHive>>);

impl Process {
    fn kill(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl HiveStore for Process {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(hive) => hive.call(request),
            None => std::future::pending().boxed(),
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { many_hosts: true, durable: true, doorbell: false }
    }
}

type Owners = Arc<Mutex<BTreeMap<String, BTreeMap<String, u64>>>>;

struct Member {
    name: &'static str,
    process: Arc<Process>,
    hive: Hive,
}

impl Member {
    /// Joins, and records in `owners` which shards the member gains and loses.
    async fn join(options: &honeyflow_hive_mysql::Options, name: &'static str, owners: &Owners) -> Member {
        // On a busy machine a thread may wait for seconds. The times are long, so that no node looks dead for that.
        let (heartbeat, time_to_live) = (Duration::from_secs(1), Duration::from_secs(8));
        let patient = Options { heartbeat, time_to_live, ..Options::named(name) };
        Member::join_as(options, patient, name, owners).await
    }

    async fn join_as(
        options: &honeyflow_hive_mysql::Options,
        times: Options,
        name: &'static str,
        owners: &Owners,
    ) -> Member {
        let process = Arc::new(Process(Mutex::new(Some(MysqlHive::open(options).unwrap()))));
        let hive = Hive::join(process.clone(), times.source("shop")).await.unwrap();
        let mut shards = hive.shards("shop", SHARDS, false).await.unwrap();
        let owners = Arc::clone(owners);
        tokio::spawn(async move {
            while let Some(change) = shards.next().await {
                let left = {
                    let mut owners = owners.lock().unwrap();
                    let own = owners.entry(name.to_owned()).or_default();
                    match change {
                        Change::Gained(term) => {
                            own.insert(term.lease().to_string(), term.epoch().0);
                            None
                        }
                        Change::Lost { lease, .. } => {
                            own.remove(&*lease);
                            None
                        }
                        Change::Leave { held, .. } => {
                            own.remove(&*held.lease);
                            Some(held)
                        }
                    }
                };
                if let Some(held) = left {
                    shards.hive().left(held).await;
                }
            }
        });
        Member { name, process, hive }
    }

    fn is_queen(&self) -> bool {
        matches!(self.hive.role(), Role::Queen(_))
    }
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}: it takes too long");
}

fn held(owners: &Owners, name: &str) -> BTreeMap<String, u64> {
    owners.lock().unwrap().get(name).cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_56_the_shards_of_a_dead_member_are_taken_over() {
    let Some(place) = TestDatabase::fresh().await else { return };
    // The members may outlive the test, so no other test reuses this database.
    let place = std::mem::ManuallyDrop::new(place);
    let owners = Owners::default();
    let mut members = Vec::new();
    for name in ["a", "b", "c"] {
        members.push(Member::join(&place.options(HIVE), name, &owners).await);
    }
    until("one queen, and two shards each", || {
        members.iter().filter(|member| member.is_queen()).count() == 1
            && members.iter().all(|member| held(&owners, member.name).len() == 2)
    })
    .await;
    let dead = members.iter().position(Member::is_queen).unwrap();
    let dead = members.swap_remove(dead);
    let (lost, id) = (held(&owners, dead.name), dead.hive.node());
    dead.process.kill();
    until("another queen", || members.iter().filter(|member| member.is_queen()).count() == 1).await;
    let all = || members.iter().flat_map(|member| held(&owners, member.name)).collect::<BTreeMap<_, _>>();
    until("all shards of the dead one", || all().len() == SHARDS as usize).await;
    for (lease, epoch) in &lost {
        assert!(all()[lease] > *epoch, "{lease} is held under a higher epoch");
    }
    until("it knows by itself", || held(&owners, dead.name).is_empty()).await;
    let history = Request::History { lease: None, until_ms: None, max: 100 };
    let Ok(Reply::History(events)) = members[0].hive.store().call(history).await else { panic!("no history") };
    let is_its_burial = |event: &Event| event.kind == EventKind::Buried && event.node == id;
    assert!(events.iter().any(is_its_burial), "{events:?}");
    for member in &members {
        member.hive.leave().await;
    }
    assert_eq!(place.number("select count(*) from hive_node").await, 0, "they have left");
}

/// HV-22: while the server is down, work stops and no member is removed. Afterwards each member has its old id and
/// shards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_22_an_outage_removes_no_member() {
    let Some(mut server) = honeyflow_services::throwaway_mariadb() else { return };
    let options = honeyflow_hive_mysql::Options::new(server.url());
    let owners = Owners::default();
    // The member that reaches the server first must not find that the other one has expired.
    let calm = |name| {
        let times = Options::named(name);
        Options { heartbeat: Duration::from_secs(1), time_to_live: Duration::from_secs(4), ..times }
    };
    let join = async |name| Member::join_as(&options, calm(name), name, &owners).await;
    let members = [join("a").await, join("b").await];
    let settled = || members.iter().all(|member| held(&owners, member.name).len() == 3);
    until("three shards each", settled).await;
    let before = members.each_ref().map(|member| (member.hive.node(), held(&owners, member.name)));
    server.kill();
    until("no member holds a shard", || members.iter().all(|member| held(&owners, member.name).is_empty())).await;
    server.start().unwrap();
    until("three shards each", settled).await;
    for (member, (id, had)) in members.iter().zip(before) {
        assert_eq!(member.hive.node(), id, "{}", member.name);
        let has = held(&owners, member.name);
        assert!(has.keys().eq(had.keys()), "{has:?} after {had:?}");
        assert!(has.iter().all(|(lease, epoch)| *epoch > had[lease]), "{has:?} after {had:?}");
    }
}

/// A server that is down is no error: the node joins when it is up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_joins_once_the_server_is_there() {
    let Some(mut server) = honeyflow_services::throwaway_mariadb() else { return };
    server.stop();
    let store = honeyflow_hive_mysql::open(server.url()).await.unwrap();
    let hive = Hive::join(store, Options::named("early").fast()).await.unwrap();
    assert!(!matches!(hive.role(), Role::Queen(_)));
    server.start().unwrap();
    until("a queen", || matches!(hive.role(), Role::Queen(_))).await;
    hive.leave().await;
}

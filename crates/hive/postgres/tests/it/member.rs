//! Whole nodes on a real server: one leads, all share the shards, and the others take over the shards of a dead node.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Capabilities, Hive, HiveStore, NodeId, Options, Reply, Request,
    contract::EventKind,
    service::{Change, Role},
};
use honeyflow_hive_postgres::PostgresHive;
use honeyflow_runtime::Failure;

use crate::TestDatabase;

const SHARDS: u32 = 12;
/// A timeout that is long enough on a busy machine for everything that works at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store that can be cut off at once, as if its plug was pulled.
struct CuttableStore {
    store: PostgresHive,
    pulled: AtomicBool,
}

impl HiveStore for CuttableStore {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        if self.pulled.load(Ordering::Relaxed) {
            return std::future::pending().boxed();
        }
        self.store.call(request)
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}

pub struct Node {
    plug: Arc<CuttableStore>,
    pub hive: Hive,
    held: Arc<Mutex<BTreeMap<Name, Epoch>>>,
}

impl Node {
    pub async fn join(options: &honeyflow_hive_postgres::Options, times: Options) -> Node {
        let store = PostgresHive::open(options).unwrap();
        let plug = Arc::new(CuttableStore { store, pulled: AtomicBool::new(false) });
        let hive = Hive::join(plug.clone(), times).await.unwrap();
        let mut shards = hive.shards("shop", SHARDS, false).await.unwrap();
        let held = Arc::<Mutex<BTreeMap<Name, Epoch>>>::default();
        let holds = held.clone();
        tokio::spawn(async move {
            while let Some(change) = shards.next().await {
                match change {
                    Change::Gained(term) => {
                        holds.lock().unwrap().insert(term.lease().clone(), term.epoch());
                    }
                    Change::Lost { lease, .. } => {
                        holds.lock().unwrap().remove(&lease);
                    }
                    Change::Leave { held, .. } => {
                        holds.lock().unwrap().remove(&held.lease);
                        shards.hive().left(held).await;
                    }
                }
            }
        });
        Node { plug, hive, held }
    }

    pub fn held(&self) -> BTreeMap<Name, Epoch> {
        self.held.lock().unwrap().clone()
    }

    pub fn id(&self) -> NodeId {
        self.hive.node().expect("it has joined")
    }

    fn cut_off(&self) {
        self.plug.pulled.store(true, Ordering::Relaxed);
    }

    fn leads(&self) -> bool {
        matches!(self.hive.role(), Role::Queen(_))
    }
}

pub async fn until(what: &str, is: impl Fn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}: it takes too long");
}

/// Whether all nodes have the same number of shards, and together all of them.
pub fn is_spread(nodes: &[&Node]) -> bool {
    let counts: Vec<usize> = nodes.iter().map(|node| node.held().len()).collect();
    counts.iter().all(|count| *count == SHARDS as usize / nodes.len())
}

/// On a busy machine a thread may wait for seconds. The times are long, so that no node looks dead for that.
fn patient(name: &str) -> Options {
    let (heartbeat, time_to_live) = (Duration::from_secs(1), Duration::from_secs(8));
    Options { heartbeat, time_to_live, ..Options::named(name).source("shop") }
}

async fn one_dies(field: &TestDatabase) {
    let options = field.options();
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        nodes.push(Node::join(&options, patient(name)).await);
    }
    let one_leads = || nodes.iter().filter(|node| node.leads()).count() == 1;
    until("a queen, and shards are spread", || one_leads() && is_spread(&nodes.iter().collect::<Vec<_>>())).await;
    let queen = nodes.iter().position(Node::leads).unwrap();
    let dead = nodes.remove(queen);
    let (orphans, id) = (dead.held(), dead.id());
    dead.cut_off();
    until("another queen", || nodes.iter().filter(|node| node.leads()).count() == 1).await;
    until("its shards are taken", || is_spread(&nodes.iter().collect::<Vec<_>>())).await;
    let after: BTreeMap<Name, Epoch> = nodes.iter().flat_map(Node::held).collect();
    for (lease, epoch) in &orphans {
        assert!(after[lease] > *epoch, "{lease}");
    }
    let store = field.open();
    let history = store.call(Request::History { lease: None, until_ms: None, max: 1000 }).await.unwrap();
    let Reply::History(events) = history else { panic!("{history:?}") };
    let buried: Vec<_> =
        events.iter().filter(|event| event.kind == EventKind::Buried).map(|event| event.node).collect();
    assert_eq!(buried.iter().filter(|node| **node == Some(id)).count(), 1, "once: {buried:?}");
    for node in &nodes {
        tokio::time::timeout(PATIENCE, node.hive.leave()).await.expect("it leaves");
    }
    let Ok(Reply::View(view)) = store.call(Request::View).await else { panic!("no view") };
    assert!(view.nodes.is_empty() && view.leases.iter().all(|lease| lease.free), "{view:?}");
}

/// HV-56
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_share_the_work_and_take_over_from_the_dead() {
    let Some(field) = TestDatabase::straight().await else { return };
    one_dies(&field).await;
}

/// HV-56
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_behind_a_pooler_take_over_from_the_dead() {
    let Some(field) = TestDatabase::pooled().await else { return };
    one_dies(&field).await;
}

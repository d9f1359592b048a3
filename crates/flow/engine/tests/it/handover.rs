//! A shard is transferred to another node while the engine's tasks run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use honeyflow_hive::{
    Hive, Options, Reply, Request,
    contract::{Event, EventKind},
    service::Change,
};

use crate::{
    engine::{DEADLINE, Engine},
    table::{LEASE, plain},
};

fn history(engine: &Engine) -> Vec<Event> {
    let history = Request::History { lease: Some(LEASE.into()), until_ms: None, max: 10 };
    match engine.hive.apply(history) {
        Ok(Reply::History(events)) => events,
        other => panic!("{other:?}"),
    }
}

/// HV-21, HV-92: a draining node waits until another node has its shard, and does not release the shard in between.
#[tokio::test]
async fn hv_92_a_draining_node_transfers_its_shard() {
    let engine = Engine::new(&plain(), 0, 4);
    let running = engine.start();
    engine.recovered(1).await;
    let options = Options { stands: false, watch_runtime: false, ..Options::named("next").source("shop") };
    let next = Hive::join(engine.hive.clone(), options).await.unwrap();
    let mut shards = next.shards("shop", 1, false).await.unwrap();
    // Each node knows of the other after its next heartbeat and the read of the changes.
    let ours = history(&engine)[0].node;
    let beats = || match engine.hive.apply(Request::View) {
        Ok(Reply::View(view)) => view.nodes.iter().find(|node| Some(node.id) == ours).map_or(0, |node| node.beat),
        other => panic!("{other:?}"),
    };
    let mut watch = next.watch();
    while watch.next().await.is_some_and(|update| update.view.nodes.iter().filter(|node| node.eligible).count() < 2) {}
    let known_at = beats() + 2;
    while beats() < known_at {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    engine.handle.drain().await;
    let gained = tokio::time::timeout(DEADLINE, shards.next()).await;
    assert!(matches!(gained, Ok(Some(Change::Gained(_)))), "{gained:?}");
    let kinds: Vec<EventKind> = history(&engine).iter().map(|event| event.kind).collect();
    assert!(!kinds.contains(&EventKind::Released) && kinds.contains(&EventKind::HandedOver), "{:?}", history(&engine));
    let ended = tokio::time::timeout(DEADLINE, running).await;
    assert!(matches!(ended, Ok(Ok(Ok(())))), "{ended:?}");
}

#[tokio::test]
async fn hv_21_a_single_node_drains_without_waiting() {
    let engine = Engine::new(&plain(), 0, 4);
    let running = engine.start();
    engine.recovered(1).await;
    engine.handle.drain().await;
    let ended = tokio::time::timeout(DEADLINE, running).await;
    assert!(matches!(ended, Ok(Ok(Ok(())))), "{ended:?}");
}

/// The engine handles the loss of a shard first, even with many other inputs queued.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn hv_46_a_busy_engine_handles_a_lost_lease_first() {
    let engine = Engine::new(&plain(), 0, 4);
    let running = engine.start();
    engine.recovered(1).await;
    let over = Arc::new(AtomicBool::new(false));
    let mut floods = Vec::new();
    for _ in 0..4 {
        let (handle, over) = (engine.handle.clone(), over.clone());
        floods.push(tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                handle.pause("index".into(), false).await;
            }
        }));
    }
    let holder = history(&engine)[0].node.unwrap();
    engine.hive.remove_dead(holder);
    engine.recovered(2).await;
    over.store(true, Ordering::Relaxed);
    for flood in floods {
        tokio::time::timeout(Duration::from_secs(30), flood).await.unwrap().unwrap();
    }
    running.abort();
}

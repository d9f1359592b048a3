//! Clusters whose servers speak different versions, and remarks in the status.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::network::Network;
use crate::speak::Cells;

const PAGES: usize = 5;

/// A page of one row. The server's version is part of the page state, and a foreign page state is refused.
fn page(received: &ReceivedRequest, foreign: &AtomicUsize) -> Reply {
    let RequestBody::Execute(execute) = &received.request else { return Reply::Nothing };
    let state = execute.query_parameters.paging_state.as_ref().and_then(|state| state.clone().into_bytes());
    let (version, at) = match state.as_deref() {
        Some([version, at]) => (*version, usize::from(*at)),
        _ => (received.version.number(), 0),
    };
    if version != received.version.number() {
        foreign.fetch_add(1, Ordering::Relaxed);
        return refuse(0x000a, Body::new());
    }
    let row: Cells = vec![Some(i32::try_from(at).unwrap().to_be_bytes().to_vec())];
    let next = [version, u8::try_from(at + 1).unwrap()];
    let next = (at + 1 < PAGES).then_some(&next[..]);
    Reply::Answer(opcode::RESULT, speak::rows(&[("n", Type::Int)], &[row], next))
}

#[tokio::test]
async fn cq_2_pages_continue_at_servers_of_the_version_in_which_they_began() {
    let cluster = Cluster::default();
    let foreign = Arc::new(AtomicUsize::new(0));
    let versions = [&[Version::V4, Version::V5][..], &[Version::V4], &[Version::V4, Version::V5], &[Version::V4]];
    for (number, spoken) in versions.into_iter().enumerate() {
        let (own, foreign) = (cluster.clone(), foreign.clone());
        let mut script = Script::new(move |received| match &received.request {
            RequestBody::Execute(_) => page(received, &foreign),
            _ => own.reply(number, received),
        });
        script.versions = spoken.to_vec();
        let address = script.listen().await;
        let quarter = [i64::MIN / 2, 0, i64::MAX / 2, i64::MAX][number];
        cluster.members.lock().unwrap().push((address, quarter));
    }
    let session = cluster.session(|_| {}).await;
    // With token awareness, and without it.
    for session in [session.clone(), session.token_aware(false)] {
        let get = session.prepare(SELECT).await.unwrap();
        for id in 0..20_i32 {
            let mut pages = session.pages(&get, (id,), &patient());
            let mut read = Vec::new();
            while let Some(rows) = pages.next().await {
                read.extend(rows.unwrap().typed::<(i32,)>().map(|row| row.unwrap().0));
            }
            assert_eq!(read, [0, 1, 2, 3, 4]);
        }
    }
    assert_eq!(foreign.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn cq_4_cq_11_requested_features_that_are_not_available_are_in_the_status() {
    let cluster = Cluster::of(&[0]).await;
    let first = cluster.members.lock().unwrap()[0].0;
    let settings = Settings { compression: Compression::Snappy, ..Settings::default() };
    let session = Session::open(settings, patient_pool(first)).unwrap();
    let remarks = || session.pool().status().remarks;
    eventually("the status has the remark", || !remarks().is_empty()).await;
    assert!(remarks()[0].contains("Snappy was asked for") && remarks()[0].contains("has Lz4"), "{:?}", remarks());

    // The replicas of a key are unknown; the servers are used nevertheless.
    *cluster.partitioner.lock().unwrap() = "org.apache.cassandra.dht.RandomPartitioner";
    session.pool().control().refresh();
    eventually("the status has the remark", || remarks().iter().any(|remark| remark.contains("RandomPartitioner")))
        .await;
    let get = session.prepare(SELECT).await.unwrap();
    session.execute(&get, (1_i32,), &patient()).await.unwrap();
    *cluster.partitioner.lock().unwrap() = MURMUR3;
    session.pool().control().refresh();
    eventually("the remark is gone", || !remarks().iter().any(|remark| remark.contains("RandomPartitioner"))).await;
}

#[tokio::test(start_paused = true)]
async fn cq_2_a_version_is_negotiated_once_per_server_and_again_after_all_connections_ended() {
    let mut old = Script::echo();
    old.versions = vec![Version::V4];
    let network = Network::of([old.clone()]);
    let session = network.session(network.quiet(1));
    assert!(session.pool().control().ready(1, Instant::now() + PATIENCE).await);
    let refused = || old.foreign.load(Ordering::SeqCst);
    assert_eq!(refused(), 1);
    for _ in 0..5 {
        let by = Instant::now() + PATIENCE;
        let version = session.pool().once(&network.server(0), by, async |on| Ok(on.version())).await.unwrap();
        assert_eq!(version, Version::V4);
    }
    assert_eq!(refused(), 1, "a known version is not negotiated again");
    // The server may have been upgraded meanwhile.
    old.cut_all();
    eventually("connected again", || refused() == 2).await;
    session.query("SELECT 1", &patient()).await.unwrap();
}

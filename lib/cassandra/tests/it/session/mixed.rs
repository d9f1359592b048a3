//! Clusters whose servers do not all speak the same version.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::network::Network;
use crate::speak::Cells;

const PAGES: usize = 5;

/// A page of one row; where the next one begins is written in the server's own version.
fn page(heard: &Heard, foreign: &AtomicUsize) -> Say {
    let RequestBody::Execute(execute) = &heard.request else { return Say::Nothing };
    let state = execute.query_parameters.paging_state.as_ref().and_then(|state| state.clone().into_bytes());
    let (version, at) = match state.as_deref() {
        Some([version, at]) => (*version, usize::from(*at)),
        _ => (heard.version.number(), 0),
    };
    if version != heard.version.number() {
        foreign.fetch_add(1, Ordering::Relaxed);
        return refuse(0x000a, Body::new());
    }
    let row: Cells = vec![Some(i32::try_from(at).unwrap().to_be_bytes().to_vec())];
    let next = [version, u8::try_from(at + 1).unwrap()];
    let next = (at + 1 < PAGES).then_some(&next[..]);
    Say::Answer(opcode::RESULT, speak::rows(&[("n", Type::Int)], &[row], next))
}

#[tokio::test]
async fn cq_2_pages_go_on_at_servers_of_the_version_they_were_begun_in() {
    let cluster = Cluster::default();
    let foreign = Arc::new(AtomicUsize::new(0));
    let versions = [&[Version::V4, Version::V5][..], &[Version::V4], &[Version::V4, Version::V5], &[Version::V4]];
    for (number, spoken) in versions.into_iter().enumerate() {
        let (own, foreign) = (cluster.clone(), foreign.clone());
        let mut script = Script::new(move |heard| match &heard.request {
            RequestBody::Execute(_) => page(heard, &foreign),
            _ => own.say(number, heard),
        });
        script.versions = spoken.to_vec();
        let address = script.listen().await;
        let quarter = [i64::MIN / 2, 0, i64::MAX / 2, i64::MAX][number];
        cluster.members.lock().unwrap().push((address, quarter));
    }
    let session = cluster.session(|_| {}).await;
    // Whoever holds the data, and also where nobody knows who does.
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
async fn cq_4_cq_11_what_was_asked_for_and_cannot_be_had_is_told_in_the_status() {
    let cluster = Cluster::of(&[0]).await;
    let first = cluster.members.lock().unwrap()[0].0;
    let settings = Settings { compression: Compression::Snappy, ..Settings::default() };
    let session = Session::open(settings, patient_pool(first)).unwrap();
    let remarks = || session.pool().status().remarks;
    eventually("it is told", || !remarks().is_empty()).await;
    assert!(remarks()[0].contains("Snappy was asked for") && remarks()[0].contains("has Lz4"), "{:?}", remarks());

    // Nobody can say where a key lives; its servers are used all the same.
    *cluster.partitioner.lock().unwrap() = "org.apache.cassandra.dht.RandomPartitioner";
    session.pool().control().refresh();
    eventually("it is told", || remarks().iter().any(|remark| remark.contains("RandomPartitioner"))).await;
    let get = session.prepare(SELECT).await.unwrap();
    session.execute(&get, (1_i32,), &patient()).await.unwrap();
    *cluster.partitioner.lock().unwrap() = MURMUR3;
    session.pool().control().refresh();
    eventually("it is forgotten", || !remarks().iter().any(|remark| remark.contains("RandomPartitioner"))).await;
}

#[tokio::test(start_paused = true)]
async fn cq_2_a_version_is_agreed_on_once_for_a_server_and_anew_when_it_has_been_away() {
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
    assert_eq!(refused(), 1, "what is known is not asked again");
    // It may have been upgraded meanwhile.
    old.cut_all();
    eventually("connected anew", || refused() == 2).await;
    session.query("SELECT 1", &patient()).await.unwrap();
}

//! How many messages a request takes, counted by a proxy in front of the server.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use honeyflow_conformance::hive::{TTL_MS, TestMember, test_member::epoch_of};
use honeyflow_event::Name;
use honeyflow_hive::{
    Reply, Request,
    contract::{
        Claim,
        limit::{self, Draw, ExactTake, Key, Rule},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
};

use crate::TestDatabase;

/// Forwards what a client sends, and counts its queries.
async fn ask(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, asked: Arc<AtomicUsize>) -> std::io::Result<()> {
    let mut is_first = true;
    loop {
        // The first message has no type byte.
        let kind = if is_first { 0 } else { from.read_u8().await? };
        let length = from.read_u32().await?;
        let mut body = vec![0; length as usize - 4];
        from.read_exact(&mut body).await?;
        if !is_first {
            to.write_u8(kind).await?;
        }
        // Count it before the server can answer.
        asked.fetch_add(usize::from(matches!(kind, b'Q' | b'S')), Ordering::SeqCst);
        to.write_u32(length).await?;
        to.write_all(&body).await?;
        is_first = false;
    }
}

/// The field behind a proxy that counts. The first `unheard` connections get no answer, as if their packets were lost.
async fn behind_counting_proxy(field: &TestDatabase, unheard: usize) -> (TestDatabase, Arc<AtomicUsize>) {
    let (login, place) = field.url.split_once('@').unwrap();
    let (server, database) = place.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let way = format!("{login}@{}/{database}?sslmode=disable", listener.local_addr().unwrap());
    let asked = Arc::<AtomicUsize>::default();
    let (server, counter) = (server.to_owned(), asked.clone());
    tokio::spawn(async move {
        let mut lost = Vec::new();
        while let Ok((client, _)) = listener.accept().await {
            if lost.len() < unheard {
                lost.push(client);
                continue;
            }
            let (from_client, mut to_client) = client.into_split();
            let (mut from_server, to_server) = TcpStream::connect(&*server).await.unwrap().into_split();
            tokio::spawn(ask(from_client, to_server, counter.clone()));
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
        }
    });
    (TestDatabase::at(&field.url, &way), asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_11_every_request_is_one_round_trip() {
    let Some(field) = TestDatabase::straight().await else { return };
    // Another node has created the tables.
    TestMember::join(field.open(), "first", TTL_MS).await;
    let (field, asked) = behind_counting_proxy(&field, 0).await;
    let bee = TestMember::join(field.open(), "a", TTL_MS).await;
    assert_eq!(asked.swap(0, Ordering::SeqCst), 1, "join");
    bee.beat().await;
    assert_eq!(asked.swap(0, Ordering::SeqCst), 1, "a beat with two events");
    bee.beat().await;
    assert_eq!(asked.swap(0, Ordering::SeqCst), 1, "a beat");
    let names: Vec<Name> = (0..64).map(|n| format!("shard/x/{n}").into()).collect();
    let Reply::Leases { leases, .. } = bee.call(Request::Look { leases: names }).await else { panic!("no leases") };
    assert_eq!(asked.swap(0, Ordering::SeqCst), 1, "look, which makes 64 rows");
    let claims: Vec<Claim> = leases.iter().map(|lease| Claim::new(lease.name.clone(), lease.epoch)).collect();
    let take = Request::Take { node: bee.id, claims, cause: "start".into(), mint: bee.mint() };
    let Reply::Taken(held) = bee.call(take).await else { panic!("not taken") };
    assert_eq!((held.len(), asked.swap(0, Ordering::SeqCst)), (64, 1), "take, all of them");
    epoch_of(&bee.call(bee.transfer_request("shard/x/0", held[0].epoch, bee.id)).await);
    assert_eq!(asked.swap(0, Ordering::SeqCst), 1, "hand over");
    bee.view().await;
    bee.events(0).await;
    assert_eq!(asked.swap(0, Ordering::SeqCst), 2, "the view, and events");
    let set = limit::Request::Set { limit: "api".into(), was: None, rule: Rule::rate(1, 1000, 100), after_ms: 0 };
    bee.limit(set).await;
    assert_eq!(asked.swap(0, Ordering::SeqCst), 1, "a definition");
    let draws =
        (0..3).map(|key| Draw { limit: "api".into(), key: Key(key), want: 5, need: 1, reserve: None }).collect();
    bee.limit(limit::Request::Draw(draws)).await;
    assert_eq!(asked.swap(0, Ordering::SeqCst), 1, "draws");
    let takes = (0..3).map(|key| ExactTake { limit: "api".into(), key: Key(key), cost: 1, window: None }).collect();
    bee.limit(limit::Request::Exact { takes, peek: false }).await;
    assert_eq!(asked.swap(0, Ordering::SeqCst), 1, "several limits, all or none");
}

/// HV-22: the network works again, but the connection attempt from before does not notice it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_22_a_lost_connection_attempt_is_repeated() {
    let Some(field) = TestDatabase::straight().await else { return };
    let (field, _) = behind_counting_proxy(&field, 1).await;
    let bee = TestMember::join(field.open(), "a", TTL_MS).await;
    assert!(bee.beat().await.renewed);
}

//! The replica to which conditional statements are sent.

use std::collections::BTreeSet;

use super::*;
use crate::network::{Network, address};

const THIRD: i64 = i64::MAX / 3;

fn number(id: &honeyflow_pool::ServerId) -> usize {
    let uuid: Uuid = id.to_string().parse().expect("servers are known by their ids");
    usize::try_from(uuid.as_u128()).unwrap() - 1
}

#[tokio::test(start_paused = true)]
async fn cq_11_conditional_statements_keep_one_order_of_replicas() {
    let cluster = Cluster::default();
    cluster.more_replicas.store(2, Ordering::Relaxed);
    let tokens = [-THIRD, THIRD, i64::MAX];
    *cluster.members.lock().unwrap() = (0..3).map(|at| (address(at), tokens[at])).collect();
    let network = Network::of((0..3).map(|at| cluster.script(at)));
    let servers = vec![address(0).to_string()];
    let session = network.session(honeyflow_pool::Settings { servers, discovery: true, ..network.quiet(1) });
    let all_up = || {
        let up = session.pool().status().servers;
        up.len() == 3
            && up.iter().all(|server| server.state == ServerState::Up && server.server.id.to_string().len() > 30)
    };
    eventually("all are found", all_up).await;
    let get = session.prepare(SELECT).await.unwrap();
    let if_so = get.clone().conditional(true);
    let order = |id: i32| session.holders(&get, (id,)).unwrap().iter().map(number).collect::<Vec<_>>();
    let firsts: BTreeSet<usize> = (0..60).map(|id| order(id)[0]).collect();
    assert_eq!((firsts.len(), order(1).len()), (3, 3));
    // Any replica may serve a read, but a conditional statement always goes to the same one.
    let asked = |id: i32| {
        cluster.asked.lock().unwrap().iter().filter(|(_, key)| *key == id).map(|(at, _)| *at).collect::<Vec<_>>()
    };
    let mut down = BTreeSet::new();
    for stopped in [None, Some(0), Some(1)] {
        if let Some(at) = stopped {
            network.stop(at);
            down.insert(at);
            let is_down = |one: &honeyflow_pool::ServerStatus| one.state == ServerState::Down;
            let seen = || session.pool().status().servers.iter().filter(|one| is_down(one)).count() == down.len();
            eventually("it is down", seen).await;
        }
        cluster.asked.lock().unwrap().clear();
        for id in 0..60_i32 {
            for _ in 0..3 {
                session.execute(&if_so, (id,), &patient()).await.unwrap();
            }
            let first = order(id).into_iter().find(|at| !down.contains(at)).unwrap();
            assert_eq!(asked(id), [first; 3], "id {id} while {down:?} are down");
        }
    }
    network.restart(0);
    network.restart(1);
    eventually("all are back", all_up).await;
    cluster.asked.lock().unwrap().clear();
    for _ in 0..20 {
        session.execute(&get, (1_i32,), &patient()).await.unwrap();
    }
    let asked: BTreeSet<usize> = asked(1).into_iter().collect();
    assert!(asked.len() > 1, "a statement that is not conditional goes to any replica");
}

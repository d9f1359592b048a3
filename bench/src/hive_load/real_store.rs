//! The cost of a heartbeat on a real store among a thousand nodes, against one among ten.

use std::{sync::Arc, time::Instant};

use honeyflow_chaos::hive::{Backend, StoreLocation};
use honeyflow_hive::{
    HiveStore, NodeId, Request,
    contract::{QUEEN, State},
};
use uuid::Uuid;

use crate::{
    Result,
    figure::{Better, Measurement, Reporter, median},
};

const FEW: usize = 10;
/// Heartbeats of each side in a run; the sides take turns.
const BEATS: usize = 300;

pub fn measure(nodes: usize, reporter: &mut Reporter) -> Result<()> {
    for &backend in Backend::ALL {
        let figure = format!("nodes-1000-beat-{}", backend.name());
        if !reporter.wants(&figure) {
            continue;
        }
        let (location, _guard) = match StoreLocation::prepare(backend) {
            Ok(prepared) => prepared,
            Err(error) => {
                eprintln!("  skipping {}: {error}", backend.name());
                continue;
            }
        };
        // Creates the hive's file, where the store is a file.
        for count in [nodes, FEW] {
            location.ledger(&hive_name(count))?;
        }
        let [many, few] = crate::runtime()?.block_on(beats_ms(&location, nodes, reporter.runs))?;
        let figure = Box::leak(figure.into_boxed_str());
        let peer = Some(("ten nodes", few));
        reporter.report(&Measurement { figure, unit: "ms", better: Better::Lower, ours: many, peer });
    }
    Ok(())
}

/// Returns the median of each run, in milliseconds.
async fn beats_ms(location: &StoreLocation, nodes: usize, runs: u32) -> Result<[Vec<f64>; 2]> {
    let sides = [join_nodes(location, nodes).await?, join_nodes(location, FEW).await?];
    let mut medians = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        let mut spent = [Vec::new(), Vec::new()];
        for _ in 0..BEATS {
            for ((store, node), spent) in sides.iter().zip(&mut spent) {
                let began = Instant::now();
                let beat = Request::Beat { node: *node, read_only: false, state: State::default() };
                store.call(beat).await?;
                spent.push(began.elapsed().as_secs_f64() * 1000.0);
            }
        }
        for (medians, spent) in medians.iter_mut().zip(spent) {
            medians.push(median(&spent));
        }
    }
    Ok(medians)
}

fn hive_name(count: usize) -> String {
    format!("of-{count}")
}

/// Creates a hive of `count` nodes, and returns one of them.
async fn join_nodes(location: &StoreLocation, count: usize) -> Result<(Arc<dyn HiveStore>, NodeId)> {
    let store = location.open(&hive_name(count)).await?;
    let nodes: Vec<NodeId> = (0..count).map(|_| NodeId(Uuid::new_v4())).collect();
    for (number, node) in nodes.iter().enumerate() {
        let join = Request::Join {
            node: *node,
            name: format!("machine-{number}").into(),
            heartbeat_ms: 20_000,
            ttl_ms: 60_000,
            meta: "{}".to_owned(),
        };
        store.call(join).await?;
    }
    store.call(Request::Look { leases: vec![QUEEN.into()] }).await?;
    Ok((store, nodes[0]))
}

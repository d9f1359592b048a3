//! A thousand simulated nodes, with the shipped code of a member and the rows of the memory backend.

use std::{collections::BTreeMap, time::Instant};

use honeyflow_hive::{
    NodeId, Reply, Request,
    contract::{QUEEN, State, View},
    placement::{Candidate, Shard, order, place},
};
use honeyflow_hive_memory::Rows;
use honeyflow_sim::hive::{MILLI, Options, SECOND, World};
use uuid::Uuid;

use crate::{
    Result,
    figure::{Better, Measurement, Reporter, median},
};

const HEARTBEAT: u64 = 2 * SECOND;
const BEATS: usize = 2_000;
const TURNS: usize = 201;

/// The figures that need a simulated hive.
const SIMULATED: [&str; 3] = ["nodes-1000", "nodes-1000-settle", "nodes-1000-takes"];

pub fn measure(nodes: usize, reporter: &mut Reporter) -> Result<()> {
    if SIMULATED.iter().any(|figure| reporter.wants(figure)) {
        simulate(nodes, reporter)?;
    }
    let mut report = |figure, unit, value: &dyn Fn() -> Result<f64>| {
        if reporter.wants(figure) {
            reporter.report(&lower(figure, unit, value()?));
        }
        Ok(())
    };
    report("nodes-1000-view", "MiB", &|| view_mib(nodes))?;
    report("nodes-1000-beat", "ratio", &|| beat_ratio(nodes))?;
    report("nodes-1000-place", "ms", &|| Ok(place_ms(nodes)))
}

fn lower(figure: &'static str, unit: &'static str, value: f64) -> Measurement {
    Measurement { figure, unit, better: Better::Lower, ours: vec![value], peer: None }
}

fn simulate(nodes: usize, reporter: &mut Reporter) -> Result<()> {
    let began = Instant::now();
    let so_far = |what: &str| eprintln!("  nodes-1000: {what}, {:.0} s so far", began.elapsed().as_secs_f64());
    let mut world = World::new(Options::calm(nodes, 1));
    world.traffic = false;
    let mut report = |figure: &'static str, unit: &'static str, value: f64| {
        if reporter.wants(figure) {
            reporter.report(&lower(figure, unit, value));
        }
    };

    // All nodes start within ten seconds.
    for machine in 0..nodes {
        world.until(10 * SECOND * machine as u64 / nodes as u64);
        world.start(machine);
    }
    so_far("all nodes have started");
    let began_at = world.now;
    while !all_know_each_other(&world, nodes) {
        world.pass(50 * MILLI);
        if world.now - began_at > 60 * SECOND {
            return Err(format!("{nodes} nodes are not stable after 60 s").into());
        }
    }
    report("nodes-1000-settle", "beats", (world.now - began_at) as f64 / HEARTBEAT as f64);

    world.pass(20 * SECOND);
    so_far("the hive is stable");
    let before = world.operations();
    world.pass(20 * SECOND);
    report("nodes-1000", "1/s", (world.operations() - before) as f64 / 20.0);

    let queen = world.queen().ok_or("no node is queen")?;
    let takes = world.history.calls.get("take").copied().unwrap_or(0);
    world.kill(queen);
    let died_at = world.now;
    while world.queen().is_none() {
        world.pass(20 * MILLI);
        if world.now - died_at > 30 * SECOND {
            return Err("no node succeeds the queen".into());
        }
    }
    so_far(&format!("another queen after {} ms", (world.now - died_at) / MILLI));
    world.pass(SECOND);
    let tried = world.history.calls.get("take").copied().unwrap_or(0) - takes;
    report("nodes-1000-takes", "tries", tried as f64);
    if let Some(breach) = world.history.breaches.first() {
        return Err(format!("a thousand nodes: {breach}").into());
    }
    Ok(())
}

fn all_know_each_other(world: &World, nodes: usize) -> bool {
    world.nodes.iter().all(|node| node.knows == nodes)
}

fn id(number: usize) -> NodeId {
    NodeId(Uuid::from_u128(number as u128 + 1))
}

/// Rows of `nodes` members with one KiB of metadata each.
fn joined_rows(nodes: usize) -> Result<Rows> {
    let mut rows = Rows::default();
    let meta = format!("{{\"about\":\"{}\"}}", "x".repeat(1000));
    for number in 0..nodes {
        let join = Request::Join {
            node: id(number),
            name: format!("machine-{number}").into(),
            heartbeat_ms: 2_000,
            ttl_ms: 6_000,
            meta: meta.clone(),
        };
        rows.apply(1_000, join)?;
    }
    rows.apply(1_000, Request::Look { leases: vec![QUEEN.into()] })?;
    Ok(rows)
}

/// The memory of a node's view, counted as its rows and their text.
fn view_mib(nodes: usize) -> Result<f64> {
    let Reply::View(view) = joined_rows(nodes)?.apply(2_000, Request::View)? else { return Err("no view".into()) };
    let View { nodes, leases, .. } = &*view;
    let of_nodes: usize = nodes
        .iter()
        .map(|row| size_of_val(row) + row.name.capacity() + row.meta.capacity() + row.warm.len() * 16)
        .sum();
    let of_leases: usize = leases.iter().map(|row| size_of_val(row) + row.name.len() + row.cause.capacity()).sum();
    Ok((of_nodes + of_leases) as f64 / 1024.0 / 1024.0)
}

/// The cost of a heartbeat among `nodes` nodes against one among ten, on the memory backend. The sides take turns, so
/// that both see the same conditions.
fn beat_ratio(nodes: usize) -> Result<f64> {
    let mut sides = [(joined_rows(nodes)?, nodes, Vec::new()), (joined_rows(10)?, 10, Vec::new())];
    for turn in 0..TURNS {
        for (rows, nodes, ns) in &mut sides {
            let began = Instant::now();
            for number in 0..BEATS {
                let state = State { ready: true, eligible: true, ..State::default() };
                let now_ms = (turn * BEATS + number + 2_000) as u64;
                rows.apply(now_ms, Request::Beat { node: id(number % *nodes), read_only: false, state })?;
            }
            ns.push(began.elapsed().as_nanos() as f64 / BEATS as f64);
        }
    }
    let [of_many, of_ten] = sides.map(|(_, _, ns)| median(&ns));
    eprintln!("  nodes-1000-beat: {of_many:.0} ns among {nodes}, {of_ten:.0} ns among 10");
    Ok(of_many / of_ten)
}

/// The time to place 64 shards, and to order all nodes for each of them, in milliseconds.
fn place_ms(nodes: usize) -> f64 {
    let candidates: Vec<Candidate> = (0..nodes)
        .map(|number| Candidate {
            id: id(number),
            name: format!("machine-{number}").as_str().into(),
            weight: 100,
            pinned: Vec::new(),
        })
        .collect();
    let shards: Vec<Shard> = (0..64)
        .map(|shard| Shard { lease: format!("shard/shop/{shard}").into(), holder: None, pinned_only: false })
        .collect();
    let runs: Vec<f64> = (0..9)
        .map(|_| {
            let began = Instant::now();
            let owners = place(&candidates, &shards);
            let next: BTreeMap<_, _> =
                shards.iter().map(|shard| (&shard.lease, order(&candidates, &shard.lease))).collect();
            assert!(owners.len() == 64 && next.len() == 64);
            began.elapsed().as_secs_f64() * 1000.0
        })
        .collect();
    median(&runs)
}

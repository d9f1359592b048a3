//! The scenarios, each with the figures that it must reach.

use super::load::Load;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Disturbance {
    None,
    /// The number of nodes changes in the middle of the run.
    Nodes(usize),
    /// The limit is halved in the middle of the run.
    Halved,
    /// The store is unreachable for ten seconds of every sixty.
    StoreDown,
    /// The store loses the limit's row in the middle of the run, and the number of nodes doubles.
    Forgets,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub load: Load,
    /// The demand, as a part of the limit.
    pub demand: f64,
    pub nodes: usize,
    pub turn: Disturbance,
    /// The least that must be admitted, as a part of what one central bucket admits.
    pub share_min: f64,
    /// The most that any ten seconds may admit, as a part of ten seconds of the limit.
    pub window_max: f64,
    /// The most store operations per second, of all nodes together.
    pub calls_max: f64,
}

const fn scenario(
    name: &'static str,
    load: Load,
    demand: f64,
    share_min: f64,
    window_max: f64,
    calls_max: f64,
) -> Scenario {
    Scenario { name, load, demand, nodes: 20, turn: Disturbance::None, share_min, window_max, calls_max }
}

pub const SCENARIOS: &[Scenario] = &[
    scenario("even", Load::Even, 1.5, 0.985, 1.02, 60.0),
    scenario("zipf", Load::Zipf, 1.0, 0.985, 1.02, 350.0),
    scenario("one-hot", Load::OneHot, 0.9, 0.985, 0.95, 160.0),
    scenario("hot-pair", Load::HotPair, 0.9, 0.985, 0.95, 220.0),
    scenario("bursts", Load::Bursts, 0.8, 0.98, 0.85, 130.0),
    Scenario { nodes: 10, turn: Disturbance::Nodes(40), ..scenario("grow", Load::Even, 2.0, 0.975, 1.02, 70.0) },
    Scenario { nodes: 40, turn: Disturbance::Nodes(10), ..scenario("shrink", Load::Even, 2.0, 0.97, 1.02, 70.0) },
    Scenario { nodes: 40, ..scenario("start-at-once", Load::Even, 2.0, 0.97, 1.02, 100.0) },
    Scenario { turn: Disturbance::Halved, ..scenario("halved", Load::Even, 1.5, 0.97, 1.02, 100.0) },
    Scenario { turn: Disturbance::Forgets, ..scenario("forgets", Load::Even, 1.5, 0.97, 1.04, 120.0) },
    Scenario { turn: Disturbance::StoreDown, ..scenario("store-down", Load::Even, 1.5, 0.93, 1.06, f64::INFINITY) },
];

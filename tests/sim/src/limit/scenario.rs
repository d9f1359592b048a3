//! The scenarios, each with what is promised of it.

use super::load::Load;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Turn {
    None,
    /// So many nodes from the middle of the run on.
    Nodes(usize),
    /// Half the limit from the middle of the run on.
    Halved,
    /// The store is away for ten seconds of every sixty.
    StoreDown,
    /// The store loses the limit's row in the middle of the run, and as many nodes come as there are.
    Forgets,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub load: Load,
    /// Of the limit.
    pub demand: f64,
    pub nodes: usize,
    pub turn: Turn,
    /// Of what one central bucket admits.
    pub share_min: f64,
    /// Of ten seconds of the limit.
    pub window_max: f64,
    /// Store operations a second, of all nodes together.
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
    Scenario { name, load, demand, nodes: 20, turn: Turn::None, share_min, window_max, calls_max }
}

pub const SCENARIOS: &[Scenario] = &[
    scenario("even", Load::Even, 1.5, 0.985, 1.02, 60.0),
    scenario("zipf", Load::Zipf, 1.0, 0.985, 1.02, 350.0),
    scenario("one-hot", Load::OneHot, 0.9, 0.985, 0.95, 160.0),
    scenario("hot-pair", Load::HotPair, 0.9, 0.985, 0.95, 220.0),
    scenario("bursts", Load::Bursts, 0.8, 0.98, 0.85, 130.0),
    Scenario { nodes: 10, turn: Turn::Nodes(40), ..scenario("grow", Load::Even, 2.0, 0.975, 1.02, 70.0) },
    Scenario { nodes: 40, turn: Turn::Nodes(10), ..scenario("shrink", Load::Even, 2.0, 0.97, 1.02, 70.0) },
    Scenario { nodes: 40, ..scenario("start-at-once", Load::Even, 2.0, 0.97, 1.02, 100.0) },
    Scenario { turn: Turn::Halved, ..scenario("halved", Load::Even, 1.5, 0.97, 1.02, 100.0) },
    Scenario { turn: Turn::Forgets, ..scenario("forgets", Load::Even, 1.5, 0.97, 1.04, 120.0) },
    Scenario { turn: Turn::StoreDown, ..scenario("store-down", Load::Even, 1.5, 0.93, 1.06, f64::INFINITY) },
];
